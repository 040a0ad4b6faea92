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
	"github.com/onceq/onceq/broker"
)

// options are the flags, and the times, which the tests make shorter.
type options struct {
	orders, ledger   string
	corrections      string
	seed             uint64
	crashes, workers int
	fresh, naive     bool

	visibility time.Duration // of a received message; the lease is as long
	bank       time.Duration // what the bank takes for an order
	slowBank   time.Duration // what it takes for a slow one
	restart    time.Duration // from a crash to the worker that takes its place
}

// demo is one run.
type demo struct {
	o           options
	rows        []row
	corrections map[string]correction
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
func run(ctx context.Context, o options, s *screen) (*result, error) {
	rows, err := loadOrders(o.orders)
	if err != nil {
		return nil, err
	}
	if err := makeLedger(ctx, o.ledger, o.fresh); err != nil {
		return nil, err
	}
	before, err := auditLedger(ctx, o.ledger, rows, nil)
	if err != nil {
		return nil, err
	}
	d := &demo{o: o, rows: rows, began: time.Now()}
	if d.corrections, err = loadCorrections(o.corrections, o.orders == ""); err != nil {
		return nil, err
	}
	if err := d.send(ctx); err != nil {
		return nil, err
	}
	s.start(d)
	if err := d.work(ctx, s); err != nil {
		return nil, err
	}
	r := &result{d: d, before: before}
	if o.naive {
		if r.classes, r.letters, err = d.letters(ctx); err != nil {
			return nil, err
		}
		r.took = time.Since(d.began)
		r.after, err = auditLedger(ctx, o.ledger, rows, r.classes)
		return r, err
	}
	if r.classes, r.letters, err = d.list(ctx); err != nil {
		return nil, err
	}
	if r.mending, err = d.mend(ctx, s); err != nil {
		return nil, err
	}
	r.took = time.Since(d.began)
	if r.left, _, err = d.list(ctx); err != nil {
		return nil, err
	}
	r.after, err = auditLedger(ctx, o.ledger, expected(rows, d.corrections), r.left)
	return r, err
}

// send fills the queue. The seed shuffles the messages and plans the crashes.
func (d *demo) send(ctx context.Context) error {
	var err error
	if d.dead, err = membroker.New(&membroker.Options{Name: "dead letters"}); err != nil {
		return err
	}
	queue := membroker.Options{Name: "orders", Visibility: d.o.visibility}
	points := allPoints
	if d.o.naive {
		queue.Redrive = &membroker.Redrive{MaxReceives: naiveReceives, To: d.dead}
		points = simplePoints
	}
	if d.queue, err = membroker.New(&queue); err != nil {
		return err
	}
	var ms []broker.Outgoing
	for _, r := range d.rows {
		body, err := r.body()
		if err != nil {
			return err
		}
		for range r.times {
			ms = append(ms, broker.Outgoing{Body: body, Meta: &broker.Meta{Type: "charge", Key: r.id}})
		}
	}
	rng := rand.New(rand.NewPCG(d.o.seed, 0))
	rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	d.plan = newPlan(rng, d.o.crashes, len(ms), points)
	d.counts.sent.Store(int64(len(ms)))
	return onceq.Send(ctx, d.queue, ms)
}

// work runs the workers until the queue is empty: no message waits, is held, or will come back.
func (d *demo) work(ctx context.Context, s *screen) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var seats, bodies sync.WaitGroup
	for n := range d.o.workers {
		seats.Go(func() {
			if err := d.seat(working, n+1, &bodies); err != nil {
				stop(err)
			}
		})
	}
	empty := errors.New("the queue is empty")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for working.Err() == nil {
		select {
		case <-working.Done():
		case <-tick.C:
		}
		depth, err := d.queue.Depth(context.WithoutCancel(ctx))
		if err != nil {
			stop(err)
			break
		}
		s.progress(d, depth)
		if depth == (broker.Depth{}) {
			stop(empty)
		}
	}
	seats.Wait()
	bodies.Wait()
	s.clear()
	if err := context.Cause(working); !errors.Is(err, empty) {
		return err
	}
	return nil
}

// seat keeps one worker running: when it is killed, a new one takes its place after a short while.
func (d *demo) seat(ctx context.Context, n int, bodies *sync.WaitGroup) error {
	serve := d.serve
	if d.o.naive {
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
		_ = rest(ctx, d.o.restart) // the loop asks ctx itself
	}
	return nil
}

// askBank takes its time, as banks do.
func (d *demo) askBank(ctx context.Context, o order) error {
	t := d.o.bank
	if o.Slow {
		t = d.o.slowBank
	}
	return rest(ctx, t)
}

// letters empties the dead-letter queue of a run without the library, where no letter says why it is one.
func (d *demo) letters(ctx context.Context) (classes map[string]string, n int, err error) {
	classes = make(map[string]string)
	for {
		ms, err := d.dead.Receive(ctx, broker.ReceiveOptions{Max: d.dead.Limits().ReceiveBatch})
		if err != nil || len(ms) == 0 {
			return classes, n, err
		}
		n += len(ms)
		for _, m := range ms {
			class := "unknown"
			if m.Meta.Dead != nil {
				class = m.Meta.Dead.Class
			}
			classes[m.Meta.Key] = class
		}
	}
}

// rest waits for d, or for the end of ctx, which it answers.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
