package operating

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// slowStore makes each call of the store take a second, so that what is waited for can be told
// apart.
func slowStore(r *rig.Rig) {
	r.Store.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { rig.Takes(time.Second); return cs }
	r.Store.OnSettle = func(_ []dedupe.Settlement, as []dedupe.Settled) []dedupe.Settled {
		rig.Takes(2 * time.Second)
		return as
	}
}

// when is what a record says of its times.
type when struct {
	ran                                     bool
	began, ended                            time.Duration // on the rig
	held, settle, age, delay, process, dead time.Duration
	prev, from                              string
	policy                                  dedupe.Policy
}

func whenOf(r *rig.Rig, t *onceq.JobReport) when {
	w := when{
		ran: t.Ran, held: t.Held, settle: t.Settle, age: t.Age, delay: t.Delay, process: t.Process, dead: t.DeadFor,
		prev: t.PrevClass, from: t.From, policy: t.Policy,
	}
	if !t.Began.IsZero() {
		w.began = t.Began.Sub(r.Began)
	}
	if !t.Ended.IsZero() {
		w.ended = t.Ended.Sub(r.Began)
	}
	return w
}

func wantWhen(r *rig.Rig, got onceq.JobReport, outcome onceq.Outcome, want when) {
	r.Helper()
	if g := whenOf(r, &got); got.Outcome != outcome || g != want {
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
		options []rig.Option
	}{
		"done":    {rig.Returns(nil), onceq.OutcomeDone, 0, dedupe.Rerun, nil},
		"failed":  {rig.Returns(onceq.Permanent(rig.ErrBoom)), onceq.OutcomeFailed, 0, dedupe.Rerun, nil},
		"retried": {rig.Returns(onceq.RetryAfter(time.Hour, rig.ErrBoom)), onceq.OutcomeRetried, time.Hour, dedupe.Rerun, nil},
		"parked":  {func(context.Context, *onceq.Job) error { panic("boom") }, onceq.OutcomeParked, 0, dedupe.Park, []rig.Option{rig.Parks}},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
				rig.Takes(10 * sec)
				return c.h(ctx, j)
			}, func(r *rig.Rig) {
				m := rig.Message("a")
				m.Meta.Created = time.Now().Add(-time.Minute)
				r.Put(m)
				rig.Pass(5 * sec)
				r.RunFor(time.Minute)
				wantWhen(r, r.Seen.Of("a")[0], c.outcome, when{
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
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(10 * sec)
		if attempt++; attempt == 1 {
			return ownClass{"mine"}
		}
		return nil
	}, func(r *rig.Rig) {
		r.Q.OnReceive = func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.Meta = m.Meta.Clone()
				m.Meta.Created = time.Time{}
			}
			return ms
		}
		r.Send("a", "b")
		r.RunFor(time.Minute)
		as, bs := r.Seen.Of("a"), r.Seen.Of("b")
		if len(as) != 2 || len(bs) != 1 {
			t.Fatalf("%d and %d deliveries", len(as), len(bs))
		}
		wantWhen(r, as[0], onceq.OutcomeRetried, when{ran: true, ended: 10 * sec, process: 10 * sec, age: 10 * sec, delay: sec})
		wantWhen(r, bs[0], onceq.OutcomeDone, when{ran: true, began: 10 * sec, ended: 20 * sec, held: 10 * sec, process: 10 * sec, age: 20 * sec})
		wantWhen(r, as[1], onceq.OutcomeDone, when{ran: true, began: 20 * sec, ended: 30 * sec, held: 9 * sec, process: 10 * sec, age: 30 * sec, prev: "mine"})
		if q := as[0].Queue; q != "memory" {
			t.Errorf("the queue is %q", q)
		}
	}, rig.Steady, rig.With(func(c *rig.Setup) { c.Concurrency, c.Prefetch = 1, 1 }))
}

// A claim that takes over a dead lease says whose that was, and how long it was dead.
func TestTimingsOfATakeover(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Occupy(t, "a", 10*sec, dedupe.Rerun)
		r.Send("a")
		rig.Pass(25 * sec)
		r.RunFor(sec)
		wantWhen(r, r.Seen.Of("a")[0], onceq.OutcomeDone, when{ran: true, began: 25 * sec, ended: 25 * sec, age: 25 * sec, dead: 15 * sec, from: "another"})
	})
}

// What started no handler has no times of one.
func TestTimingsWithoutAHandler(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Store.EndClaim(t, r.Store.Occupy(t, "done", time.Minute, dedupe.Rerun), dedupe.Settlement{To: dedupe.Done})
		r.Store.Occupy(t, "busy", time.Hour, dedupe.Rerun)
		r.Send("done", "busy")
		r.Start()
		rig.Pass(sec)
		wantWhen(r, r.Seen.Of("done")[0], onceq.OutcomeAlreadyDone, when{})
		busy := r.Seen.Of("busy")[0]
		if busy.Delay <= 0 {
			t.Error("a message that comes again has no Delay")
		}
		busy.Delay = 0
		wantWhen(r, busy, onceq.OutcomeInProgress, when{})
	})
}

// A job that a drain has cut off is handed back; one that goes on is abandoned, and has not ended.
func TestTimingsOfADrain(t *testing.T) {
	for outcome, stubborn := range map[onceq.Outcome]bool{onceq.OutcomeHandedBack: false, onceq.OutcomeAbandoned: true} {
		rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
			if stubborn {
				rig.Takes(time.Hour)
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, func(r *rig.Rig) {
			r.Send("a")
			r.Start()
			rig.Pass(5 * sec)
			if err := r.Stop(); (err != nil) != stubborn {
				t.Errorf("Run answered %v", err)
			}
			want := when{ran: true, ended: 25 * sec, process: 25 * sec, age: 25 * sec}
			if stubborn {
				want.ended, want.process, want.age = 0, 30*sec, 30*sec
			}
			wantWhen(r, r.Seen.Of("a")[0], outcome, want)
			rig.Pass(time.Hour)
		})
	}
}

// A redelivery whose receipt was handed over does not make the job look as if it came later.
func TestTimingsOfAHandOver(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(30 * sec)
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(10 * sec)
		r.Q.Expire(t, "a")
		rig.Pass(time.Minute)
		r.WantOutcomes("a", "handed-over", "done")
		wantWhen(r, r.Seen.Of("a")[1], onceq.OutcomeDone, when{ran: true, began: sec, ended: 31 * sec, held: sec, process: 30 * sec, settle: 2 * sec, age: 33 * sec})
	}, slowStore)
}

// No two jobs of the batch end in one instant: whether two that do share a call of Settle, or the
// second waits for the first, is nobody's promise.
func TestTimingsOfABatch(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		rig.Takes(10 * sec)
		if j.Key().Key == "b" {
			rig.Takes(5 * sec)
			return onceq.RetryAfter(time.Minute, ownClass{"mine"})
		}
		return nil
	}, func(r *rig.Rig) {
		got := r.Batch(r.Context(), onceq.BatchOptions{Concurrency: 2}, rig.Lasting(time.Hour, "a", "b", "c")...)
		wantWhen(r, got[0].Report, onceq.OutcomeDone, when{ran: true, began: sec, ended: 11 * sec, held: sec, process: 10 * sec, settle: 2 * sec, age: 13 * sec})
		wantWhen(r, got[1].Report, onceq.OutcomeRetried, when{ran: true, began: sec, ended: 16 * sec, held: sec, process: 15 * sec, settle: 2 * sec, age: 18 * sec, delay: time.Minute})
		wantWhen(r, got[2].Report, onceq.OutcomeDone, when{ran: true, began: 12 * sec, ended: 22 * sec, held: 12 * sec, process: 10 * sec, settle: 2 * sec, age: 24 * sec})
		if q := got[0].Report.Queue; q != rig.Scope {
			t.Errorf("the queue is %q", q)
		}
	}, slowStore)
}

// A handler that a batch has left behind has not ended.
func TestTimingsOfAnAbandonedBatch(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		rig.Takes(time.Hour)
		return nil
	}, func(r *rig.Rig) {
		got := r.Batch(r.Context(), onceq.BatchOptions{}, rig.Lasting(10*sec, "a")...)
		wantWhen(r, got[0].Report, onceq.OutcomeAbandoned, when{ran: true, process: 9 * sec, age: 9 * sec})
		rig.Pass(time.Hour)
	})
}

func TestTimingsOfDo(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		slowStore(d.Rig)
		_, err := d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) {
			rig.Takes(10 * sec)
			return 0, ownClass{"mine"}
		})
		if !errors.As(err, &ownClass{}) {
			t.Error(err)
		}
		if _, err = d.Do("a", nil, rig.Gives(5, nil)); err != nil {
			t.Error(err)
		}
		of := d.Seen.Of("a")
		wantWhen(d.Rig, of[0], onceq.OutcomeRetried, when{ran: true, began: sec, ended: 11 * sec, held: sec, process: 10 * sec, settle: 2 * sec})
		wantWhen(d.Rig, of[1], onceq.OutcomeDone, when{ran: true, began: 14 * sec, ended: 14 * sec, held: sec, settle: 2 * sec, prev: "mine"})
		if of[0].Queue != rig.Scope {
			t.Errorf("the queue is %q", of[0].Queue)
		}
	})
}

// The time until a dead letter is stored is settling, too.
func TestTimingsOfALetter(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.DLQ.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Send && c.N <= 3 {
				return faulty.Fail(rig.ErrBoom)
			}
			return nil
		})
		r.Send("a")
		r.RunFor(time.Minute)
		if got := r.Seen.Of("a")[0]; got.Settle <= 0 || got.Process != 0 || got.Outcome != onceq.OutcomeFailed {
			t.Errorf("the record is %+v", got)
		}
	})
}
