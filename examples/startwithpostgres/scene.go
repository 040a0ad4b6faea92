package main

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/scene"
	"github.com/onceq/onceq/internal/child"
)

// This file owns the scene: processes of the shop that are killed with kill -9, and the count at
// the end. run calls it, from one goroutine.

// assignment is what a process of the shop is told.
type assignment struct {
	Database, Queue string // URLs
	Role            string // sell or work
}

const (
	sellers = 4 // goroutines of a process that sells
	kills   = 3 // of each role
)

// play is a process of the shop, until ctx ends.
func play(ctx context.Context, a assignment) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // who is killed all the time has much to tell
	s, err := open(ctx, a.Database, a.Queue)
	if err != nil {
		return err
	}
	defer s.close()
	if a.Role == "work" {
		child.Tell("working")
		return s.work(ctx)
	}
	var all sync.WaitGroup
	for range sellers {
		all.Go(func() {
			for ctx.Err() == nil {
				id := rand.Text()
				child.Tell("placing %s", id)
				if s.place(ctx, id) != nil { // a customer would be told to try again
					<-time.After(mathrand.N(10 * time.Millisecond))
				}
			}
		})
	}
	all.Wait()
	return nil
}

// tally is what came of the orders.
type tally struct {
	scene.Tally
	where string
}

// killed lets processes sell and work, kills them in turn, and counts when all is quiet.
func killed(ctx context.Context, a assignment, errs io.Writer) (t tally, err error) {
	s, err := open(ctx, a.Database, a.Queue)
	if err != nil {
		return t, err
	}
	defer s.close()
	sell, work := a, a
	sell.Role, work.Role = "sell", "work"
	err = scene.Killed(ctx, errs, kills, []assignment{sell, work}, func() error { return scene.Quiet(ctx, s.queue, s.jobs) })
	if err != nil {
		return t, err
	}
	if d, ok := broker.As[broker.Describer](s.jobs); ok {
		t.where = d.Describe().System
	}
	err = s.db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM orders),
		(SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM invoices i WHERE i.order_id = o.id)),
		(SELECT count(*) FROM invoices i WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = i.order_id)),
		(SELECT count(*) FROM (SELECT 1 FROM invoices GROUP BY order_id HAVING count(*) > 1) AS x)`).
		Scan(&t.Orders, &t.Lost, &t.Ghosts, &t.Twice)
	return t, err
}
