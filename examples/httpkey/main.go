// Command httpkey is a payment service that clients may ask again: it takes the Idempotency-Key header, charges once for
// each key, and replays its answer. Its records are in SQLite, so it may be killed and started again at any time.
//
//	go run ./examples/httpkey
//	curl -i -H 'Idempotency-Key: order-7' -d '{"cents": 1250}' localhost:8080/payments
//	curl -i -H 'Idempotency-Key: order-7' -d '{"cents": 1250}' localhost:8080/payments
//
// idempotent.go is the middleware, for any handler.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	_ "modernc.org/sqlite"
)

// bank stands for a payment API that takes an idempotency key of its own, as most do: a key that it has seen gives the
// first charge again.
type bank struct {
	mu      sync.Mutex
	charges map[string]string // by key
}

func (b *bank) charge(_ context.Context, key string, _ int) (id string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.charges == nil {
		b.charges = make(map[string]string)
	}
	if b.charges[key] == "" {
		b.charges[key] = fmt.Sprintf("charge-%d", len(b.charges)+1)
	}
	return b.charges[key], nil
}

type charger interface {
	charge(ctx context.Context, key string, cents int) (id string, err error)
}

// pay charges a payment. It may run again for the same request, when the process died before the answer was recorded; the
// bank sees the same key then, and charges once.
func pay(bank charger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var payment struct{ Cents int }
		if err := json.NewDecoder(r.Body).Decode(&payment); err != nil || payment.Cents <= 0 {
			problem(w, http.StatusBadRequest, "cents: want a positive number")
			return
		}
		id, err := bank.charge(r.Context(), jobOf(r.Context()).EffectKey("charge"), payment.Cents)
		if err != nil {
			problem(w, http.StatusBadGateway, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id": %q, "cents": %d}`, id, payment.Cents)
	}
}

// service is all of it on a store.
func service(store dedupe.Store, bank charger, logger *slog.Logger) (http.Handler, error) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "payments", Logger: logger})
	if err != nil {
		return nil, err
	}
	client := func(*http.Request) string { return "client" } // whom the request's credentials name: keys are each client's own
	mux := http.NewServeMux()
	mux.Handle("POST /payments", idempotent(p, client, pay(bank)))
	return mux, nil
}

func main() {
	addr := flag.String("addr", "localhost:8080", "`address` to listen on")
	file := flag.String("db", "payments.db", "SQLite `file` of the records")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err == nil {
		log.Print("listening on ", l.Addr())
		err = serve(ctx, l, *file, &bank{})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers until ctx ends; requests under way are answered and recorded yet.
func serve(ctx context.Context, l net.Listener, file string, bank charger) error {
	defer l.Close()
	db, err := sql.Open("sqlite", sqlitestore.DSN(file))
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	h, err := service(store, bank, slog.Default())
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadTimeout: 5 * time.Second} // a body that never ends must not hold the shutdown
	drained := make(chan error, 1)
	context.AfterFunc(ctx, func() { drained <- s.Shutdown(context.WithoutCancel(ctx)) })
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained // before the store is closed
}
