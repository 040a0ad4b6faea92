package letters

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/onceqtest"
)

var errDied = errors.New("the replayer died")

// mishap is what goes wrong with one call of a replayer.
type mishap struct {
	name         string
	applied, die bool
}

var mishaps = []mishap{
	{"dies before the call", false, true},
	{"dies after the call", true, true},
	{"the call fails", false, false},
	{"the reply is lost", true, false},
}

// replayer meets a mishap at its at-th call. After its death no call of it is applied any more, and
// nothing is handed back.
type replayer struct {
	mishap
	at   int
	stop context.CancelCauseFunc

	mu    sync.Mutex
	n     int
	dead  bool
	calls []string
}

func (r *replayer) call(name string, apply func() error) error {
	r.mu.Lock()
	r.n++
	r.calls = append(r.calls, name)
	struck, dead := r.n == r.at, r.dead
	r.dead = dead || struck && r.die
	r.mu.Unlock()
	if struck && r.die {
		r.stop(errDied)
	}
	if dead || struck && !r.applied {
		return errDied
	}
	if err := apply(); err != nil || !struck {
		return err
	}
	return errDied
}

// hands is a queue as a replayer sees it.
type hands struct {
	broker.Broker
	r *replayer
}

func (h hands) Receive(ctx context.Context, o broker.ReceiveOptions) (ms []*broker.Message, err error) {
	err = h.r.call("receive", func() (err error) { ms, err = h.Broker.Receive(ctx, o); return err })
	if err != nil {
		return nil, err
	}
	return ms, nil
}

func (h hands) Ack(ctx context.Context, rs []broker.Receipt) error {
	return h.r.call("ack", func() error { return h.Broker.Ack(ctx, rs) })
}

func (h hands) Nack(ctx context.Context, hs []broker.Hold) error {
	return h.r.call("nack", func() error { return h.Broker.Nack(ctx, hs) })
}

func (h hands) Extend(ctx context.Context, hs []broker.Hold) error {
	return h.r.call("extend", func() error { return h.Broker.Extend(ctx, hs) })
}

func (h hands) Send(ctx context.Context, ms []broker.Outgoing) (ids []string, err error) {
	err = h.r.call("send", func() (err error) { ids, err = h.Broker.Send(ctx, ms); return err })
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// ward is a rig with jobs that have failed, and what became of them since.
type ward struct {
	*rig.Rig
	mu     sync.Mutex
	mended bool
	again  map[string]bool // these fail once more when they are replayed
	ran    map[string]int  // how often a job had its effect
}

func (w *ward) handle(_ context.Context, j *onceq.Job) error {
	k := j.Key().Key
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.mended && strings.HasPrefix(k, "park"):
		panic("half done")
	case !w.mended:
		return onceq.Permanent(rig.ErrBoom)
	case w.again[k]:
		delete(w.again, k)
		return onceq.Permanent(rig.ErrBoom)
	}
	w.ran[k]++
	return nil
}

func (w *ward) set(mended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mended = mended
}

// newWard runs jobs until each is a letter: failed ones, parked ones, one whose record is
// forgotten, and one that the queue itself has moved. All but the last were sent twice, so there
// are copies.
func newWard(t *testing.T, p membroker.Preset) *ward {
	w := &ward{ran: make(map[string]int), again: make(map[string]bool)}
	w.Rig = rig.New(t, w.handle, rig.Preset(p), rig.Parks, rig.Steady, rig.Warnings)
	w.keys(func(k string) {
		if k != "native" {
			w.Send(k+"/"+k, k+"/"+k)
		}
	})
	w.RunFor(5 * time.Minute)
	w.WantQueue(0)
	native := rig.Message("native")
	native.Group, native.Meta.ID = "native", "native"
	if _, err := w.DLQ.Send(t.Context(), []broker.Outgoing{native}); err != nil {
		t.Fatal(err)
	}
	rec := w.Record("forgotten")
	if fs, err := w.Store.Store.Forget(t.Context(), []dedupe.Forgotten{{Key: rig.Key("forgotten"), Fence: rec.Fence}}); err != nil || fs[0] != nil {
		t.Fatal(fs, err)
	}
	w.WantStatus("park-0", dedupe.Parked)
	w.WantStatus("fail-0", dedupe.Failed)
	rig.Pass(time.Millisecond)
	w.set(true)
	return w
}

func (w *ward) keys(f func(k string)) {
	for i := range 6 {
		f(fmt.Sprint("fail-", i))
	}
	f("park-0")
	f("forgotten")
	f("native")
}

func (w *ward) open(b broker.Receiver) *dlq.Queue {
	return must.Get(dlq.New(b, &dlq.Options{Visibility: 10 * time.Second, Name: "dead"}))
}

// endPlan runs the replay of a plan once more, whole. Then each of its jobs has run, but for those
// that failed anew: these, and what was not in the plan, are still letters.
func (w *ward) endPlan(what string, o dlq.ReplayOptions) {
	w.Helper()
	o.To = w.Q
	// In a group that is ordered, copies of the letter that is not in the plan wait behind it.
	if rep, err := w.open(w.DLQ).Replay(w.Context(), o); err != nil && !errors.Is(err, dlq.ErrIncomplete) || len(rep.Failed) > 0 {
		w.Errorf("%s: the plan once more: %v, %v", what, err, rep)
	}
	rig.Pass(time.Minute)
	w.keys(func(k string) {
		want := 1
		if k == "fail-5" || !o.Ramp && (k == "fail-0" || k == "fail-1") {
			want = 0
		}
		if n := w.ran[k]; n != want {
			w.Errorf("%s: after the plan job %s had its effect %d times, want %d", what, k, n, want)
		}
	})
}

// cure replays until the dead-letter queue is empty.
func (w *ward) cure() {
	w.Helper()
	for range 5 {
		if rig.Depth(w.T, w.DLQ) == 0 {
			return
		}
		rig.Pass(time.Minute) // for what a dead replayer held
		if _, err := w.open(w.DLQ).Replay(w.Context(), dlq.ReplayOptions{To: w.Q}); err != nil {
			w.Fatal(err)
		}
		rig.Pass(time.Minute)
	}
	w.Errorf("%d letters are left", rig.Depth(w.T, w.DLQ))
}

// wantCured checks that each job had its effect once, and that nothing is left anywhere.
func (w *ward) wantCured(what string) {
	w.Helper()
	w.WantQueue(0)
	if n := rig.Depth(w.T, w.DLQ); n != 0 {
		w.Errorf("%s: %d letters are left", what, n)
	}
	w.keys(func(k string) {
		if n := w.ran[k]; n != 1 {
			w.Errorf("%s: job %s had its effect %d times", what, k, n)
		}
		if got := w.Record(k).Status; got != dedupe.Done {
			w.Errorf("%s: job %s is %v", what, k, got)
		}
	})
}

// Wherever a replay dies, and whatever call of it fails, nothing is lost and nothing is done twice:
// the next replay ends it.
func TestReplayDies(t *testing.T) { replayDies(t, plain) }

// The same with a plan. The plan that a dead replayer had is the one that ends it, and what is not
// in the plan stays until another replay.
func TestReplayOfAPlanDies(t *testing.T) { replayDies(t, ofPlan) }

// The same with batches that grow, by a plan that was made before.
func TestRampDies(t *testing.T) { replayDies(t, ramped) }

// kind is how a replay is done.
type kind int

const (
	plain  kind = iota
	ofPlan      // by a plan
	ramped      // by a plan, in batches that grow
)

func replayDies(t *testing.T, how kind) {
	met := make(map[string]int)
	missed := func() (ms []string) {
		for _, m := range mishaps {
			for _, call := range []string{"receive", "send", "ack", "extend", "nack"} {
				if met[m.name+": "+call] == 0 {
					ms = append(ms, m.name+": "+call)
				}
			}
		}
		return ms
	}
	// The order of the letters is the broker's, and decides which call is the n-th. Few of the
	// calls are extends.
	drawn := int((proof.Seed(t) + uint64(how)) % 4)
	if !proof.Asked() {
		proof.Leave(t, "coretest: replays that die, on three of four kinds of queues")
	}
	for round := 0; round < 10 && len(missed()) > 0 && !t.Failed(); round++ {
		replaysDie(t, how, met, drawn+round)
	}
	if ms := missed(); len(ms) > 0 {
		t.Errorf("not tried: %v", ms)
	}
	t.Log(met)
}

func replaysDie(t *testing.T, how kind, met map[string]int, drawn int) {
	for i, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub} {
		for k, m := range mishaps {
			if !proof.Asked() && (drawn+i+k)%4 != 0 {
				continue
			}
			t.Run(p.String()+"/"+m.name, func(t *testing.T) {
				// How many calls there are depends a little on the order of the letters.
				for at, beyond := 1, 0; beyond < 3 && !t.Failed(); at++ {
					synctest.Test(t, func(t *testing.T) {
						if calls := replayWith(t, p, m, at, how); len(calls) >= at {
							met[m.name+": "+calls[at-1]]++
						} else {
							beyond++
						}
					})
				}
			})
		}
	}
}

func replayWith(t *testing.T, p membroker.Preset, m mishap, at int, how kind) []string {
	w := newWard(t, p)
	if how != ramped { // a ramp would end there, by its purpose
		w.again["fail-0"], w.again["fail-1"] = true, true
	}
	o := dlq.ReplayOptions{
		PerSecond: 0.5,
		// The one that is left out is held, and handed back.
		Filter: dlq.Filter{Match: func(m *broker.Message) bool { return m.Meta.Key != "fail-5" }},
	}
	if how != plain {
		o.To = w.Q
		plan, err := w.open(w.DLQ).PlanReplay(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		o.Plan, o.Filter = plan, dlq.Filter{}
		if o.Ramp = how == ramped; o.Ramp {
			o.Canary, o.CanaryWait = 2, 15*time.Second
		}
	}
	w.W = w.Worker(nil)
	w.Start()
	ctx, stop := context.WithCancelCause(t.Context())
	r := &replayer{mishap: m, at: at, stop: stop}
	o.To = hands{w.Q, r}
	_, err := w.open(hands{w.DLQ, r}).Replay(ctx, o)
	struck := r.n >= at
	what := fmt.Sprintf("call %d of %d", at, r.n)
	if struck {
		what += ", " + r.calls[at-1]
	}
	switch {
	// A nack or an extension may be its last call.
	case r.dead && !errors.Is(err, errDied) && r.calls[at-1] != "nack" && r.calls[at-1] != "extend":
		t.Errorf("%s: %v", what, err)
	case !r.dead && err != nil:
		t.Errorf("%s: %v", what, err)
	}
	rig.Pass(time.Minute)
	if how != plain {
		w.endPlan(what, o)
	}
	w.cure()
	rig.Pass(2 * time.Minute)
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.wantCured(what)
	rig.Pass(time.Minute)
	return r.calls
}

// Two replays at once share the letters; what both send is done once.
func TestTwoReplaysAtOnce(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWard(t, p)
				w.W = w.Worker(nil)
				w.Start()
				// Held for too short a time, letters go from hand to hand.
				w.DLQ.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					if c.Op == onceqtest.Extend || c.Op == onceqtest.Ack && c.N%3 == 1 {
						return faulty.Fail(rig.ErrBoom)
					}
					return nil
				})
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() {
						if _, err := w.open(w.DLQ).Replay(t.Context(), dlq.ReplayOptions{To: w.Q, PerSecond: 1}); err != nil && !errors.Is(err, dlq.ErrIncomplete) {
							t.Error(err)
						}
					})
				}
				both.Wait()
				w.DLQ.SetFault(nil)
				w.cure()
				rig.Pass(2 * time.Minute)
				if err := w.Stop(); err != nil {
					t.Error(err)
				}
				w.wantCured("two at once")
				rig.Pass(time.Minute)
			})
		})
	}
}

// A replay that is sent again within a FIFO queue's five minutes is swallowed there, and its letter
// is removed. That loses nothing: the job that failed again in the meantime has a letter of its
// own.
func TestReplayIsSwallowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, membroker.SQSFIFO)
		w.keys(func(k string) {
			if k != "native" {
				w.again[k] = true
			}
		})
		w.W = w.Worker(nil)
		w.Start()
		for at := range 3 { // dies after each of its first sends, before the ack
			ctx, stop := context.WithCancelCause(t.Context())
			r := &replayer{mishap: mishap{applied: true, die: true}, at: 2 + at, stop: stop}
			_, _ = w.open(hands{w.DLQ, r}).Replay(ctx, dlq.ReplayOptions{To: hands{w.Q, r}})
			rig.Pass(15 * time.Second)
		}
		w.cure()
		rig.Pass(2 * time.Minute)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.wantCured("swallowed")
		rig.Pass(time.Minute)
	})
}

// A letter that is replayed although its job was done since, or is replayed twice, does nothing.
func TestReplayOfADoneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, membroker.Memory)
		w.W = w.Worker(nil)
		ls := w.Letters()
		for _, l := range ls {
			w.Rig.Replay(l) // as a console's redrive would
			if _, err := w.DLQ.Send(t.Context(), []broker.Outgoing{{Body: l.Body, Meta: l.Meta}}); err != nil {
				t.Fatal(err)
			}
		}
		w.RunFor(time.Minute)
		w.Start()
		w.cure()
		rig.Pass(time.Minute)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.wantCured("again")
		rig.Pass(time.Minute)
	})
}

// The canary stops a replay whose jobs come back, before all of them do.
func TestReplayCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, membroker.SQSStandard)
		w.set(false)
		w.W = w.Worker(nil)
		w.Start()
		before := rig.Depth(t, w.DLQ)
		q := w.open(w.DLQ)
		rep, err := q.Replay(t.Context(), dlq.ReplayOptions{To: w.Q, Canary: 2})
		var back *dlq.CanaryError
		if !errors.As(err, &back) || rep.Replayed != 2 || back.Sent != 2 || len(back.Back) == 0 || !strings.Contains(err.Error(), back.Back[0].Key) {
			t.Errorf("%v, %v", err, rep)
		}
		rig.Pass(time.Minute) // the other canary is on its way, perhaps
		if after := rig.Depth(t, w.DLQ); after+int64(rep.Copies) != before {
			t.Errorf("%d letters, and %d copies dropped; before there were %d", after, rep.Copies, before)
		}
		w.set(true)
		rep, err = q.Replay(t.Context(), dlq.ReplayOptions{To: w.Q, Canary: 2, CanaryWait: 20 * time.Second})
		if err != nil || len(rep.Skipped)+len(rep.Failed) > 0 {
			t.Errorf("%v, %v", err, rep)
		}
		w.cure()
		rig.Pass(time.Minute)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		w.wantCured("with canaries")
		rig.Pass(time.Minute)
	})
}

// A replay edited to another key is a job of its own.
func TestReplayUnderAnotherKey(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Start()
		r.Send("a")
		rig.Pass(time.Minute)
		other := rig.Message("a")
		other.Body = []byte("another payload")
		r.Put(other)
		rig.Pass(time.Minute)
		if err := r.Stop(); err != nil {
			r.Error(err)
		}
		q := must.Get(dlq.New(r.DLQ, nil))
		rep, err := q.Replay(r.Context(), dlq.ReplayOptions{To: r.Q})
		if err != nil || len(rep.Skipped) != 1 || rep.Replayed != 0 {
			r.Fatalf("%v, %v", rep, err)
		}
		rep, err = q.Replay(r.Context(), dlq.ReplayOptions{To: r.Q, Edit: func(o *broker.Outgoing) error {
			o.Meta.Key += "-2"
			return nil
		}})
		if err != nil || rep.Replayed != 1 {
			r.Fatalf("%v, %v", rep, err)
		}
		r.W = r.Worker(nil)
		r.RunFor(time.Minute)
		r.WantStatus("a-2", dedupe.Done)
		r.NoLetters()
	}, rig.With(func(c *rig.Setup) { c.Fingerprint = func(m *broker.Message) []byte { return m.Body } }))
}

// A Fingerprint that panics makes a letter for which no claim was won. Once the function is mended,
// a replay runs the job. Before that, its letter comes again.
func TestReplayAfterAFingerprintThatPanicked(t *testing.T) {
	broken := true
	ran := 0
	rig.Bubble(t, func(context.Context, *onceq.Job) error { ran++; return nil }, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		for _, mended := range []bool{false, true} {
			broken = !mended
			q := must.Get(dlq.New(r.DLQ, nil))
			if rep, err := q.Replay(r.Context(), dlq.ReplayOptions{To: r.Q}); err != nil || rep.Replayed != 1 {
				r.Fatalf("%v, %v", rep, err)
			}
			r.W = r.Worker(nil)
			r.RunFor(time.Minute)
		}
		r.WantStatus("a", dedupe.Done)
		r.NoLetters()
		if ran != 1 {
			r.Errorf("%d runs, want 1", ran)
		}
	}, rig.With(func(c *rig.Setup) {
		c.Fingerprint = func(m *broker.Message) []byte {
			if broken {
				panic("Fingerprint")
			}
			return m.Body
		}
	}))
}
