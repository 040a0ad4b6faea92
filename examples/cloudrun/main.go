// Command cloudrun is a push service as it runs on Cloud Run: Pub/Sub pushes orders to it, and it
// charges each once.
//
// The trap: Pub/Sub pushes an order again while the first push of it is still worked on, after an
// answer that got lost, and after a deploy has killed an instance. Cloud Run gives ten seconds
// between SIGTERM and SIGKILL, and an endpoint that believes anybody charges for anybody.
//
// The answer: pubsubpush checks the token, lets one request run and the others wait, and drains
// within nine seconds. docs/backend-cloudrun.md has the subscription's settings.
//
//	go run ./examples/cloudrun
//
// runs it until ctrl-C with a bank of its own, and pushes ten orders twice. On Cloud Run the
// environment names the real ones: see settings.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/dedupe/pgstore"
)

// This file owns the service's life, from its settings to its drain. main calls serve, which waits
// for a signal. The server's goroutines share only the handler and draining with it, so nothing is
// locked here. demo.go replaces what the environment does not name.

// settings are what the environment says.
type settings struct {
	addr     string // PORT, which Cloud Run sets; all addresses of the container
	audience string // PUSH_AUDIENCE and PUSH_ACCOUNT: those of the subscription's push authentication
	account  string
	dead     string // DEAD_LETTER_TOPIC, projects/P/topics/T
	keys     string // FIRESTORE_DATABASE, default "(default)", of the topic's project
	database string // DATABASE_URL, of PostgreSQL: the keys are there and not in Firestore
	bank     string // BANK_URL

	// the demo brings its own
	auth  pubsubpush.Auth
	store dedupe.Store
	box   broker.Sender
}

func fromEnvironment() (s settings, err error) {
	s = settings{
		addr: ":" + os.Getenv("PORT"), audience: os.Getenv("PUSH_AUDIENCE"), account: os.Getenv("PUSH_ACCOUNT"),
		dead: os.Getenv("DEAD_LETTER_TOPIC"), bank: os.Getenv("BANK_URL"),
		keys: cmp.Or(os.Getenv("FIRESTORE_DATABASE"), firestore.DefaultDatabaseID), database: os.Getenv("DATABASE_URL"),
	}
	for name, value := range map[string]string{"BANK_URL": s.bank, "PUSH_AUDIENCE": s.audience, "PUSH_ACCOUNT": s.account} {
		if value == "" {
			err = errors.Join(err, fmt.Errorf("%s is not set", name))
		}
	}
	s.auth = pubsubpush.OIDC{Audience: s.audience, ServiceAccount: s.account}
	return s, err
}

const (
	// ackDeadline is the subscription's: docs/backend-cloudrun.md sets it.
	ackDeadline = 60 * time.Second
	// Cloud Run kills the instance ten seconds after SIGTERM. Half a second is the server's, and
	// half a second is nobody's.
	drainTime, closeTime = 9 * time.Second, 500 * time.Millisecond
)

// open connects to what the environment names: Firestore for the keys, or PostgreSQL, and a topic
// for the dead letters.
func open(ctx context.Context, s *settings) (closeAll func(), err error) {
	openStore := openFirestore
	if s.database != "" {
		openStore = openPostgres
	}
	store, closeStore, err := openStore(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("the store: %w", err)
	}
	clients, err := gcppubsub.Dial(ctx)
	if err != nil {
		closeStore()
		return nil, fmt.Errorf("Pub/Sub: %w", err)
	}
	closeAll = func() {
		_ = clients.Close()
		closeStore()
	}
	box, err := gcppubsub.New(clients, s.dead, "", nil)
	if err != nil {
		closeAll()
		return nil, fmt.Errorf("DEAD_LETTER_TOPIC: %w", err)
	}
	s.store, s.box = store, box
	return closeAll, nil
}

// openFirestore takes the collection "onceq", which is there with its first document. There is no
// server to rent. docs/backend-firestore.md has the TTL policy and the role.
func openFirestore(ctx context.Context, s *settings) (dedupe.Store, func(), error) {
	parts := strings.Split(s.dead, "/") // projects/P/topics/T
	if len(parts) != 4 {
		return nil, nil, fmt.Errorf("DEAD_LETTER_TOPIC is %q, want projects/PROJECT/topics/TOPIC", s.dead)
	}
	client, err := firestore.NewClientWithDatabase(ctx, parts[1], s.keys)
	if err != nil {
		return nil, nil, err
	}
	api, err := firestorestore.NewAPI(ctx)
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	store, err := firestorestore.New(client, api, "onceq", nil)
	return store, func() {
		_ = api.Close()
		_ = client.Close()
	}, err
}

func openPostgres(ctx context.Context, s *settings) (dedupe.Store, func(), error) {
	pool, err := pgxpool.New(ctx, s.database)
	if err != nil {
		return nil, nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	store, err := pgstore.New(pool, nil)
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err != nil {
		pool.Close()
	}
	return store, pool.Close, err
}

// bank charges orders through an API, which knows a repeated charge by its key.
type bank struct{ url string }

func (b bank) charge(ctx context.Context, j *onceq.Job) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(j.Message.Body))
	if err != nil {
		return onceq.Permanent(err)
	}
	r.Header.Set("Idempotency-Key", j.EffectKey("charge"))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection is used again
	switch {
	case res.StatusCode < 300:
		return nil
	case res.StatusCode < 500 && res.StatusCode != http.StatusTooManyRequests:
		return onceq.Permanent(fmt.Errorf("the bank refuses: %s", res.Status))
	}
	return fmt.Errorf("the bank answers %s", res.Status)
}

// orderKey is the order's number, which the shop sends as an attribute: its own retries have it,
// too.
func orderKey(m *broker.Message) (dedupe.Key, error) {
	if order := m.Attributes["order"]; order != "" {
		return dedupe.Key{Key: order}, nil
	}
	return dedupe.Key{}, errors.New("no order in the attributes")
}

// serve answers pushes until a signal comes and all is drained. ready is called once it listens.
func serve(s settings, log *slog.Logger, signals <-chan os.Signal, ready func(addr string)) error {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(bank{s.bank}.charge), Store: s.store, Scope: "orders", Key: orderKey, Logger: log,
	})
	if err != nil {
		return err
	}
	batches, err := p.Batches(onceq.BatchConfig{DeadLetter: s.box})
	if err != nil {
		return err
	}
	push, err := pubsubpush.New(batches, pubsubpush.Options{Auth: s.auth, AckDeadline: ackDeadline, Logger: log})
	if err != nil {
		return err
	}
	var draining atomic.Bool
	mux := http.NewServeMux()
	mux.Handle("/push", push)
	// The probes of Cloud Run, or of GKE. Neither looks at the store: a restart helps no service
	// while its database is down, and failed pushes slow Pub/Sub down by themselves.
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("PORT: %w", err)
	}
	// no WriteTimeout: pubsubpush bounds each request by the ack deadline
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	log.Info("serving", "addr", l.Addr().String())
	ready(l.Addr().String())
	select {
	case err := <-failed:
		return err
	case sig := <-signals:
		log.Info("draining", "signal", sig.String())
	}
	draining.Store(true)
	err = drain(push, server)
	log.Info("drained", "error", err)
	return err
}

func drain(h *pubsubpush.Handler, s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	err := h.Shutdown(ctx)
	last, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if s.Shutdown(last) != nil {
		// The pushes are answered. A connection that asked nothing yet counts as busy for 5 s.
		return errors.Join(err, s.Close())
	}
	return err
}

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	if err := run(log, signals); err != nil {
		fmt.Fprintln(os.Stderr, "cloudrun:", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger, signals <-chan os.Signal) error {
	if os.Getenv("DEAD_LETTER_TOPIC") == "" {
		return demo(log, signals)
	}
	s, err := fromEnvironment()
	if err != nil {
		return err
	}
	closeAll, err := open(context.Background(), &s)
	if err != nil {
		return err
	}
	defer closeAll()
	return serve(s, log, signals, func(string) {})
}
