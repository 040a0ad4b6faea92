package onceq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// slowStore makes each call of the store take a second, so that what is waited for can be told
// apart.
func slowStore(r *rig) {
	r.store.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { takes(time.Second); return cs }
	r.store.onSettle = func(_ []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled { takes(2 * time.Second); return as }
}

// when is what a record says of its times.
type when struct {
	ran                                     bool
	began, ended                            time.Duration // on the rig
	held, settle, age, delay, process, dead time.Duration
	prev, from                              string
	policy                                  dedupe.Policy
}

func (r *rig) when(t *onceq.TimingRecord) when {
	w := when{
		ran: t.Ran, held: t.Held, settle: t.Settle, age: t.Age, delay: t.Delay, process: t.Process, dead: t.DeadFor,
		prev: t.PrevClass, from: t.From, policy: t.Policy,
	}
	if !t.Began.IsZero() {
		w.began = t.Began.Sub(r.began)
	}
	if !t.Ended.IsZero() {
		w.ended = t.Ended.Sub(r.began)
	}
	return w
}

func (r *rig) wantWhen(got onceq.TimingRecord, outcome onceq.Outcome, want when) {
	r.Helper()
	if g := r.when(&got); got.Outcome != outcome || g != want {
		r.Errorf("%s: the record says\n%+v, want %s with\n%+v", got.Key.Key, g, outcome, want)
	}
}

const sec = time.Second

func TestTimingsOfAWorker(t *testing.T) {
	for name, c := range map[string]struct {
		h       onceq.HandlerFunc
		outcome onceq.Outcome
		delay   time.Duration
		policy  dedupe.Policy
		options []option
	}{
		"done":    {returns(nil), onceq.OutcomeDone, 0, dedupe.Rerun, nil},
		"failed":  {returns(onceq.Permanent(errBoom)), onceq.OutcomeFailed, 0, dedupe.Rerun, nil},
		"retried": {returns(onceq.RetryAfter(time.Hour, errBoom)), onceq.OutcomeRetried, time.Hour, dedupe.Rerun, nil},
		"parked":  {func(context.Context, *onceq.Job) error { panic("boom") }, onceq.OutcomeParked, 0, dedupe.Park, []option{parks}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, j *onceq.Job) error {
				takes(10 * sec)
				return c.h(ctx, j)
			}, func(r *rig) {
				m := message("a")
				m.Meta.Created = time.Now().Add(-time.Minute)
				r.put(m)
				pass(5 * sec)
				r.run(time.Minute)
				r.wantWhen(r.seen.of("a")[0], c.outcome, when{
					ran: true, began: 6 * sec, ended: 16 * sec, held: sec, process: 10 * sec, settle: 2 * sec,
					age: 78 * sec, delay: c.delay, policy: c.policy,
				})
			}, append(c.options, slowStore)...)
		})
	}
}

// A message that waits for a slot is held; its age counts from the publishing where nobody says
// when it was made. A second attempt says what the first one failed with.
func TestTimingsOfTheSecondAttempt(t *testing.T) {
	attempt := 0
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(10 * sec)
		if attempt++; attempt == 1 {
			return ownClass{"mine"}
		}
		return nil
	}, func(r *rig) {
		r.q.onReceive = func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.Meta = m.Meta.Clone()
				m.Meta.Created = time.Time{}
			}
			return ms
		}
		r.send("a", "b")
		r.run(time.Minute)
		as, bs := r.seen.of("a"), r.seen.of("b")
		if len(as) != 2 || len(bs) != 1 {
			t.Fatalf("%d and %d deliveries", len(as), len(bs))
		}
		r.wantWhen(as[0], onceq.OutcomeRetried, when{ran: true, ended: 10 * sec, process: 10 * sec, age: 10 * sec, delay: sec})
		r.wantWhen(bs[0], onceq.OutcomeDone, when{ran: true, began: 10 * sec, ended: 20 * sec, held: 10 * sec, process: 10 * sec, age: 20 * sec})
		r.wantWhen(as[1], onceq.OutcomeDone, when{ran: true, began: 20 * sec, ended: 30 * sec, held: 9 * sec, process: 10 * sec, age: 30 * sec, prev: "mine"})
		if q := as[0].Queue; q != "memory" {
			t.Errorf("the queue is %q", q)
		}
	}, steady, with(func(c *setup) { c.Concurrency, c.Prefetch = 1, 1 }))
}

// A claim that takes over a dead lease says whose that was, and how long it was dead.
func TestTimingsOfATakeover(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.occupy(t, "a", 10*sec, dedupe.Rerun)
		r.send("a")
		pass(25 * sec)
		r.run(sec)
		r.wantWhen(r.seen.of("a")[0], onceq.OutcomeDone, when{ran: true, began: 25 * sec, ended: 25 * sec, age: 25 * sec, dead: 15 * sec, from: "another"})
	})
}

// What started no handler has no times of one.
func TestTimingsWithoutAHandler(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.store.settle(t, r.store.occupy(t, "done", time.Minute, dedupe.Rerun), dedupe.Settlement{To: dedupe.Done})
		r.store.occupy(t, "busy", time.Hour, dedupe.Rerun)
		r.send("done", "busy")
		r.start()
		pass(sec)
		r.wantWhen(r.seen.of("done")[0], onceq.OutcomeAlreadyDone, when{})
		busy := r.seen.of("busy")[0]
		if busy.Delay <= 0 {
			t.Error("a message that comes again has no Delay")
		}
		busy.Delay = 0
		r.wantWhen(busy, onceq.OutcomeInProgress, when{})
	})
}

// A job that a drain has cut off is handed back; one that goes on is abandoned, and has not ended.
func TestTimingsOfADrain(t *testing.T) {
	for outcome, stubborn := range map[onceq.Outcome]bool{onceq.OutcomeHandedBack: false, onceq.OutcomeAbandoned: true} {
		bubble(t, func(ctx context.Context, _ *onceq.Job) error {
			if stubborn {
				takes(time.Hour)
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, func(r *rig) {
			r.send("a")
			r.start()
			pass(5 * sec)
			if err := r.stop(); (err != nil) != stubborn {
				t.Errorf("Run answered %v", err)
			}
			want := when{ran: true, ended: 25 * sec, process: 25 * sec, age: 25 * sec}
			if stubborn {
				want.ended, want.process, want.age = 0, 30*sec, 30*sec
			}
			r.wantWhen(r.seen.of("a")[0], outcome, want)
			pass(time.Hour)
		})
	}
}

// A redelivery whose receipt was handed over does not make the job look as if it came later.
func TestTimingsOfAHandOver(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(30 * sec)
		return nil
	}, func(r *rig) {
		r.send("a")
		r.start()
		pass(10 * sec)
		r.q.expire(t, "a")
		pass(time.Minute)
		r.wantOutcomes("a", "handed-over", "done")
		r.wantWhen(r.seen.of("a")[1], onceq.OutcomeDone, when{ran: true, began: sec, ended: 31 * sec, held: sec, process: 30 * sec, settle: 2 * sec, age: 33 * sec})
	}, slowStore)
}

// No two jobs of the batch end in one instant: whether two that do share a call of Settle, or the
// second waits for the first, is nobody's promise.
func TestTimingsOfABatch(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		takes(10 * sec)
		if j.Key().Key == "b" {
			takes(5 * sec)
			return onceq.RetryAfter(time.Minute, ownClass{"mine"})
		}
		return nil
	}, func(r *rig) {
		got := r.batch(r.Context(), onceq.BatchOptions{Concurrency: 2}, lasting(time.Hour, "a", "b", "c")...)
		r.wantWhen(got[0].Record, onceq.OutcomeDone, when{ran: true, began: sec, ended: 11 * sec, held: sec, process: 10 * sec, settle: 2 * sec, age: 13 * sec})
		r.wantWhen(got[1].Record, onceq.OutcomeRetried, when{ran: true, began: sec, ended: 16 * sec, held: sec, process: 15 * sec, settle: 2 * sec, age: 18 * sec, delay: time.Minute})
		r.wantWhen(got[2].Record, onceq.OutcomeDone, when{ran: true, began: 12 * sec, ended: 22 * sec, held: 12 * sec, process: 10 * sec, settle: 2 * sec, age: 24 * sec})
		if q := got[0].Record.Queue; q != scope {
			t.Errorf("the queue is %q", q)
		}
	}, slowStore)
}

// A handler that a batch has left behind has not ended.
func TestTimingsOfAnAbandonedBatch(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error {
		takes(time.Hour)
		return nil
	}, func(r *rig) {
		got := r.batch(r.Context(), onceq.BatchOptions{}, lasting(10*sec, "a")...)
		r.wantWhen(got[0].Record, onceq.OutcomeAbandoned, when{ran: true, process: 9 * sec, age: 9 * sec})
		pass(time.Hour)
	})
}

func TestTimingsOfDo(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		slowStore(d.rig)
		_, err := d.do("a", nil, func(context.Context, *onceq.Job) (int, error) {
			takes(10 * sec)
			return 0, ownClass{"mine"}
		})
		if !errors.As(err, &ownClass{}) {
			t.Error(err)
		}
		if _, err = d.do("a", nil, gives(5, nil)); err != nil {
			t.Error(err)
		}
		of := d.seen.of("a")
		d.wantWhen(of[0], onceq.OutcomeRetried, when{ran: true, began: sec, ended: 11 * sec, held: sec, process: 10 * sec, settle: 2 * sec})
		d.wantWhen(of[1], onceq.OutcomeDone, when{ran: true, began: 14 * sec, ended: 14 * sec, held: sec, settle: 2 * sec, prev: "mine"})
		if of[0].Queue != scope {
			t.Errorf("the queue is %q", of[0].Queue)
		}
	})
}

// The time until a dead letter is stored is settling, too.
func TestTimingsOfALetter(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.dlq.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Send && c.N <= 3 {
				return faulty.Fail(errBoom)
			}
			return nil
		})
		r.send("a")
		r.run(time.Minute)
		if got := r.seen.of("a")[0]; got.Settle <= 0 || got.Process != 0 || got.Outcome != onceq.OutcomeFailed {
			t.Errorf("the record is %+v", got)
		}
	})
}
