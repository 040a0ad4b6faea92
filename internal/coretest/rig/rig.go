package rig

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/rig"
)

// A Rig is one worker between a memory queue, its dead-letter queue and a memory store. Bubble runs
// a test on it in virtual time. The test's goroutine alone starts and stops the worker; handlers
// and observers run on others, so Seen and Logged have locks of their own.

// Rig is a queue, a dead-letter queue, a store and a worker, all of them watched.
type Rig struct {
	*testing.T
	Q      *Queue
	DLQ    *faulty.Broker
	Store  *Store
	Seen   *Seen
	Logged *Logged
	Cfg    Setup
	W      *onceq.Worker

	StopNow context.CancelFunc
	Done    chan error
	Began   time.Time // the rig
}

// Option changes a rig before its worker is made.
type Option func(*Rig)

func With(set func(c *Setup)) Option { return func(r *Rig) { set(&r.Cfg) } }

func Preset(p membroker.Preset) Option {
	return func(r *Rig) {
		r.Q = NewQueue(r.T, membroker.Options{Preset: p})
		r.DLQ = NewBroker(r.T, membroker.Options{Preset: p})
		r.Cfg.Broker, r.Cfg.DeadLetter = r.Q, r.DLQ
	}
}

func Most(attempts int) Option {
	return With(func(c *Setup) { c.Defaults.MaxAttempts = attempts })
}

func Parks(r *Rig) { r.Cfg.Defaults.Interrupted = dedupe.Park }

// Direct is a worker of one handler over a store that never waits: who has a run makes the store's
// calls, and no carrier does.
func Direct(r *Rig) {
	r.Store.IsInstant()
	r.Cfg.Concurrency = 1
}

// Warnings leaves out the line of each delivery: where days go by, there are too many.
func Warnings(r *Rig) {
	r.Cfg.Logger = slog.New(slog.NewTextHandler(r.Logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Steady makes the backoff a second, so that a test knows when the next attempt is due.
func Steady(r *Rig) {
	r.Cfg.Defaults.Backoff = func(int, error) time.Duration { return time.Second }
}

// Bubble runs f in virtual time, on a rig whose handler is h.
func Bubble(t *testing.T, h onceq.HandlerFunc, f func(r *Rig), options ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := New(t, h, options...)
		f(r)
		if r.Done != nil {
			if err := r.Stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		Pass(time.Minute) // for a beat that is still in flight
	})
}

// BothWays is Bubble, once more with a Direct worker.
func BothWays(t *testing.T, h onceq.HandlerFunc, f func(r *Rig), options ...Option) {
	t.Helper()
	Bubble(t, h, f, options...)
	t.Run("direct", func(t *testing.T) { Bubble(t, h, f, append(options[:len(options):len(options)], Direct)...) })
}

// Ways is BothWays, or Bubble where the faults wait, as those of an instant store must not.
func Ways(fs faulty.Faults) func(t *testing.T, h onceq.HandlerFunc, f func(r *Rig), options ...Option) {
	if Waits(fs) {
		return Bubble
	}
	return BothWays
}

func New(t *testing.T, h onceq.HandlerFunc, options ...Option) *Rig {
	t.Helper()
	r := &Rig{T: t, Q: NewQueue(t, membroker.Options{}), DLQ: NewBroker(t, membroker.Options{}), Store: NewStore(t), Seen: &Seen{}, Logged: &Logged{}}
	r.Cfg = Setup{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: h, Store: r.Store, Scope: Scope, Observer: r.Seen,
			Logger: slog.New(slog.NewTextHandler(r.Logged, &slog.HandlerOptions{Level: slog.LevelInfo})),
		},
		WorkerConfig: onceq.WorkerConfig{DeadLetter: r.DLQ},
		Broker:       r.Q,
	}
	for _, o := range options {
		o(r)
	}
	r.W = r.Worker(nil)
	r.Began = time.Now()
	return r
}

// Worker makes another worker on the rig's queue and store.
func (r *Rig) Worker(set func(c *Setup)) *onceq.Worker {
	r.Helper()
	c := r.Cfg
	if set != nil {
		set(&c)
	}
	w, err := NewWorker(c)
	if err != nil {
		r.Fatal(err)
	}
	return w
}

// Setup is all that one worker is made of.
type Setup struct {
	onceq.ProcessorConfig
	onceq.WorkerConfig
	Broker broker.Receiver
	Keeps  time.Duration // of Batches
}

func NewWorker(c Setup) (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(c.ProcessorConfig)
	if err != nil {
		return nil, err
	}
	return p.Worker(c.Broker, c.WorkerConfig)
}

// Batches takes deliveries on the same terms.
func (c *Setup) Batches() (*onceq.Batches, error) {
	p, err := onceq.NewProcessor(c.ProcessorConfig)
	if err != nil {
		return nil, err
	}
	return p.Batches(onceq.BatchConfig{DeadLetter: c.DeadLetter, Name: c.Name, HoldGroup: c.HoldGroup, Keeps: c.Keeps})
}

// Start runs the worker until stop.
func (r *Rig) Start() {
	ctx, cancel := context.WithCancel(r.Context())
	r.StopNow, r.Done = cancel, make(chan error, 1)
	go func() { r.Done <- r.W.Run(ctx) }()
}

// Stop ends the worker and gives what Run answered.
func (r *Rig) Stop() error {
	r.StopNow()
	err := <-r.Done
	r.Done = nil
	synctest.Wait()
	return err
}

// RunFor lets the worker run for d of virtual time.
func (r *Rig) RunFor(d time.Duration) {
	r.Helper()
	r.Start()
	Pass(d)
	if err := r.Stop(); err != nil {
		r.Fatalf("Run: %v", err)
	}
}

// Since is how much time has gone by on the rig.
func (r *Rig) Since() time.Duration { return time.Since(r.Began) }

// Send puts a message per text, "group/key" or "key"; the body is the key.
func (r *Rig) Send(texts ...string) {
	r.Helper()
	ms := make([]broker.Outgoing, len(texts))
	for i, s := range texts {
		group, key, ok := strings.Cut(s, "/")
		if !ok {
			group, key = "", s
		}
		ms[i] = Message(key)
		ms[i].Group = group
	}
	r.Put(ms...)
}

func Message(key string) broker.Outgoing {
	return broker.Outgoing{Body: []byte(key), Meta: &broker.Meta{Key: key}}
}

func (r *Rig) Put(ms ...broker.Outgoing) {
	r.Helper()
	if err := onceq.Send(r.Context(), r.Q.Broker, ms); err != nil {
		r.Fatal(err)
	}
}

// Record is what the store keeps for the key; the zero Record where there is none.
func (r *Rig) Record(k string) dedupe.Record {
	r.Helper()
	return r.Store.Record(Key(k))
}

func (r *Rig) WantStatus(k string, want dedupe.Status) {
	r.Helper()
	if got := r.Record(k).Status; got != want {
		r.Errorf("the record of %q is %v, want %v", k, got, want)
	}
}

// WantQueue checks how many messages are in the queue, in flight or not.
func (r *Rig) WantQueue(n int64) {
	r.Helper()
	if d := Depth(r.T, r.Q.Broker); d != n {
		r.Errorf("%d messages are in the queue, want %d", d, n)
	}
}

func Depth(t *testing.T, b *faulty.Broker) int64 {
	t.Helper()
	d, err := b.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d.Visible + d.InFlight + d.Delayed
}

// Letters takes all dead letters out of their queue.
func (r *Rig) Letters() []*broker.Message {
	r.Helper()
	return rig.TakeAll(r, r.DLQ)
}

// Letter is the one dead letter that there must be, of that class.
func (r *Rig) Letter(class string) *broker.Message {
	r.Helper()
	ms := r.Letters()
	if len(ms) != 1 {
		r.Fatalf("%d dead letters, want 1", len(ms))
	}
	m := ms[0]
	if m.Meta == nil || m.Meta.Dead == nil {
		r.Fatalf("the letter has no Dead: %+v", m)
	}
	if m.Meta.Dead.Class != class {
		r.Errorf("the letter's class is %q, want %q (%s)", m.Meta.Dead.Class, class, m.Meta.Dead.LastErr)
	}
	return m
}

// Replay sends a letter back as it is.
func (r *Rig) Replay(m *broker.Message) {
	r.Helper()
	if _, err := r.Q.Send(r.Context(), []broker.Outgoing{{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta, Group: m.Group}}); err != nil {
		r.Fatal(err)
	}
}

func (r *Rig) NoLetters() {
	r.Helper()
	if ms := r.Letters(); len(ms) > 0 {
		r.Errorf("%d dead letters, want none; the first: %+v", len(ms), ms[0].Meta.Dead)
	}
}

// WantOutcomes checks how the key's deliveries ended, in order.
func (r *Rig) WantOutcomes(k string, want ...string) {
	r.Helper()
	if got := r.Seen.Outcomes(k); !slices.Equal(got, want) {
		r.Errorf("the deliveries of %q ended as %q, want %q", k, got, want)
	}
}

// Seen keeps the job reports and counts the starts.
type Seen struct {
	Mu     sync.Mutex
	starts map[string]int
	Ends   []onceq.JobReport
}

func (s *Seen) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.starts == nil {
		s.starts = make(map[string]int)
	}
	s.starts[j.Key().Key]++
	return ctx
}

func (s *Seen) JobEnded(_ context.Context, r *onceq.JobReport) {
	s.Mu.Lock()
	s.Ends = append(s.Ends, *r)
	s.Mu.Unlock()
}

func (s *Seen) Started(k string) int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.starts[k]
}

func (s *Seen) Of(k string) (rs []onceq.JobReport) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, r := range s.Ends {
		if r.Key.Key == k {
			rs = append(rs, r)
		}
	}
	return rs
}

func (s *Seen) Outcomes(k string) (os []string) {
	for _, r := range s.Of(k) {
		os = append(os, string(r.Outcome))
	}
	return os
}

func Numbered(prefix string, n int) []string {
	ks := make([]string, n)
	for i := range ks {
		ks[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return ks
}

// ForEver is what a user writes who wants no end.
const ForEver = time.Duration(math.MaxInt64)

func NoStore(r *Rig) {
	r.Cfg.Store = onceq.NoStore
	if !r.Cfg.Broker.Limits().Attempts {
		r.Cfg.Defaults.MaxAttempts = -1
	}
}
