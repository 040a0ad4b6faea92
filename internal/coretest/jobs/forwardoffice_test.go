package jobs

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// office is an outbox, its relays, its destination, and a worker there that keeps a ledger.
type office struct {
	*testing.T
	box  *rig.Queue
	dest *faulty.Broker
	dead *faulty.Broker // the destination's letters
	st   *rig.Store
	log  *rig.Logged

	relays []*relayed
	stop   context.CancelFunc
	done   chan error

	mu      sync.Mutex
	effects map[string]int
	order   map[string][]string // by group
}

// relayed is one relay, in a process of its own.
type relayed struct {
	*onceqtest.Process
	stop context.CancelFunc
	done chan error
	once sync.Once
}

// inOffice runs f in virtual time, and lets all end after it.
func inOffice(t *testing.T, f func(o *office), presets ...membroker.Preset) {
	t.Helper()
	p := append(presets, membroker.Memory)[0]
	synctest.Test(t, func(t *testing.T) {
		o := &office{
			T: t, box: rig.NewQueue(t, membroker.Options{Preset: membroker.Memory}), dest: rig.NewBroker(t, membroker.Options{Preset: p}),
			dead: rig.NewBroker(t, membroker.Options{Preset: p}), st: rig.NewStore(t), log: &rig.Logged{},
			effects: make(map[string]int), order: make(map[string][]string),
		}
		f(o)
		for _, r := range o.relays {
			r.end()
		}
		if o.stop != nil {
			o.stop()
			if err := <-o.done; err != nil {
				t.Error(err)
			}
		}
		rig.Pass(time.Minute)
	})
}

func (r *relayed) end() {
	r.stop()
	r.once.Do(func() { <-r.done })
}

// config is a relay's, to the destination as the process sees it.
func (o *office) config(p *onceqtest.Process) rig.Setup {
	return rig.Setup{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.Forward(p.Producer(o.dest)), Store: onceq.NoStore, Scope: "outbox",
			Logger: slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		},
		WorkerConfig: onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 200},
		Broker:       p.Receiver(o.box),
	}
}

// relay starts a relay whose calls go wrong as the faults say.
func (o *office) relay(set func(c *rig.Setup), faults ...onceqtest.Fault) *relayed {
	o.Helper()
	r := &relayed{Process: new(onceqtest.Process), done: make(chan error, 1)}
	r.At(faults...)
	c := o.config(r.Process)
	if set != nil {
		set(&c)
	}
	w := must.Get(rig.NewWorker(c))
	ctx, stop := context.WithCancel(r.Context(o.Context()))
	r.stop = stop
	go func() { r.done <- w.Run(ctx) }()
	o.relays = append(o.relays, r)
	return r
}

// work starts the destination's worker.
func (o *office) work(set func(c *rig.Setup)) {
	o.Helper()
	c := rig.Setup{
		ProcessorConfig: onceq.ProcessorConfig{
			Scope: "orders", Store: o.st, Logger: slog.New(slog.DiscardHandler),
			Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.effects[j.Key().Key]++
				o.order[j.Message.Group] = append(o.order[j.Message.Group], j.Key().Key)
				return nil
			}),
		},
		WorkerConfig: onceq.WorkerConfig{DeadLetter: o.dead, Concurrency: 20},
		Broker:       o.dest,
	}
	if set != nil {
		set(&c)
	}
	w := must.Get(rig.NewWorker(c))
	ctx, stop := context.WithCancel(o.Context())
	o.stop, o.done = stop, make(chan error, 1)
	go func() { o.done <- w.Run(ctx) }()
}

// put puts a message per text into the outbox, as rig.send does.
func (o *office) put(texts ...string) {
	o.Helper()
	(&rig.Rig{T: o.T, Q: o.box}).Send(texts...)
}

func (o *office) post(ms ...broker.Outgoing) {
	o.Helper()
	(&rig.Rig{T: o.T, Q: o.box}).Put(ms...)
}

// wantOnce checks that each key had its effect once, no other key had one, and nothing is left.
func (o *office) wantOnce(ks ...string) {
	o.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range ks {
		if n := o.effects[k]; n != 1 {
			o.Errorf("%q had %d effects, want one", k, n)
		}
	}
	if len(o.effects) != len(ks) {
		o.Errorf("%d keys had effects, want %d: %v", len(o.effects), len(ks), o.effects)
	}
	if n := rig.Depth(o.T, o.box.Broker); n != 0 {
		o.Errorf("%d messages are left in the outbox", n)
	}
	if n := rig.Depth(o.T, o.dest); n != 0 {
		o.Errorf("%d messages are left at the destination", n)
	}
}

// wantOrder checks that the group's jobs were done in the order of their keys.
func (o *office) wantOrder(group string) {
	o.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if ks := o.order[group]; !slices.IsSorted(ks) {
		o.Errorf("group %q was done in the order %v", group, ks)
	}
}

// arrived takes what is at the destination.
func (o *office) arrived() []*broker.Message {
	o.Helper()
	return (&rig.Rig{T: o.T, DLQ: o.dest}).Letters()
}

// sends is how many calls of Send the relay made.
func (r *relayed) sends() int { return r.Calls(onceqtest.Send) }
