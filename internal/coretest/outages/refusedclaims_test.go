package onceq_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/onceqtest"
)

// poisoned makes every claim fail as a whole that has the key "bad" among its entries.
func (r *rig) poisoned() {
	r.store.set(func(s *store) {
		s.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
			if slices.ContainsFunc(rs, func(q dedupe.ClaimRequest) bool { return q.Key.Key == "bad" }) {
				panic("the store breaks on this key")
			}
			return cs
		}
	})
}

// A key on which the store breaks as a whole must not stop the others.
func TestPoisonedClaimStopsNobody(t *testing.T) {
	for _, first := range []bool{true, false} {
		bubble(t, returns(nil), func(r *rig) {
			r.poisoned()
			keys := numbered("k", 50)
			if first {
				r.send("bad")
			}
			r.send(keys...)
			if !first {
				r.send("bad")
			}
			r.start()
			pass(10 * time.Minute)
			for n := range 20 { // and those that come later
				r.send("bad" + string(rune('a'+n)))
				pass(time.Minute)
			}
			for n := range 20 {
				keys = append(keys, "bad"+string(rune('a'+n)))
			}
			for _, k := range keys {
				r.wantStatus(k, dedupe.Done)
			}
			if n := r.q.received("bad"); n < 2 || n > 10 {
				t.Errorf("the bad one was received %d times in half an hour", n)
			}
			if r.seen.started("bad") != 0 {
				t.Error("it ran unclaimed")
			}
			r.store.set(func(s *store) { s.onClaim = nil })
			pass(10 * time.Minute)
			r.wantStatus("bad", dedupe.Done)
			r.wantQueue(0)
		}, preset(membroker.SQSStandard))
	}
}

// What fails for all is an outage, however often it is tried one by one.
func TestDividedOutageIsOne(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Claim)
		r.send(numbered("k", 40)...)
		r.start()
		pass(time.Hour)
		for _, k := range numbered("k", 40) {
			if n, back := r.q.received(k), len(r.q.delays(k)); n > 1 || back > 0 {
				t.Errorf("%q was received %d times and nacked %d times", k, n, back)
			}
		}
		if n := r.store.claims.Load(); n > 20*3600/4 {
			t.Errorf("%d claims in an hour", n)
		}
		r.store.heals()
		pass(time.Minute)
		r.wantQueue(0)
	})
}

// A claim that is refused for a day becomes a letter, which reopens nothing. Without it the queue
// would drop the message in the end.
func TestClaimRefusedForADayIsALetter(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.erring(errBoom, func(key string) bool { return key == "bad" })
		r.send("bad")
		r.start()
		for n := range 24 * 60 {
			if n == 23*60 {
				r.noLetters()
			}
			r.send("k" + strconv.Itoa(n))
			pass(time.Minute)
		}
		for n := range 20 {
			r.send("later" + strconv.Itoa(n))
			pass(time.Minute)
		}
		if m := r.letter(onceq.ClassClaimRefused); m.Meta.Dead.Fence != 0 {
			t.Errorf("the letter is %+v", m.Meta.Dead)
		}
		r.wantQueue(0)
	}, preset(membroker.SQSStandard))
}

// Where no other claim comes, the worker makes a claim of its own, to see whether the store answers
// that. So the letter comes in time, and nothing remains of what was claimed.
func TestClaimRefusedOnAQuietQueueIsALetter(t *testing.T) {
	for name, refuse := range map[string]func(r *rig){
		"entry": func(r *rig) { r.erring(errBoom, func(key string) bool { return key == "bad" }) },
		"call":  (*rig).poisoned,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				refuse(r)
				r.send("bad")
				r.start()
				pass(23 * time.Hour)
				r.noLetters()
				pass(90 * time.Minute)
				if m := r.letter(onceq.ClassClaimRefused); m.Meta.Dead.Fence != 0 {
					t.Errorf("the letter is %+v", m.Meta.Dead)
				}
				r.wantQueue(0)
				for rec, err := range r.store.List(t.Context(), dedupe.Query{}) {
					if err != nil || rec.Key != key("bad") {
						t.Errorf("there is a record of %+v, %v", rec, err)
					}
				}
				if n := r.store.claims.Load(); n > 24*60*3 {
					t.Errorf("%d claims in a day", n)
				}
			}, preset(membroker.SQSStandard))
		})
	}
}

// Who has mended the row replays the letter as it is, under its own key.
func TestClaimRefusedLetterIsReplayed(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.erring(errBoom, func(key string) bool { return key == "bad" })
		r.send("bad")
		r.run(25 * time.Hour)
		dead, err := dlq.New(r.dlq, nil)
		if err != nil {
			t.Fatal(err)
		}
		replay := func() {
			t.Helper()
			rep, err := dead.Replay(r.Context(), dlq.ReplayOptions{
				To: r.q.Broker, Filter: dlq.Filter{Class: onceq.ClassClaimRefused},
			})
			if err != nil || rep.Replayed != 1 {
				t.Fatalf("the report is %+v, %v", rep, err)
			}
		}
		replay() // too soon
		r.run(25 * time.Hour)
		if n := r.seen.started("bad"); n != 0 {
			t.Errorf("it ran %d times, unclaimed", n)
		}
		r.store.set(func(s *store) { s.onClaim = nil })
		replay()
		r.run(time.Minute)
		r.wantStatus("bad", dedupe.Done)
		if n := r.seen.started("bad"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		r.noLetters()
		r.wantQueue(0)
	}, preset(membroker.SQSStandard))
}

// A store that answers no claim makes no letter, however quiet the queue is and however long that
// lasts.
func TestOutageOnAQuietQueueIsNoLetter(t *testing.T) {
	for name, breaks := range map[string]func(r *rig){
		"entry": func(r *rig) { r.erring(errBoom, func(string) bool { return true }) },
		"call":  func(r *rig) { r.store.fails(errBoom, "claim") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				breaks(r)
				r.send("a")
				r.start()
				pass(30 * time.Hour)
				if n := r.q.received("a"); n > 3 { // SQS lets it be held for twelve hours
					t.Errorf("%d receives", n)
				}
				r.store.heals()
				r.store.set(func(s *store) { s.onClaim = nil })
				pass(time.Hour)
				r.noLetters()
				r.wantStatus("a", dedupe.Done)
			}, preset(membroker.SQSStandard), warnings)
		})
	}
}

// The dead-letter queue refuses letters, one by one, for a reason that may pass. Such letters must
// not keep the slots.
func TestRefusedLettersStopNobody(t *testing.T) {
	bubble(t, failsOn("p"), func(r *rig) {
		bad := numbered("p", 4)
		r.send(bad...)
		r.send("perfect")
		r.start()
		pass(time.Minute)
		for n := range 60 {
			r.send("ok-" + strconv.Itoa(n))
			pass(time.Minute)
		}
		for _, k := range bad {
			r.wantStatus(k, dedupe.Failed)
			if n := r.q.received(k); n < 2 || n > 13 {
				t.Errorf("%q was received %d times in an hour", k, n)
			}
			if r.seen.started(k) != 1 {
				t.Errorf("%q ran %d times", k, r.seen.started(k))
			}
		}
		r.wantQueue(int64(len(bad)))
		if n := r.log.count("does not take a letter"); n < len(bad) {
			t.Errorf("%d log lines", n)
		}
	}, preset(membroker.SQSStandard), refusing(func(o *broker.Outgoing) error {
		if strings.HasPrefix(string(o.Body), "p0") {
			return errBoom
		}
		return nil
	}), with(func(c *setup) { c.Concurrency = 4 }))
}

// failsOn is a handler that fails for good where the body begins like this.
func failsOn(prefix string) onceq.HandlerFunc {
	return func(_ context.Context, j *onceq.Job) error {
		if strings.HasPrefix(string(j.Message.Body), prefix) {
			return onceq.Permanent(errBoom)
		}
		return nil
	}
}
