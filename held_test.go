package onceq_test

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
	"github.com/onceq/onceq/onceqtest"
)

func holdsGroups(r *rig) { r.cfg.HoldGroup = true }

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
	for name, err := range map[string]error{"error": errBoom, "permanent": onceq.Permanent(errBoom)} {
		t.Run(name, func(t *testing.T) {
			h := mendable{err: err}
			bubble(t, h.handle, func(r *rig) {
				r.send("g/bad", "g/next")
				r.start()
				pass(40 * time.Hour)
				rec, starts := r.record("bad"), r.seen.started("bad")
				if rec.Status != dedupe.Released || rec.Attempt != starts || rec.ErrClass == onceq.ClassAttempts || !strings.HasSuffix(rec.LastErr, errBoom.Error()) {
					t.Errorf("%d starts; the record is %+v", starts, rec)
				}
				if starts < 38 || starts > 43 {
					t.Errorf("%d starts in 40 h: want one an hour", starts)
				}
				if n := r.log.count("stays in the queue", "beyond MaxAttempts"); n < 38 {
					t.Errorf("%d ERRORs that say what helps", n)
				}
				r.wantStatus("next", 0)
				h.mended.Store(true)
				pass(61 * time.Minute)
				r.wantStatus("bad", dedupe.Done)
				r.wantStatus("next", dedupe.Done)
				r.noLetters()
			}, preset(membroker.SQSFIFO), holdsGroups, most(3))
		})
	}
}

// A job whose message the queue's own redrive has moved away runs when its message is sent back,
// although its attempts were used up before: that is what a redrive is for.
func TestRedrivenJobRuns(t *testing.T) {
	h := mendable{err: errBoom}
	bubble(t, h.handle, func(r *rig) {
		target := newBroker(t, membroker.Options{Preset: membroker.SQSStandard, Name: "dead"})
		r.q = newQueue(t, membroker.Options{Preset: membroker.SQSStandard, Redrive: &membroker.Redrive{MaxReceives: 20, To: target.Broker}})
		r.cfg.Broker = r.q
		r.w = r.worker(nil)
		r.send("bad")
		r.start()
		pass(24 * time.Hour)
		ms, err := target.Receive(r.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil || len(ms) != 1 {
			t.Fatalf("the redrive has moved %d messages, %v", len(ms), err)
		}
		if rec := r.record("bad"); rec.Status != dedupe.Released || !strings.HasSuffix(rec.LastErr, errBoom.Error()) {
			t.Errorf("the record is %+v", rec)
		}
		h.mended.Store(true)
		r.replay(ms[0])
		pass(time.Minute)
		r.wantStatus("bad", dedupe.Done)
		r.wantQueue(0)
	}, keeps)
}

// A held job that kills its workers is not started at once when its attempts are used up: its
// message comes back as soon as the lease is over. It rests for an hour, uncounted, after each
// attempt of which nobody has told the end, and then it may run again.
func TestHeldJobThatKillsItsWorkers(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		const attempts = 3 // as in most
		die := func(n int) {
			for i := range n {
				q := dedupe.ClaimRequest{Key: key("a"), Token: dedupe.Token{byte(i + 1), 9}, TTL: time.Second, Owner: "killed"}
				if cs, err := r.store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.Won {
					t.Fatalf("claim %d: %+v, %v", i, cs, err)
				}
				pass(2 * time.Second)
			}
		}
		die(attempts)
		r.send("g/a", "g/next")
		r.start()
		pass(59 * time.Minute)
		if n := r.seen.started("a"); n != 0 {
			t.Fatalf("%d starts within the hour", n)
		}
		if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != attempts {
			t.Errorf("the record is %+v: what was not started does not count, and each death does", rec)
		}
		r.wantOutcomes("a", "kept")
		if n := r.log.count("was not started"); n != 1 {
			t.Errorf("%d ERRORs", n)
		}
		pass(2 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantStatus("next", dedupe.Done)
		r.noLetters()
	}, preset(membroker.SQSFIFO), holdsGroups, most(3))
}

// Without a store nobody knows how the last attempt of a held job ended, so beyond MaxAttempts it
// starts every other time.
func TestHeldWithoutAStore(t *testing.T) {
	h := mendable{err: errBoom}
	bubble(t, h.handle, func(r *rig) {
		r.cfg.Store = onceq.NoStore
		r.w = r.worker(nil)
		r.send("g/bad", "g/next")
		r.start()
		pass(40 * time.Hour)
		if n := r.seen.started("bad"); n < 20 || n > 24 {
			t.Errorf("%d starts in 40 h", n)
		}
		h.mended.Store(true)
		pass(3 * time.Hour)
		if r.q.acked("bad") != 1 || r.q.acked("next") != 1 {
			t.Errorf("acked %d and %d times", r.q.acked("bad"), r.q.acked("next"))
		}
	}, preset(membroker.SQSFIFO), holdsGroups, most(3))
}

// keptFor is a broker that says for how long it keeps a message.
type keptFor struct {
	*queue
	keeps time.Duration
}

func (b keptFor) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{Retention: b.keeps}, nil
}

// What is held would be lost without a word when the queue's retention is over. When half of it has
// passed somebody is told, and not before.
func TestHeldBeyondHalfOfTheRetention(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.cfg.Broker = keptFor{r.q, 10 * time.Hour}
		r.w = r.worker(nil)
		r.send("g/a")
		r.start()
		pass(4*time.Hour + 30*time.Minute)
		if n := r.log.count("will be lost"); n != 0 {
			t.Errorf("told %d times before half of the retention has passed", n)
		}
		pass(2 * time.Hour)
		if n := r.log.count("will be lost", "dropped_in"); n != 2 && n != 1 {
			t.Errorf("told %d times after half of the retention", n)
		}
	}, preset(membroker.SQSFIFO), holdsGroups)
}

// Where the queue keeps what cannot be done, the message of a parked job is still there. So a late
// release of its claim frees the key, and the message runs it.
func TestHeldLateRelease(t *testing.T) {
	h := mendable{err: errBoom}
	bubble(t, h.handle, func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle)
		r.send("bad")
		r.start()
		pass(time.Second)
		r.store.fails(errBoom, onceqtest.Settle, onceqtest.Renew)
		pass(time.Minute)
		q := dedupe.ClaimRequest{Key: key("bad"), Token: dedupe.Token{9}, TTL: time.Minute, Policy: dedupe.Park}
		if cs, err := r.store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.IsParked {
			t.Fatalf("another worker's claim: %+v, %v", cs, err)
		}
		h.mended.Store(true)
		r.store.heals()
		pass(3 * time.Hour)
		r.wantStatus("bad", dedupe.Done)
	}, keeps, parks, steady)
}
