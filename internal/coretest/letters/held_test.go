package letters

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

func holdsGroups(r *rig.Rig) { r.Cfg.HoldGroup = true }

// mendable is a handler that fails "bad" until it is mended.
type mendable struct {
	mended atomic.Bool
	err    error
}

func (m *mendable) handle(_ context.Context, j *onceq.Job) error {
	if string(j.Message.Body) == "bad" && !m.mended.Load() {
		return m.err
	}
	return nil
}

// The head of a group is held until its cause is mended, however many attempts that took. Each time
// that it is looked at its handler starts, and the record keeps what the handler said.
func TestHeldHeadRunsOnceMended(t *testing.T) {
	for name, err := range map[string]error{"error": rig.ErrBoom, "permanent": onceq.Permanent(rig.ErrBoom)} {
		t.Run(name, func(t *testing.T) {
			h := mendable{err: err}
			rig.Bubble(t, h.handle, func(r *rig.Rig) {
				r.Send("g/bad", "g/next")
				r.Start()
				rig.Pass(40 * time.Hour)
				rec, starts := r.Record("bad"), r.Seen.Started("bad")
				if rec.Status != dedupe.Released || rec.Attempt != starts || rec.ErrClass == onceq.ClassAttempts || !strings.HasSuffix(rec.LastErr, rig.ErrBoom.Error()) {
					t.Errorf("%d starts; the record is %+v", starts, rec)
				}
				if starts < 38 || starts > 43 {
					t.Errorf("%d starts in 40 h: want one an hour", starts)
				}
				if n := r.Logged.Count("stays in the queue", "beyond MaxAttempts"); n < 38 {
					t.Errorf("%d ERRORs that say what helps", n)
				}
				r.WantStatus("next", 0)
				h.mended.Store(true)
				rig.Pass(61 * time.Minute)
				r.WantStatus("bad", dedupe.Done)
				r.WantStatus("next", dedupe.Done)
				r.NoLetters()
			}, rig.Preset(membroker.SQSFIFO), holdsGroups, rig.Most(3))
		})
	}
}

// A job whose message the queue's own redrive has moved away runs when its message is sent back,
// although its attempts were used up before: that is what a redrive is for.
func TestRedrivenJobRuns(t *testing.T) {
	h := mendable{err: rig.ErrBoom}
	rig.Bubble(t, h.handle, func(r *rig.Rig) {
		target := rig.NewBroker(t, membroker.Options{Preset: membroker.SQSStandard, Name: "dead"})
		r.Q = rig.NewQueue(t, membroker.Options{Preset: membroker.SQSStandard, Redrive: &membroker.Redrive{MaxReceives: 20, To: target.Broker}})
		r.Cfg.Broker = r.Q
		r.W = r.Worker(nil)
		r.Send("bad")
		r.Start()
		rig.Pass(24 * time.Hour)
		ms, err := target.Receive(r.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil || len(ms) != 1 {
			t.Fatalf("the redrive has moved %d messages, %v", len(ms), err)
		}
		if rec := r.Record("bad"); rec.Status != dedupe.Released || !strings.HasSuffix(rec.LastErr, rig.ErrBoom.Error()) {
			t.Errorf("the record is %+v", rec)
		}
		h.mended.Store(true)
		r.Replay(ms[0])
		rig.Pass(time.Minute)
		r.WantStatus("bad", dedupe.Done)
		r.WantQueue(0)
	}, keeps)
}

// A held job that kills its workers is not started at once when its attempts are used up: its
// message comes back as soon as the lease is over. It rests for an hour, uncounted, after each
// attempt of which nobody has told the end, and then it may run again. Its record keeps by what the
// first attempt had failed.
func TestHeldJobThatKillsItsWorkers(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		const attempts = 3 // as in most
		die := func(n int) {
			for i := range n {
				q := dedupe.ClaimRequest{Key: rig.Key("a"), Token: dedupe.Token{byte(i + 1), 9}, TTL: time.Second, Owner: "killed"}
				if cs, err := r.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.Won {
					t.Fatalf("claim %d: %+v, %v", i, cs, err)
				}
				if i == 0 {
					e := dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Released, ErrClass: onceq.ClassError, ErrText: "the first"}
					if as, err := r.Store.Store.Settle(r.Context(), []dedupe.Settlement{e}); err != nil || as[0].Err != nil {
						t.Fatalf("%+v, %v", as, err)
					}
				}
				rig.Pass(2 * time.Second)
			}
		}
		die(attempts)
		r.Send("g/a", "g/next")
		r.Start()
		rig.Pass(59 * time.Minute)
		if n := r.Seen.Started("a"); n != 0 {
			t.Fatalf("%d starts within the hour", n)
		}
		if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != attempts || rec.LastErr != "the first" {
			t.Errorf("the record is %+v: what was not started does not count, and each death does", rec)
		}
		r.WantOutcomes("a", "kept")
		if n := r.Logged.Count("was not started"); n != 1 {
			t.Errorf("%d ERRORs", n)
		}
		rig.Pass(2 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("next", dedupe.Done)
		r.NoLetters()
	}, rig.Preset(membroker.SQSFIFO), holdsGroups, rig.Most(3))
}

// Without a store nobody knows how the last attempt of a held job ended, so beyond MaxAttempts it
// starts every other time.
func TestHeldWithoutAStore(t *testing.T) {
	h := mendable{err: rig.ErrBoom}
	rig.Bubble(t, h.handle, func(r *rig.Rig) {
		r.Cfg.Store = onceq.NoStore
		r.W = r.Worker(nil)
		r.Send("g/bad", "g/next")
		r.Start()
		rig.Pass(40 * time.Hour)
		if n := r.Seen.Started("bad"); n < 20 || n > 24 {
			t.Errorf("%d starts in 40 h", n)
		}
		h.mended.Store(true)
		rig.Pass(3 * time.Hour)
		if r.Q.Acked("bad") != 1 || r.Q.Acked("next") != 1 {
			t.Errorf("acked %d and %d times", r.Q.Acked("bad"), r.Q.Acked("next"))
		}
	}, rig.Preset(membroker.SQSFIFO), holdsGroups, rig.Most(3))
}

// keptFor is a broker that says for how long it keeps a message.
type keptFor struct {
	*rig.Queue
	keeps time.Duration
}

func (b keptFor) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{Retention: b.keeps}, nil
}

// What is held would be lost without a word when the queue's retention is over. When half of it has
// passed somebody is told, and not before.
func TestHeldBeyondHalfOfTheRetention(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Cfg.Broker = keptFor{r.Q, 10 * time.Hour}
		r.W = r.Worker(nil)
		r.Send("g/a")
		r.Start()
		rig.Pass(4*time.Hour + 30*time.Minute)
		if n := r.Logged.Count("will be lost"); n != 0 {
			t.Errorf("told %d times before half of the retention has passed", n)
		}
		rig.Pass(2 * time.Hour)
		if n := r.Logged.Count("will be lost", "dropped_in"); n != 2 && n != 1 {
			t.Errorf("told %d times after half of the retention", n)
		}
	}, rig.Preset(membroker.SQSFIFO), holdsGroups)
}

// Where the queue keeps what cannot be done, the message of a parked job is still there. So a late
// release of its claim frees the key, and the message runs it.
func TestHeldLateRelease(t *testing.T) {
	h := mendable{err: rig.ErrBoom}
	rig.Bubble(t, h.handle, func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle)
		r.Send("bad")
		r.Start()
		rig.Pass(time.Second)
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle, onceqtest.Renew)
		rig.Pass(time.Minute)
		q := dedupe.ClaimRequest{Key: rig.Key("bad"), Token: dedupe.Token{9}, TTL: time.Minute, Policy: dedupe.Park}
		if cs, err := r.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.IsParked {
			t.Fatalf("another worker's claim: %+v, %v", cs, err)
		}
		h.mended.Store(true)
		r.Store.Heals()
		rig.Pass(3 * time.Hour)
		r.WantStatus("bad", dedupe.Done)
	}, keeps, rig.Parks, rig.Steady)
}
