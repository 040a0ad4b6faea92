// Command httpkey is a payment service that clients may ask again: it takes the Idempotency-Key
// header, charges once for each key, and replays its answer. Its records are in SQLite, so it may
// be killed and started again at any time.
//
//	CLIENTS='alice:wonderland bob:builder' go run ./examples/httpkey
//	curl -i -u alice:wonderland -H 'Idempotency-Key: order-7' -d '{"cents": 1250}' localhost:8080/payments
//	curl -i -u alice:wonderland -H 'Idempotency-Key: order-7' -d '{"cents": 1250}' localhost:8080/payments
//
// Keys are each client's own. Without CLIENTS there is one, whose password it prints.
//
// The middleware is package httponceq's, for any handler.
package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
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
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/httponceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	_ "modernc.org/sqlite"
)

// bank stands for a payment API that takes an idempotency key of its own, as most do: a key that it
// has seen gives the first charge again.
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

// clients are who may pay, and their passwords. They stand for what a service knows its clients by.
type clients map[string]string

// newClients reads them from a text of name:password, with spaces between them. Of an empty one it
// makes a client and tells its password.
func newClients(text string) (clients, error) {
	if text == "" {
		password := rand.Text()
		log.Print("no CLIENTS: for this run there is one, curl -u demo:", password)
		return clients{"demo": password}, nil
	}
	c := clients{}
	for one := range strings.FieldsSeq(text) {
		name, password, _ := strings.Cut(one, ":")
		if name == "" || password == "" || c[name] != "" {
			return nil, errors.New("CLIENTS: want name:password, each name once, with spaces between them") // not the text: it has passwords
		}
		c[name] = password
	}
	return c, nil
}

// of is the client whose credentials a request has.
func (c clients) of(r *http.Request) (name string, ok bool) {
	name, given, ok := r.BasicAuth()
	password, known := c[name]
	return name, ok && known && subtle.ConstantTimeCompare([]byte(given), []byte(password)) == 1
}

type charger interface {
	charge(ctx context.Context, key string, cents int) (id string, err error)
}

// pay charges a payment. It may run again for the same request, when the process died before the
// answer was recorded; the bank sees the same key then, and charges once.
func pay(bank charger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var payment struct{ Cents int }
		if err := json.NewDecoder(r.Body).Decode(&payment); err != nil || payment.Cents <= 0 {
			httponceq.Problem(w, http.StatusBadRequest, "cents: want a positive number")
			return
		}
		id, err := bank.charge(r.Context(), httponceq.Job(r.Context()).EffectKey("charge"), payment.Cents)
		if err != nil {
			httponceq.Problem(w, http.StatusBadGateway, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id": %q, "cents": %d}`, id, payment.Cents)
	}
}

// service is all of it on a store.
func service(store dedupe.Store, who clients, bank charger, logger *slog.Logger) (http.Handler, error) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "payments", Logger: logger})
	if err != nil {
		return nil, err
	}
	once, err := httponceq.New(p, httponceq.Options{Client: who.of, Challenge: `Basic realm="payments"`})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(pay(bank)))
	return mux, nil
}

func main() {
	addr := flag.String("addr", "localhost:8080", "`address` to listen on")
	file := flag.String("db", ".demo/httpkey/payments.db", "SQLite `file` of the records; a folder that is not there is made, for this user alone")
	flag.Parse()
	who, err := newClients(os.Getenv("CLIENTS"))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err == nil {
		log.Print("listening on ", l.Addr())
		err = serve(ctx, l, *file, who, &bank{})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers until ctx ends; requests under way are answered and recorded yet.
func serve(ctx context.Context, l net.Listener, file string, who clients, bank charger) error {
	defer l.Close()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil { // the answers in the file are the clients' own
		return err
	}
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
	h, err := service(store, who, bank, slog.Default())
	if err != nil {
		return err
	}
	s := &http.Server{
		Handler:     h,
		ReadTimeout: 5 * time.Second, // a body that never ends must not hold the shutdown
		// nor a client that does not take its answer; one that gives up asks again, and gets it
		// then
		WriteTimeout:   30 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	drained := make(chan error, 1)
	context.AfterFunc(ctx, func() { drained <- s.Shutdown(context.WithoutCancel(ctx)) })
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained // before the store is closed
}
