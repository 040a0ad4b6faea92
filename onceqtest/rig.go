package onceqtest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns a Rig: its queues, its store, and a worker for each delivery. A test calls it from
// one goroutine. Kill and Process may be called from handlers too, so r.mu guards process, and
// nothing else.

// How long a delivery may take until its handler starts, and from then on. No queue hides a message
// for longer than half a day, so what has not ended after a whole day never will. Until the handler
// starts an hour must do: in an hour a worker claims a thousand times from a store that does not
// answer, and more would take too much of a test's time.
const (
	startPatience = time.Hour
	patience      = 24 * time.Hour
)

// Rig runs a worker's configuration one delivery at a time, on queues and a store in memory. Each
// delivery has a worker of its own, so that one can die and the next take over.
type Rig struct {
	// Queue and DeadLetters are the queues; Store keeps the keys.
	Queue, DeadLetters *membroker.Broker
	Store              dedupe.Store

	t       testing.TB
	c       onceq.ProcessorConfig
	w       onceq.WorkerConfig
	faults  []Fault
	mu      sync.Mutex
	process *Process
	last    *broker.Message
}

// Result is how a delivery went.
type Result struct {
	// JobReport is the worker's: outcome, attempt, fence, error class, times. When the worker
	// died, its Outcome is "crashed", and its Key that of the claim.
	onceq.JobReport
	// Action is what became of the delivery, and Delay the nack's. Both are 0 when the worker died
	// before.
	Action onceq.Action
	Delay  time.Duration
	// Crashed reports whether the worker died.
	Crashed bool
	// Stored is what the store keeps now under the job's key; nil = nothing.
	Stored *dedupe.Record
	// Letters are the dead letters that this delivery put.
	Letters []*broker.Message
}

// New sets up a rig. c needs a Handler. Its Scope is "test" unless set, and its Store a new
// memstore unless set. w may be nil. Its DeadLetter is the rig's unless set; Result.Letters has
// only what goes to the rig's. The worker runs one message at a time, and prefetches none, whatever
// w says. A mistake in c or w ends the test.
func New(t testing.TB, c onceq.ProcessorConfig, w *onceq.WorkerConfig) *Rig {
	t.Helper()
	r := &Rig{t: t, c: c, Store: c.Store}
	if w != nil {
		r.w = *w
	}
	r.Queue, r.DeadLetters = r.queue("queue"), r.queue("dead letters")
	if r.Store == nil {
		s, err := memstore.New(nil)
		if err != nil {
			t.Fatalf("onceqtest: %v", err)
		}
		r.Store = s
	}
	r.c.Scope = cmp.Or(c.Scope, "test")
	r.w.Concurrency, r.w.Prefetch, r.w.Pollers = 1, -1, 1
	// onceq knows NoStore by its value, which a wrapper would hide.
	if _, err := r.worker(r.Store, new(Process), new(watch)); err != nil {
		t.Fatalf("onceqtest: %v", err)
	}
	return r
}

func (r *Rig) queue(name string) *membroker.Broker {
	r.t.Helper()
	q, err := membroker.New(&membroker.Options{Name: name, Visibility: r.w.Visibility})
	if err != nil {
		r.t.Fatalf("onceqtest: %v", err)
	}
	return q
}

// worker makes the worker of one delivery.
func (r *Rig) worker(s dedupe.Store, p *Process, watched *watch) (*onceq.Worker, error) {
	c, w := r.c, r.w
	c.Store, c.Observer = s, &observer{c.Observer, watched, p}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler) // a test makes what it warns of on purpose
	}
	jobs, err := onceq.NewProcessor(c)
	if err != nil {
		return nil, err
	}
	switch w.DeadLetter {
	case nil:
		w.DeadLetter = p.Sender(r.DeadLetters)
	case onceq.KeepInQueue: // onceq knows it by its value
	default:
		w.DeadLetter = p.Sender(w.DeadLetter)
	}
	watched.Receiver = r.Queue
	return jobs.Worker(p.Receiver(watched), w)
}

// Send puts messages into the queue, as onceq.Send does.
func (r *Rig) Send(ms ...broker.Outgoing) {
	r.t.Helper()
	if err := onceq.Send(r.t.Context(), r.Queue, ms); err != nil {
		r.t.Fatalf("onceqtest: Send: %v", err)
	}
}

// SendBare puts messages into the queue as a producer does that does not use onceq: they have these
// bodies, and no metadata. So ProcessorConfig.Key has to find their keys. Send would give each
// message an id and a key of its own, and Key would meet those.
func (r *Rig) SendBare(bodies ...string) {
	r.t.Helper()
	ms := make([]broker.Outgoing, len(bodies))
	for i, b := range bodies {
		ms[i].Body = []byte(b)
	}
	if _, err := r.Queue.Send(r.t.Context(), ms); err != nil {
		r.t.Fatalf("onceqtest: SendBare: %v", err)
	}
}

// At lets calls of the next delivery's worker go wrong, as the Faults say. The calls are counted
// from the beginning of that delivery. A fault that befalls no call of it fails the test. One that
// could change nothing ends the test at once: it has no Kind, or its Kind needs a Delay.
func (r *Rig) At(fs ...Fault) {
	r.t.Helper()
	for _, f := range fs {
		if err := f.check(); err != nil {
			r.t.Fatalf("%v", err)
		}
	}
	r.faults = append(r.faults, fs...)
}

// Kill lets the worker die now. A handler calls it, in the middle of its work. The handler's
// context ends, and with it a transaction of database/sql that was begun with it.
//
// The handler's goroutine goes on, as no real one would, and so does a call that is under way. Any
// other database of the user's is no part of the rig, so a transaction that the handler still
// commits there goes through. Return at once and roll back. Or let the database's connections end
// with the process: [Rig.Process] leads to [Process.OnDeath].
//
// Before the first delivery there is no worker that could die, and Kill ends the test.
func (r *Rig) Kill() {
	r.t.Helper()
	p := r.Process()
	if p == nil {
		r.t.Fatalf("onceqtest: Kill: no worker has been started yet; call Kill in the handler, while Deliver runs it")
	}
	p.Kill()
}

// Process is the process of the present delivery's worker, or of the last one's; nil before the
// first. Through it a handler ends things with the process, and makes its own calls the process's.
func (r *Rig) Process() *Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// Advance lets time pass. In a synctest bubble that takes no time.
func (r *Rig) Advance(d time.Duration) { retry.Rest(context.Background(), d) }

// Deliver lets a new worker receive the next message that is visible. It returns when the message
// is acked, given back or left, or when the worker is dead. It ends the test:
//
//   - when no message is visible;
//   - when the handler has not been started after an hour;
//   - when the delivery has not ended 24 h after the handler's start.
//
// In the last two cases the test is told the last error of the store or the broker, because a
// worker repeats for ever what they do not answer. Outside a synctest bubble those hours are real
// ones, and the test's own timeout comes first.
func (r *Rig) Deliver() Result {
	r.t.Helper()
	ms, err := r.Queue.Receive(r.t.Context(), broker.ReceiveOptions{Max: 1, Visibility: r.w.Visibility})
	if err != nil || len(ms) != 1 {
		r.t.Fatalf("onceqtest: Deliver: no message is visible (error: %v)", err)
	}
	return r.deliver(ms[0])
}

// Redeliver delivers the last message once more, even after its ack, because a queue may do so at
// any time. It waits as Deliver does.
func (r *Rig) Redeliver() Result {
	r.t.Helper()
	if r.last == nil {
		r.t.Fatalf("onceqtest: Redeliver: nothing has been delivered yet")
	}
	m := *r.last
	m.Meta = m.Meta.Clone()
	m.Attempt++
	m.Deadline = time.Now().Add(cmp.Or(r.w.Visibility, onceq.DefaultVisibility))
	return r.deliver(&m)
}

func (r *Rig) deliver(m *broker.Message) Result {
	r.t.Helper()
	copied := *m
	copied.Meta = m.Meta.Clone()
	r.last = &copied
	begun, overdue := time.Now(), time.NewTimer(startPatience)
	defer overdue.Stop()
	p, w := new(Process), &watch{next: m, ended: make(chan onceq.JobReport, 1), overdue: overdue}
	p.At(r.faults...)
	r.faults = nil
	r.mu.Lock()
	r.process = p
	r.mu.Unlock()
	before := make(map[string]bool)
	for _, l := range r.letters() {
		before[l.ID] = true
	}
	worker, err := r.worker(p.Store(r.Store), p, w)
	if err != nil {
		r.t.Fatalf("onceqtest: %v", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() { defer close(ended); done <- worker.Run(ctx) }()
	// A dead worker goes on in vain for a while, and a bubble must not end before it.
	r.t.Cleanup(func() { <-ended })

	var got Result
	select {
	case got.JobReport = <-w.ended:
		stop()
		select {
		case err := <-done:
			if err != nil && !isDead(p) {
				r.t.Errorf("onceqtest: Worker.Run: %v", err)
			}
		case <-p.Dead():
		}
	case <-p.Dead():
		stop()
	case <-overdue.C:
		stop()
		r.t.Fatalf("onceqtest: the delivery has not ended after %v; %s", time.Since(begun).Round(time.Second), lastWord(p))
	}
	if got.Crashed = isDead(p); got.Crashed {
		got.Outcome = "crashed"
	}
	got.Action, got.Delay = w.disposed()
	for _, l := range r.letters() {
		if !before[l.ID] {
			got.Letters = append(got.Letters, l)
		}
	}
	for _, f := range p.Missed() {
		r.t.Errorf("onceqtest: the worker did not come by %q%s", f.String(), when(f.Op))
	}
	claimed, _ := p.seen()
	got.Key = cmp.Or(got.Key, claimed)
	got.Stored = r.stored(got.Key, &copied)
	return got
}

// lastWord says what may be the matter.
func lastWord(p *Process) string {
	if _, err := p.seen(); err != nil {
		return "the last error was of " + err.Error()
	}
	return "no call of the store or the broker has failed: is it the handler?"
}

// when says which deliveries call op, where not all of them do.
func when(op Op) string {
	if op == Start {
		return ": it occurs under Park only"
	}
	return ""
}

func isDead(p *Process) bool {
	select {
	case <-p.Dead():
		return true
	default:
		return false
	}
}

// letters looks at the dead letters and puts them back.
func (r *Rig) letters() (ms []*broker.Message) {
	r.t.Helper()
	for {
		batch, err := r.DeadLetters.Receive(r.t.Context(), broker.ReceiveOptions{Max: 100})
		if err != nil {
			r.t.Fatalf("onceqtest: dead letters: %v", err)
		}
		if len(batch) == 0 {
			break
		}
		ms = append(ms, batch...)
	}
	for from := 0; from < len(ms); from += 100 {
		var back []broker.Hold
		for _, m := range ms[from:min(from+100, len(ms))] {
			back = append(back, broker.Hold{Receipt: m.Receipt})
		}
		if err := r.DeadLetters.Nack(r.t.Context(), back); err != nil {
			r.t.Fatalf("onceqtest: dead letters: %v", err)
		}
	}
	return ms
}

func (r *Rig) stored(k dedupe.Key, m *broker.Message) *dedupe.Record {
	r.t.Helper()
	if k.Key == "" && m.Meta != nil {
		k = dedupe.Key{Scope: r.c.Scope, Key: cmp.Or(m.Meta.Key, m.Meta.ID)}
	}
	if k.Validate() != nil {
		return nil
	}
	rs, err := r.Store.Get(r.t.Context(), []dedupe.Key{k})
	if errors.Is(err, onceq.ErrNoStore) {
		return nil
	}
	if err != nil {
		r.t.Fatalf("onceqtest: Store.Get: %v", err)
	}
	return rs[0]
}
