package operating

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// These hide what they decorate, but for its Unwrap, as decorators for traces do.
type (
	decoratedStore  struct{ dedupe.Store }
	decoratedSender struct{ broker.Sender }
	decoratedQueue  struct{ broker.Receiver }
)

func (d decoratedStore) Unwrap() any  { return d.Store }
func (d decoratedSender) Unwrap() any { return d.Sender }
func (d decoratedQueue) Unwrap() any  { return d.Receiver }

// sweptStore is a store that counts its sweeps.
type sweptStore struct {
	*memstore.Store
	mu     sync.Mutex
	sweeps int
}

func (s *sweptStore) Sweep(context.Context, int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeps++
	return 0, nil
}

func TestDecoratedStoreIsSwept(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		inner := must.Get(memstore.New(nil))
		s := &sweptStore{Store: inner}
		r.W = r.Worker(func(c *rig.Setup) { c.Store, c.SweepEvery = decoratedStore{decoratedStore{s}}, time.Minute })
		r.RunFor(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sweeps == 0 {
			t.Error("it was never swept")
		}
	})
}

// TestDecoratedNoStore: what needs a store is refused as without the decorator.
func TestDecoratedNoStore(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		c := r.Cfg
		c.Store = decoratedStore{onceq.NoStore}
		c.Defaults.Interrupted = dedupe.Park
		if _, err := onceq.NewProcessor(c.ProcessorConfig); err == nil {
			t.Error("Park without a store is taken")
		}
		c.Defaults.Interrupted = 0
		p, err := onceq.NewProcessor(c.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		_, err = onceq.Do(t.Context(), p, rig.Key("a"), nil, func(context.Context, *onceq.Job) (int, error) { return 0, nil })
		if !errors.Is(err, onceq.ErrNoStore) {
			t.Errorf("Do answered %v", err)
		}
	})
}

func TestDecoratedKeepInQueue(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Minute)
		r.WantQueue(1) // nothing was acked, and no letter was sent
		r.WantStatus("a", dedupe.Released)
	}, rig.With(func(c *rig.Setup) { c.DeadLetter = decoratedSender{onceq.KeepInQueue} }))
}

// TestDecoratedQueue: the queue itself is found as its own dead-letter queue, and tells its name.
func TestDecoratedQueue(t *testing.T) {
	q, err := membroker.New(&membroker.Options{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rig.Config(t)
	cfg.Broker, cfg.DeadLetter = decoratedQueue{q}, decoratedSender{q}
	_, err = rig.NewWorker(cfg)
	if bad, ok := errors.AsType[*onceq.ConfigError](err); !ok || bad.Field != "WorkerConfig.DeadLetter" {
		t.Errorf("the queue as its own dead-letter queue: %v", err)
	}
	for queue, want := range map[string]string{"": "orders", "mine": "mine"} {
		o := &eventful{}
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			q := must.Get(membroker.New(&membroker.Options{Name: "orders"}))
			r.W = r.Worker(func(c *rig.Setup) { c.Broker, c.Queue = decoratedQueue{q}, queue })
			r.RunFor(time.Second)
			if e := o.last(t, onceq.EventStarted); e.Queue != want {
				t.Errorf("the queue is %q, want %q", e.Queue, want)
			}
		}, observedBy(o))
	}
}
