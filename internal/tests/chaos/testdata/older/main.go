// Older is a worker of an onceq that knows no steps: TestOlderBesideNewer builds it in a tree of that
// time. Each run of its handler has the three effects anew, under their keys.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/child"
)

func main() {
	if err := run(child.Follow(context.Background()), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "older:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, database, api string) error {
	queue, store, err := open(ctx, database)
	if err != nil {
		return err
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "beside", Owner: name, Store: store, Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{MaxAttempts: -1, Backoff: func(int, error) time.Duration { return 20 * time.Millisecond }},
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			for _, step := range []string{"charge", "mail", "book"} {
				if say(api, name, j.Key().Key, step, j.EffectKey(step)) != "" {
					return errors.New("not yet")
				}
			}
			return nil
		}),
	})
	if err != nil {
		return err
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 4})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func open(ctx context.Context, database string) (broker.Receiver, dedupe.Store, error) {
	if strings.HasPrefix(database, "postgres") {
		pool, err := pgxpool.New(ctx, database)
		if err != nil {
			return nil, nil, err
		}
		queue, err := pgbroker.New(pool, "orders", nil)
		if err != nil {
			return nil, nil, err
		}
		store, err := pgstore.New(pool, nil)
		return queue, store, err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(database))
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return nil, nil, err
	}
	queue, err := sqlitebroker.New(store, "orders", nil)
	return queue, store, err
}

// say tells the test of an effect, and hears what becomes of the run; "" = it goes on.
func say(api, who, order, step, key string) string {
	res, err := http.Get(api + "?" + url.Values{"who": {who}, "order": {order}, "step": {step}, "key": {key}}.Encode())
	if err != nil {
		os.Exit(1) // the test has ended
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	return string(answer)
}
