package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// books is the warehouse's database behind a network that can hold a call back.
type books struct {
	db   *sql.DB
	mu   sync.Mutex
	next *held
}

// held is a call on its way.
type held struct {
	free, arrived chan struct{}
	changed       int64
}

// holdNext holds the next call back until it is told to arrive.
func (b *books) holdNext() *held {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = &held{free: make(chan struct{}), arrived: make(chan struct{})}
	return b.next
}

// arrive lets the call arrive, long after its caller has given up, and answers how many rows it changed.
func (h *held) arrive() int64 {
	close(h.free)
	<-h.arrived
	return h.changed
}

// exec answers how many rows were changed. When ctx ends it returns; the call may arrive all the same.
func (b *books) exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	b.mu.Lock()
	h := b.next
	b.next = nil
	b.mu.Unlock()
	if h != nil {
		go func() {
			defer close(h.arrived)
			<-h.free
			h.changed, _ = b.send(context.WithoutCancel(ctx), query, args)
		}()
		<-ctx.Done()
		return 0, fmt.Errorf("no answer from the warehouse: %w", ctx.Err())
	}
	return b.send(ctx, query, args)
}

func (b *books) send(ctx context.Context, query string, args []any) (int64, error) {
	res, err := b.db.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
