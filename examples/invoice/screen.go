package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// screen prints how each delivery ended, and stops the worker after the last.
type screen struct {
	out   io.Writer
	store dedupe.Store
	last  func()

	mu   sync.Mutex
	left int
}

// JobStarted adds nothing to the context.
func (s *screen) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

// JobEnded prints a line, with the result that is kept with the key.
func (s *screen) JobEnded(ctx context.Context, r *onceq.TimingRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := r.Err
	if inv, status, err := onceq.Result[invoice](ctx, s.store, r.Key); err == nil && status == dedupe.Done {
		what = fmt.Sprintf("invoice %d", inv.Number)
	}
	fmt.Fprintf(s.out, "%-17s %-13s %s\n", dlq.Printable(r.Key.Key), r.Outcome, dlq.Printable(what))
	if s.left--; s.left == 0 {
		s.last()
	}
}

// report prints the books.
func report(ctx context.Context, out io.Writer, db *sql.DB) {
	fmt.Fprintln(out, "\nthe books:")
	rows := must(db.QueryContext(ctx, `SELECT number, order_id, cents FROM invoices ORDER BY number`))
	defer rows.Close()
	for rows.Next() {
		var number, cents int
		var order string
		check(rows.Scan(&number, &order, &cents))
		fmt.Fprintf(out, "  invoice %d  %s  %4d cents\n", number, order, cents)
	}
	check(rows.Err())
}
