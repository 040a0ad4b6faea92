package otelonceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/values"
)

// This file owns what is read of queues, now and then: their depths (seats.go has what the store
// says). One goroutine for each call of Queues asks the brokers, now
// and then; a scrape only reads what was found, under mu. A broker that hangs has one question open
// at most, and holds up neither the others nor a scrape.

// The bounds and the default of QueueOptions.
const (
	defaultEvery   = 30 * time.Second
	minEvery       = time.Second
	maxEvery       = time.Hour
	defaultTimeout = 5 * time.Second
)

// Queues reads the depth of each queue, at once and then every QueueOptions.Every, in a goroutine
// of its own: never in a scrape. stop ends that; it may be called more than once. A queue whose
// depth could not be read for three rounds is left out of the metrics until it can. An error names
// the field and the queue.
func (t *Telemetry) Queues(o QueueOptions, qs ...Queue) (stop func(), err error) {
	o.Every, o.Timeout = cmp.Or(o.Every, defaultEvery), cmp.Or(o.Timeout, defaultTimeout)
	switch {
	case o.Every < minEvery || o.Every > maxEvery:
		return nil, fmt.Errorf("otelonceq: QueueOptions.Every is %v, want %v to %v", o.Every, minEvery, maxEvery)
	case o.Timeout < durations.Least:
		return nil, fmt.Errorf("otelonceq: QueueOptions.Timeout: %s", durations.AskUnit(o.Timeout))
	}
	d := &depths{t: t, o: o}
	seen := make(map[string]bool)
	for i, q := range qs {
		if values.IsNil(q.Broker) {
			return nil, fmt.Errorf("otelonceq: Queue.Broker of queue %d is nil", i)
		}
		q.Name = cmp.Or(q.Name, described(q.Broker).Name)
		if q.Name == "" {
			return nil, fmt.Errorf("otelonceq: Queue.Name of queue %d is empty, and its broker does not tell a name", i)
		}
		if label(q.DeadLetterOf) == label(q.Name) {
			return nil, fmt.Errorf("otelonceq: Queue.DeadLetterOf of queue %q is its own name", q.Name)
		}
		g := &gauge{Queue: q}
		of := label(q.Name)
		if q.DeadLetterOf != "" {
			of = "letters of " + label(q.DeadLetterOf)
			g.sets[0] = newSet(labelQueue.String(label(q.DeadLetterOf)))
		} else {
			for i, state := range []string{"visible", "in_flight", "delayed"} {
				g.sets[i] = newSet(labelQueue.String(of), labelState.String(state))
			}
		}
		if q.Store != nil && values.IsNil(q.Store) {
			return nil, fmt.Errorf("otelonceq: Queue.Store of queue %d is a nil pointer", i)
		}
		if seen[of] {
			return nil, fmt.Errorf("otelonceq: Queue.Name %q is given twice", q.Name)
		}
		seen[of] = true
		d.gauges = append(d.gauges, g)
	}
	r, err := t.meter.RegisterCallback(d.observe, t.m.depth, t.m.deadLetters, t.m.seats)
	if err != nil {
		return nil, err
	}
	for _, g := range d.gauges {
		if g.DeadLetterOf != "" {
			t.letters.add(label(g.Name), func() bool { return true })
		}
	}
	ctx, cancel := context.WithCancel(background)
	over := make(chan struct{})
	go func() {
		defer close(over)
		d.run(ctx)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-over
		for _, g := range d.gauges {
			t.setPauses(label(g.Name), nil)
		}
		if err := r.Unregister(); err != nil {
			t.log.LogAttrs(background, slog.LevelWarn, "otelonceq: the depths' callback stays registered", slog.Any("error", err))
		}
	}), nil
}

func (d *depths) run(ctx context.Context) {
	for {
		for _, g := range d.gauges {
			d.ask(ctx, g)
			if g.Store != nil {
				d.askStore(ctx, g)
			}
		}
		tenth := int64(d.o.Every / 10)
		pause := time.NewTimer(d.o.Every + time.Duration(rand.Int64N(2*tenth+1)-tenth))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// ask reads one depth, unless the last question is still open: a broker may ignore the end of its
// context.
func (d *depths) ask(ctx context.Context, g *gauge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reading {
		return
	}
	g.reading = true
	go func() {
		call, cancel := context.WithTimeout(ctx, d.o.Timeout)
		defer cancel()
		depth, err := depthOf(call, g.Broker)
		d.answered(ctx, g, depth, err)
	}()
}

// depthOf does not let a broker's panic end the program.
func depthOf(ctx context.Context, b broker.Depther) (_ broker.Depth, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("otelonceq: Depth panicked: %v", v)
		}
	}()
	return b.Depth(ctx)
}

func (d *depths) answered(ctx context.Context, g *gauge, depth broker.Depth, err error) {
	g.mu.Lock()
	changes := g.failing != (err != nil)
	g.reading, g.failing = false, err != nil
	if err == nil {
		g.depth, g.at = depth, time.Now()
	}
	g.mu.Unlock()
	switch {
	case !changes || ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case err != nil:
		d.t.log.LogAttrs(background, slog.LevelWarn, "otelonceq: the depth of a queue cannot be read", slog.String("queue", g.Name), slog.Any("error", err))
	default:
		d.t.log.LogAttrs(background, slog.LevelInfo, "otelonceq: the depth of a queue can be read again", slog.String("queue", g.Name))
	}
}

// observe is called by a scrape.
func (d *depths) observe(_ context.Context, o metric.Observer) error {
	for _, g := range d.gauges {
		g.mu.Lock()
		depth, fresh := g.depth, d.fresh(g.at)
		seats, seated := g.seats, d.fresh(g.seatsAt)
		g.mu.Unlock()
		if seated {
			o.ObserveInt64(d.t.m.seats, seats, d.t.queue(g.Name).of.obs)
		}
		switch {
		case !fresh:
		case g.DeadLetterOf != "":
			o.ObserveInt64(d.t.m.deadLetters, depth.Visible+depth.InFlight, g.sets[0].obs)
		default:
			for i, n := range []int64{depth.Visible, depth.InFlight, depth.Delayed} {
				o.ObserveInt64(d.t.m.depth, n, g.sets[i].obs)
			}
		}
	}
	return nil
}
