package onceq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/retry"
)

const scope = "test"

var errBoom = errors.New("boom")

// rig is a queue, a dead-letter queue, a store and a worker, all of them watched.
type rig struct {
	*testing.T
	q     *queue
	dlq   *faulty.Broker
	store *store
	seen  *seen
	log   *logged
	cfg   setup
	w     *onceq.Worker

	stopNow context.CancelFunc
	done    chan error
	began   time.Time // the rig
}

// option changes a rig before its worker is made.
type option func(*rig)

func with(set func(c *setup)) option { return func(r *rig) { set(&r.cfg) } }

func preset(p membroker.Preset) option {
	return func(r *rig) {
		r.q = newQueue(r.T, membroker.Options{Preset: p})
		r.dlq = newBroker(r.T, membroker.Options{Preset: p})
		r.cfg.Broker, r.cfg.DeadLetter = r.q, r.dlq
	}
}

func most(attempts int) option {
	return with(func(c *setup) { c.Defaults.MaxAttempts = attempts })
}

func parks(r *rig) { r.cfg.Defaults.Interrupted = dedupe.Park }

// warnings leaves out the line of each delivery: where days go by, there are too many.
func warnings(r *rig) {
	r.cfg.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// steady makes the backoff a second, so that a test knows when the next attempt is due.
func steady(r *rig) {
	r.cfg.Defaults.Backoff = func(int, error) time.Duration { return time.Second }
}

// bubble runs f in virtual time, on a rig whose handler is h.
func bubble(t *testing.T, h onceq.HandlerFunc, f func(r *rig), options ...option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, h, options...)
		f(r)
		if r.done != nil {
			if err := r.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		pass(time.Minute) // for a beat that is still in flight
	})
}

func newRig(t *testing.T, h onceq.HandlerFunc, options ...option) *rig {
	t.Helper()
	r := &rig{T: t, q: newQueue(t, membroker.Options{}), dlq: newBroker(t, membroker.Options{}), store: newStore(t), seen: &seen{}, log: &logged{}}
	r.cfg = setup{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: h, Store: r.store, Scope: scope, Observer: r.seen,
			Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		},
		WorkerConfig: onceq.WorkerConfig{DeadLetter: r.dlq},
		Broker:       r.q,
	}
	for _, o := range options {
		o(r)
	}
	r.w = r.worker(nil)
	r.began = time.Now()
	return r
}

// worker makes another worker on the rig's queue and store.
func (r *rig) worker(set func(c *setup)) *onceq.Worker {
	r.Helper()
	c := r.cfg
	if set != nil {
		set(&c)
	}
	w, err := newWorker(c)
	if err != nil {
		r.Fatal(err)
	}
	return w
}

// setup is all that one worker is made of.
type setup struct {
	onceq.ProcessorConfig
	onceq.WorkerConfig
	Broker broker.Receiver
}

func newWorker(c setup) (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(c.ProcessorConfig)
	if err != nil {
		return nil, err
	}
	return p.Worker(c.Broker, c.WorkerConfig)
}

// batches takes deliveries on the same terms.
func (c *setup) batches() (*onceq.Batches, error) {
	p, err := onceq.NewProcessor(c.ProcessorConfig)
	if err != nil {
		return nil, err
	}
	return p.Batches(onceq.BatchConfig{DeadLetter: c.DeadLetter, Name: c.Name, HoldGroup: c.HoldGroup})
}

func newBroker(t *testing.T, o membroker.Options) *faulty.Broker {
	t.Helper()
	b, err := membroker.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return &faulty.Broker{Broker: b}
}

// start runs the worker until stop.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.Context())
	r.stopNow, r.done = cancel, make(chan error, 1)
	go func() { r.done <- r.w.Run(ctx) }()
}

// stop ends the worker and gives what Run answered.
func (r *rig) stop() error {
	r.stopNow()
	err := <-r.done
	r.done = nil
	synctest.Wait()
	return err
}

// run lets the worker run for d of virtual time.
func (r *rig) run(d time.Duration) {
	r.Helper()
	r.start()
	pass(d)
	if err := r.stop(); err != nil {
		r.Fatalf("Run: %v", err)
	}
}

// since is how much time has gone by on the rig.
func (r *rig) since() time.Duration { return time.Since(r.began) }

// pass lets virtual time go by, and what happens in it. Only the test's own goroutine calls it.
func pass(d time.Duration) {
	retry.Rest(context.Background(), d)
	synctest.Wait()
}

// takes is a handler's work.
func takes(d time.Duration) {
	retry.Rest(context.Background(), d)
}

// send puts a message per text, "group/key" or "key"; the body is the key.
func (r *rig) send(texts ...string) {
	r.Helper()
	ms := make([]broker.Outgoing, len(texts))
	for i, s := range texts {
		group, key, ok := strings.Cut(s, "/")
		if !ok {
			group, key = "", s
		}
		ms[i] = message(key)
		ms[i].Group = group
	}
	r.put(ms...)
}

func message(key string) broker.Outgoing {
	return broker.Outgoing{Body: []byte(key), Meta: &broker.Meta{Key: key}}
}

func (r *rig) put(ms ...broker.Outgoing) {
	r.Helper()
	if err := onceq.Send(r.Context(), r.q.Broker, ms); err != nil {
		r.Fatal(err)
	}
}

func key(k string) dedupe.Key { return dedupe.Key{Scope: scope, Key: k} }

// record is what the store keeps for the key; the zero Record where there is none.
func (r *rig) record(k string) dedupe.Record {
	r.Helper()
	rs, err := r.store.Store.Get(r.Context(), []dedupe.Key{key(k)})
	if err != nil {
		r.Fatal(err)
	}
	if rs[0] == nil {
		return dedupe.Record{}
	}
	return *rs[0]
}

func (r *rig) wantStatus(k string, want dedupe.Status) {
	r.Helper()
	if got := r.record(k).Status; got != want {
		r.Errorf("the record of %q is %v, want %v", k, got, want)
	}
}

// wantQueue checks how many messages are in the queue, in flight or not.
func (r *rig) wantQueue(n int64) {
	r.Helper()
	if d := depth(r.T, r.q.Broker); d != n {
		r.Errorf("%d messages are in the queue, want %d", d, n)
	}
}

func depth(t *testing.T, b *faulty.Broker) int64 {
	t.Helper()
	d, err := b.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d.Visible + d.InFlight + d.Delayed
}

// letters takes all dead letters out of their queue.
func (r *rig) letters() (ms []*broker.Message) {
	r.Helper()
	for {
		got, err := r.dlq.Receive(r.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil {
			r.Fatal(err)
		}
		if len(got) == 0 {
			return ms
		}
		for _, m := range got {
			if err := r.dlq.Ack(r.Context(), []broker.Receipt{m.Receipt}); err != nil {
				r.Fatal(err)
			}
		}
		ms = append(ms, got...)
	}
}

// letter is the one dead letter that there must be, of that class.
func (r *rig) letter(class string) *broker.Message {
	r.Helper()
	ms := r.letters()
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

// replay sends a letter back as it is.
func (r *rig) replay(m *broker.Message) {
	r.Helper()
	if _, err := r.q.Send(r.Context(), []broker.Outgoing{{Body: m.Body, Attributes: m.Attributes, Meta: m.Meta, Group: m.Group}}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) noLetters() {
	r.Helper()
	if ms := r.letters(); len(ms) > 0 {
		r.Errorf("%d dead letters, want none; the first: %+v", len(ms), ms[0].Meta.Dead)
	}
}

// wantOutcomes checks how the key's deliveries ended, in order.
func (r *rig) wantOutcomes(k string, want ...string) {
	r.Helper()
	if got := r.seen.outcomes(k); !slices.Equal(got, want) {
		r.Errorf("the deliveries of %q ended as %q, want %q", k, got, want)
	}
}

// seen keeps the timing records and counts the starts.
type seen struct {
	mu     sync.Mutex
	starts map[string]int
	ends   []onceq.TimingRecord
}

func (s *seen) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts == nil {
		s.starts = make(map[string]int)
	}
	s.starts[j.Key().Key]++
	return ctx
}

func (s *seen) JobEnded(_ context.Context, r *onceq.TimingRecord) {
	s.mu.Lock()
	s.ends = append(s.ends, *r)
	s.mu.Unlock()
}

func (s *seen) started(k string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[k]
}

func (s *seen) of(k string) (rs []onceq.TimingRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.ends {
		if r.Key.Key == k {
			rs = append(rs, r)
		}
	}
	return rs
}

func (s *seen) outcomes(k string) (os []string) {
	for _, r := range s.of(k) {
		os = append(os, string(r.Outcome))
	}
	return os
}

// logged keeps the lines of a log.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// count is how many lines hold all the texts.
func (l *logged) count(texts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}

func newStore(t *testing.T) *store {
	t.Helper()
	st, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &store{Store: st, t: t}
}

func numbered(prefix string, n int) []string {
	ks := make([]string, n)
	for i := range ks {
		ks[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return ks
}
