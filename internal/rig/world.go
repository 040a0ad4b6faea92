package rig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// This file owns the world of a cloud's driver: a queue behind a fake server, and a store in
// memory, between which workers come, go and die. The driver says how a process opens its queues.
// Handlers write what they did under Mu; tests read it there, or when no worker is left.

// World is a store and what workers did on it, in virtual time.
type World struct {
	*testing.T
	Store *memstore.Store
	Log   Log
	// Queues opens a process's own ends of the queue and of its dead-letter queue.
	Queues func(p *onceqtest.Process) (queue, letters broker.Broker)
	// Sender is the test's own end of the queue.
	Sender broker.Sender
	// Set changes what each worker is made of, before the test does. May be nil.
	Set func(c *Config)

	Mu               sync.Mutex
	Started, Effects map[string]int   // by key
	Cancelled        map[string]error // how the context of a key's handler ended, if it did
	Order            []string         // the keys, as they had their effects
}

// Config is what a worker is made of, beside its queue.
type Config struct {
	onceq.ProcessorConfig
	onceq.WorkerConfig
}

// NewWorld has no queues yet.
func NewWorld(t *testing.T) *World {
	t.Helper()
	st := must.Get(memstore.New(nil))
	return &World{T: t, Store: st, Started: make(map[string]int), Effects: make(map[string]int), Cancelled: make(map[string]error)}
}

// Worker is a process: when it dies, nothing that it does gets out any more.
type Worker struct {
	*onceqtest.Process
	Queue broker.Broker // its own end

	w    *World
	stop context.CancelFunc
	done chan error
}

// Work starts a worker. Its handler works first and has its effect then.
func (w *World) Work(h onceq.HandlerFunc, set func(c *Config)) *Worker {
	w.Helper()
	p := &Worker{Process: new(onceqtest.Process), w: w, done: make(chan error, 1)}
	var letters broker.Broker
	p.Queue, letters = w.Queues(p.Process)
	c := Config{onceq.ProcessorConfig{
		Handler: p.handler(h), Store: p.Store(w.Store), Scope: "test", Owner: fmt.Sprintf("%p", p), Logger: w.Log.Logger(),
	}, onceq.WorkerConfig{DeadLetter: letters}}
	for _, change := range []func(*Config){w.Set, set} {
		if change != nil {
			change(&c)
		}
	}
	processor := must.Get(onceq.NewProcessor(c.ProcessorConfig))
	worker := must.Get(processor.Worker(p.Queue, c.WorkerConfig))
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { p.done <- worker.Run(ctx) }()
	return p
}

func (p *Worker) handler(h onceq.HandlerFunc) onceq.HandlerFunc {
	w := p.w
	return func(ctx context.Context, j *onceq.Job) error {
		k := j.Key().Key
		w.Mu.Lock()
		w.Started[k]++
		w.Mu.Unlock()
		err := h(ctx, j)
		w.Mu.Lock()
		defer w.Mu.Unlock()
		if ctx.Err() != nil {
			w.Cancelled[k] = context.Cause(ctx)
		}
		if isDead(p.Process) || err != nil {
			return err
		}
		w.Effects[k]++
		w.Order = append(w.Order, k)
		return nil
	}
}

// isDead tells whether the process has died.
func isDead(p *onceqtest.Process) bool {
	select {
	case <-p.Dead():
		return true
	default:
		return false
	}
}

// Kill is kill -9.
func (p *Worker) Kill() {
	p.Process.Kill()
	p.stop()
}

// Drain ends the worker as its owner would.
func (p *Worker) Drain() {
	p.w.Helper()
	p.stop()
	if err := <-p.done; err != nil {
		p.w.Errorf("Run: %v", err)
	}
}

// Put sends jobs with these keys.
func (w *World) Put(group string, keys ...string) {
	w.Helper()
	ms := make([]broker.Outgoing, len(keys))
	for i, k := range keys {
		ms[i] = broker.Outgoing{Body: []byte(k), Meta: &broker.Meta{Key: k}, Group: group}
	}
	if err := onceq.Send(w.Context(), w.Sender, ms); err != nil {
		w.Fatal(err)
	}
}

// PutTens sends jobs whose keys are n numbers, each ten in a group of their own.
func (w *World) PutTens(n int) {
	w.Helper()
	for g := range n / 10 {
		w.Put(fmt.Sprint("g", g), Numbers(10*g, 10)...)
	}
}

// Numbers are n numbers from the first on, as texts.
func Numbers(first, n int) (s []string) {
	for i := range n {
		s = append(s, fmt.Sprint(first+i))
	}
	return s
}

// InOrder checks that the jobs of [World.PutTens] had their effects in the order of their groups.
func (w *World) InOrder() {
	w.Helper()
	next := map[int]int{}
	for _, k := range w.Order {
		n := must.Get(strconv.Atoi(k))
		if n%10 != next[n/10] {
			w.Fatalf("in group %d, %d came when %d was due", n/10, n%10, next[n/10])
		}
		next[n/10]++
	}
}

// Until waits for the condition, and looks each second.
func (w *World) Until(limit time.Duration, what string, met func() bool) {
	w.Helper()
	for end := time.Now().Add(limit); !met(); {
		if !time.Now().Before(end) {
			w.Fatalf("after %v not: %s\n%s", limit, what, w.Log.String())
		}
		Takes(time.Second)
	}
}

// AllDone is the condition that n jobs have had their effect.
func (w *World) AllDone(n int) func() bool {
	return func() bool {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		return len(w.Effects) == n
	}
}

// Once checks that each of n jobs has had its effect once.
func (w *World) Once(n int) {
	w.Helper()
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(w.Effects)) {
		if e := w.Effects[k]; e != 1 {
			w.Errorf("job %s had its effect %d times", k, e)
		}
	}
	if len(w.Effects) != n {
		w.Errorf("%d of %d jobs had their effect", len(w.Effects), n)
	}
}
