// Command container is a worker as it runs in Kubernetes, on ECS, or under any other orchestrator.
//
// The trap: an orchestrator stops a container with SIGTERM and, when its grace is over, with
// SIGKILL. A worker that does not listen, or whose signal ends at a shell, is killed amid its jobs
// at each deploy, and these stay hidden until their visibility timeouts have run out. A health
// check that fails with the database restarts all workers while it is down, which helps nobody.
//
// The answer: the first signal ends the context of Run, and DrainTimeout is derived from the grace
// (settings.go). Readiness tells of a drain, and of a queue or a store that has failed for a while;
// liveness tells only that the process works (adapters/healthonceq).
//
//	go run ./examples/container
//
// runs it on a queue in memory until ctrl-C. Dockerfile, kubernetes.yaml and ecs-task.json beside
// it are for SQS, gke.yaml and worker-pool.sh for Pub/Sub on GKE and in a Cloud Run worker pool.
// With ADMIN_ADDR=127.0.0.1:8081 the worker shows the operator's page there (admin.go).
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/healthonceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
)

// This file owns the worker's life, from its settings to its drain. main calls work, which waits
// for Run. Two goroutines beside it wait for signals and serve health. They share only the context
// and the worker with work, so nothing is locked here. settings.go reads the environment, queues.go
// opens what it names, admin.go serves the page, and demo.go replaces what the environment lacks.

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

// openStore is PostgreSQL or, beside Pub/Sub, Firestore for workers on many machines, or a file for
// those on one.
func openStore(ctx context.Context, s settings) (store dedupe.Store, closeStore func(), err error) {
	if s.postgres == "" && s.file == "" {
		return openFirestore(ctx, s)
	}
	if s.postgres != "" {
		pool, err := pgxpool.New(ctx, s.postgres)
		if err != nil {
			return nil, nil, err
		}
		st, err := pgstore.New(pool, nil)
		if err == nil {
			err = st.Migrate(ctx)
		}
		return st, pool.Close, err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(s.file))
	if err != nil {
		return nil, nil, err
	}
	st, err := sqlitestore.New(db, nil)
	if err == nil {
		err = st.Migrate(ctx)
	}
	return st, func() {
		if st != nil {
			_ = st.Close()
		}
		_ = db.Close()
	}, err
}

// openFirestore takes the collection "onceq", in the subscription's project: it is there with its
// first document. docs/backend-firestore.md has the TTL policy and the role.
func openFirestore(ctx context.Context, s settings) (dedupe.Store, func(), error) {
	parts := strings.Split(s.subscription, "/") // projects/P/subscriptions/S
	if len(parts) != 4 {
		return nil, nil, fmt.Errorf("SUBSCRIPTION is %q, want projects/PROJECT/subscriptions/NAME", s.subscription)
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

// work runs until a signal has come and all is drained.
func work(s settings, log *slog.Logger, signals <-chan os.Signal) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, closeStore, err := openStore(ctx, s)
	if err != nil {
		return fmt.Errorf("the store: %w", err)
	}
	defer closeStore()
	q, err := openQueues(ctx, s, log)
	if err != nil {
		return err
	}
	defer q.close()

	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(bank{s.bank}.charge),
		Store:   store, Scope: "orders",
		SettleTimeout: settleTimeout, Logger: log,
	})
	if err != nil {
		return err
	}
	worker, err := p.Worker(q.from, onceq.WorkerConfig{
		DeadLetter: q.dead, Concurrency: s.concurrency, DrainTimeout: s.drainTimeout(),
	})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR: %w", err)
	}
	server := &http.Server{Handler: healthonceq.NewHandler(&healthonceq.Options{Patience: s.patience}, worker), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close() // it answers until the drain is over
	endAdmin, err := serveAdmin(ctx, s, q, store, log)
	if err != nil {
		return err
	}
	defer endAdmin()
	log.Info("working", "queue", q.name, "health", l.Addr().String(), "drain", s.drainTimeout())

	go func() {
		log.Info("draining", "signal", (<-signals).String(), "at_most", s.drainTimeout()+settleTimeout)
		stop()
		log.Error("ending at once: what was running comes again when its lease is over", "signal", (<-signals).String())
		os.Exit(1)
	}()
	err = worker.Run(ctx)
	if late, ok := errors.AsType[*onceq.DrainError](err); ok { // their handlers ignored their contexts
		log.Error("abandoned, they come again when their leases are over", "jobs", late.Jobs)
	}
	if err == nil {
		log.Info("drained")
	}
	return err
}

// readable writes durations as 1.5s, where JSON would have nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func main() {
	s, err := fromEnvironment(os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "container: the environment:\n%v\n", err)
		os.Exit(2)
	}
	if len(os.Args) == 2 && os.Args[1] == "-health" { // for an image without curl
		if err := probe(s.addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	log := slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: readable}))
	if s.queue == "" && s.subscription == "" {
		end, err := serveDemo(&s)
		if err != nil {
			log.Error("the demo", "error", err)
			os.Exit(1)
		}
		defer end()
	}
	if err := work(s, log, signals); err != nil {
		log.Error("ended", "error", err)
		os.Exit(1)
	}
}
