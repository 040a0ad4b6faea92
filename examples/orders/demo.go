package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/examples/internal/shop"
)

// demo is one run.
type demo struct {
	o           *shop.Settings
	rows        []shop.Row
	corrections shop.Corrections
	mended      atomic.Bool // the handler has been
	queue, dead *membroker.Broker
	plan        *plan
	counts      counts
	began       time.Time
}

// counts are what happened, seen from outside the workers.
type counts struct {
	sent, receives, beats, attempts, alreadyDone, inProgress atomic.Int64
}

// run sends the orders, lets the workers charge them and die, and asks the ledger what came of it.
func run(ctx context.Context, o *shop.Settings, s *shop.Screen) (*demo, *shop.Result, error) {
	d := &demo{o: o, began: time.Now()}
	r := &shop.Result{Settings: o, Crashes: d.crashes}
	err := d.run(ctx, s, r)
	n := &d.counts
	r.Orders, r.Sent, r.Receives, r.Beats = len(d.rows), int(n.sent.Load()), int(n.receives.Load()), int(n.beats.Load())
	r.Attempts, r.AlreadyDone, r.InProgress = int(n.attempts.Load()), int(n.alreadyDone.Load()), int(n.inProgress.Load())
	return d, r, err
}

func (d *demo) run(ctx context.Context, s *shop.Screen, r *shop.Result) error {
	o := d.o
	var err error
	if d.rows, err = shop.LoadOrders(o.Orders); err != nil {
		return err
	}
	if err := shop.MakeLedger(ctx, o.Ledger, o.Fresh); err != nil {
		return err
	}
	if r.Before, err = shop.AuditLedger(ctx, o.Ledger, d.rows, nil); err != nil {
		return err
	}
	if d.corrections, err = shop.LoadCorrections(o.Corrections, o.Orders == ""); err != nil {
		return err
	}
	if err := d.send(ctx); err != nil {
		return err
	}
	s.Start(o, len(d.rows), int(d.counts.sent.Load()), [2]string{"ledger", o.Ledger},
		[2]string{"workers", fmt.Sprintf("%d, of which %d will be killed while they work (-seed %d)", o.Workers, o.Crashes, o.Seed)})
	if err := d.work(ctx, s); err != nil {
		return err
	}
	if o.Naive {
		if r.Classes, r.Letters, err = shop.EmptyLetters(ctx, d.dead); err != nil {
			return err
		}
		r.Took = time.Since(d.began)
		r.After, err = shop.AuditLedger(ctx, o.Ledger, d.rows, r.Classes)
		return err
	}
	if r.Classes, r.Letters, err = shop.ListLetters(ctx, d.dead, len(d.rows)+1); err != nil {
		return err
	}
	if r.Mending, err = d.mend(ctx, s); err != nil {
		return err
	}
	r.Took = time.Since(d.began)
	if r.Left, _, err = shop.ListLetters(ctx, d.dead, len(d.rows)+1); err != nil {
		return err
	}
	r.After, err = shop.AuditLedger(ctx, o.Ledger, shop.Expected(d.rows, d.corrections), r.Left)
	return err
}

// crashes tells of them.
func (d *demo) crashes(t shop.Table) {
	past := d.plan.crashes()
	remark := ""
	if missed := d.o.Crashes - len(past); missed > 0 {
		remark = fmt.Sprintf("%d more were planned at points that no worker came to", missed)
	}
	t.Line("crashes", len(past), "%s", remark)
	t.List(shop.Tallied(past))
}

// send fills the queue. The seed shuffles the messages and plans the crashes.
func (d *demo) send(ctx context.Context) error {
	var err error
	if d.dead, err = membroker.New(&membroker.Options{Name: "dead letters"}); err != nil {
		return err
	}
	queue := membroker.Options{Name: "orders", Visibility: d.o.Visibility}
	points := allPoints
	if d.o.Naive {
		queue.Redrive = &membroker.Redrive{MaxReceives: shop.NaiveReceives, To: d.dead}
		points = simplePoints
	}
	if d.queue, err = membroker.New(&queue); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(d.o.Seed, 0))
	ms, err := shop.Messages(d.rows, rng)
	if err != nil {
		return err
	}
	d.plan = newPlan(rng, d.o.Crashes, len(ms), points)
	d.counts.sent.Store(int64(len(ms)))
	return onceq.Send(ctx, d.queue, ms)
}

// work runs the workers until the queue is empty: no message waits, is held, or will come back.
func (d *demo) work(ctx context.Context, s *shop.Screen) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var seats, bodies sync.WaitGroup
	for n := range d.o.Workers {
		seats.Go(func() {
			if err := d.seat(working, n+1, &bodies); err != nil {
				stop(err)
			}
		})
	}
	shop.UntilEmpty(working, stop, d.queue, 50*time.Millisecond, func(left int) {
		s.Progress(left, int(d.counts.sent.Load()), len(d.plan.crashes()), d.began)
	})
	seats.Wait()
	bodies.Wait()
	s.Clear()
	if err := context.Cause(working); !errors.Is(err, shop.ErrEmpty) {
		return err
	}
	return nil
}

// seat keeps one worker running: when it is killed, a new one takes its place after a short while.
func (d *demo) seat(ctx context.Context, n int, bodies *sync.WaitGroup) error {
	serve := d.serve
	if d.o.Naive {
		serve = d.serveNaive
	}
	for life := 1; ctx.Err() == nil; life++ {
		p := newProcess(fmt.Sprintf("worker %d, life %d", n, life), d.plan)
		ended := make(chan error, 1)
		bodies.Go(func() {
			running, cancel := p.alive(ctx)
			defer cancel()
			ended <- serve(running, p)
		})
		select {
		case err := <-ended:
			if !p.isDead() {
				return err
			}
		case <-p.life.Done():
		}
		_ = shop.Rest(ctx, d.o.Restart) // the loop asks ctx itself
	}
	return nil
}
