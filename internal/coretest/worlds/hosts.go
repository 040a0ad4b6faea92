package worlds

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/instant"
)

// This file owns what runs on machines: workers, functions that take batches, and relays. Each runs
// in a goroutine of its own, on one machine after the other.

// live runs one machine after the other until ctx ends. Some are drained, some crash.
func (w *world) live(ctx context.Context, what func(context.Context, *Machine)) {
	for ctx.Err() == nil {
		m := NewMachine(w.t, w.q, w.st, &w.weather, w.storeFault)
		m.QueueFault, m.book = w.queueFault, w.book
		w.mu.Lock()
		w.born++
		m.name = fmt.Sprint("host-", w.born)
		w.mu.Unlock()
		if instant.Is(w.st) && w.n(3) == 0 {
			m.Direct()
			m.name += "-direct"
			w.count("direct")
		}
		if w.clocks && w.n(3) == 0 {
			m.ahead = w.draw(2*skew) - skew
		}
		if w.carries {
			m.MaxNack = time.Minute
		}
		run, end := context.WithTimeout(ctx, time.Duration(3+w.n(120))*time.Second)
		if w.isCalm() {
			end()
			run, end = context.WithCancel(ctx)
		}
		m.drain = end
		w.up(m)
		crash := time.AfterFunc(time.Duration(3+w.n(60))*time.Second, func() {
			if w.mishap(60) {
				m.dead.Store(true)
				end()
			}
		})
		what(run, m)
		crash.Stop()
		w.down(m)
		end()
	}
}

// processor is that of a host.
func (w *world) processor(m *Machine, h onceq.Handler) onceq.ProcessorConfig {
	c := onceq.ProcessorConfig{
		Handler: h, Store: m.Store, Scope: rig.Scope, Owner: m.name, Queue: queue, Logger: w.book.logger(m.name),
		Lease: 12 * time.Second, SettleTimeout: 4 * time.Second, CallTimeout: 2 * time.Second,
	}
	if c.Control.Every = -1; w.ruled {
		c.Control.Every = 10 * time.Second
		if w.isCalm() { // hours, in which nobody makes rules
			c.Control.Every = time.Minute
		}
	}
	return c
}

// host is a worker or, now and then, a function.
func (w *world) host(ctx context.Context, m *Machine) {
	if w.functions && !w.isCalm() && w.n(3) == 0 {
		w.function(ctx, m)
		return
	}
	c := onceq.WorkerConfig{
		DeadLetter:  m.Sender(w.dlq, "the letters"),
		Concurrency: m.slots(bulkMax + w.n(12)), Visibility: 12 * time.Second, DrainTimeout: w.draw(10 * time.Second),
	}
	if w.carries {
		c.Carry = &carried{m.Sender(w.q, "the queue, as a copy"), w}
	}
	w.runs(ctx, m, w.processor(m, w.mux(m)), c)
}

func (w *world) runs(ctx context.Context, m *Machine, pc onceq.ProcessorConfig, c onceq.WorkerConfig) {
	worker, err := rig.NewWorker(rig.Setup{ProcessorConfig: pc, WorkerConfig: c, Broker: m})
	if err != nil {
		w.t.Error(err)
		rig.Takes(time.Hour)
		return
	}
	if err := worker.Run(ctx); err != nil {
		if _, drained := errors.AsType[*onceq.DrainError](err); !drained {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// carried counts what is sent anew.
type carried struct {
	broker.Sender
	w *world
}

func (c *carried) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	c.w.count("copies")
	return c.Sender.Send(ctx, ms)
}

// relay sends on what is in the outbox.
func (w *world) relay(ctx context.Context, m *Machine) {
	m.q = w.outbox
	c := w.processor(m, onceq.Forward(m.Sender(w.q, "the queue")))
	c.Store, c.Scope, c.Queue, c.Control = onceq.NoStore, "outbox", "", onceq.ControlOptions{}
	w.runs(ctx, m, c, onceq.WorkerConfig{
		DeadLetter: onceq.KeepInQueue, Concurrency: 10 + w.n(20), Visibility: 12 * time.Second, DrainTimeout: w.draw(10 * time.Second),
	})
}

// function receives batches and hands them over, as a Lambda function's runtime does. Nobody
// extends a delivery: it ends when its visibility does.
func (w *world) function(ctx context.Context, m *Machine) {
	m.function = true
	p, err := onceq.NewProcessor(w.processor(m, w.mux(m)))
	if err != nil {
		w.t.Error(err)
		return
	}
	b, err := p.Batches(onceq.BatchConfig{DeadLetter: m.Sender(w.dlq, "the letters")})
	if err != nil {
		w.t.Error(err)
		return
	}
	for ctx.Err() == nil {
		lasts := 15*time.Second + w.draw(time.Minute)
		ms, err := m.Receive(ctx, broker.ReceiveOptions{Max: 1 + w.n(10), Wait: 5 * time.Second, Visibility: lasts})
		if err != nil || len(ms) == 0 {
			rig.Takes(w.draw(time.Second))
			continue
		}
		w.batch(ctx, m, b, ms)
	}
}

func (w *world) batch(ctx context.Context, m *Machine, b *onceq.Batches, ms []*broker.Message) {
	w.count("batches")
	ds := make([]onceq.Delivery, len(ms))
	last := time.Time{}
	for i, x := range ms {
		ds[i] = onceq.Delivery{Message: x, Until: x.Deadline}
		if x.Deadline.After(last) {
			last = x.Deadline
		}
	}
	o := &onceq.BatchOptions{Concurrency: m.slots(w.n(len(ms) + 1)), OneLease: w.n(3) == 0, Unordered: !w.q.Limits().OrderedGroups}
	if w.n(2) == 0 {
		o.Deadline, o.MinTime = last.Add(-w.draw(10*time.Second)), w.draw(3*time.Second)
	}
	if w.n(3) == 0 {
		o.Outage = time.Second + w.draw(5*time.Second)
	}
	var mu sync.Mutex
	told := make([]int, len(ms))
	var acks []broker.Receipt
	var nacks []broker.Hold
	b.Process(ctx, ds, o, func(i int, d onceq.Disposition) {
		mu.Lock()
		defer mu.Unlock()
		told[i]++
		switch d.Action {
		case onceq.Ack:
			acks = append(acks, ms[i].Receipt)
		case onceq.Nack:
			nacks = append(nacks, broker.Hold{Receipt: ms[i].Receipt, For: min(d.Delay, m.Limits().MaxNack)})
		case onceq.Leave:
		}
	})
	mu.Lock()
	defer mu.Unlock()
	for i, n := range told {
		if n != 1 && ms[i].Meta != nil {
			w.wrong(ms[i].Meta.Key, "was one of a batch, which told %d times how it ended", n)
		}
	}
	if late := time.Since(last); late > time.Second && !m.stood.Load() {
		w.t.Errorf("%s: a batch went on for %v behind its last delivery's end", m.name, late)
	}
	// What the queue does not take comes again.
	if len(acks) > 0 {
		_ = m.Ack(ctx, acks)
	}
	if len(nacks) > 0 {
		_ = m.Nack(ctx, nacks)
	}
}
