package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dlq"
)

// ownSchema makes a schema for this run, in which everything is made, and drops it in the end.
func ownSchema(ctx context.Context, url string) (pool *pgxpool.Pool, drop func()) {
	name := "onceq_stock_" + strings.ToLower(rand.Text()[:8])
	c := must(pgxpool.ParseConfig(url))
	c.ConnConfig.RuntimeParams["search_path"] = name
	pool = must(pgxpool.NewWithConfig(ctx, c))
	must(pool.Exec(ctx, "CREATE SCHEMA "+name))
	return pool, func() {
		must(pool.Exec(ctx, "DROP SCHEMA "+name+" CASCADE"))
		pool.Close()
	}
}

// screen prints how each delivery ended, and stops the worker when so many have ended for good.
type screen struct {
	out  io.Writer
	last func()

	mu   sync.Mutex
	left int
}

// JobStarted adds nothing to the context.
func (s *screen) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

// JobEnded prints a line.
func (s *screen) JobEnded(_ context.Context, r *onceq.TimingRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, strings.TrimRight(fmt.Sprintf("  %s %-12s %s", dlq.Printable(r.Key.Key), r.Outcome, dlq.Printable(r.Err)), " "))
	if s.left--; r.Outcome == "retried" {
		s.left++
	}
	if s.left == 0 {
		s.last()
	}
}
