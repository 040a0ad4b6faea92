package outages

import (
	"context"
	"fmt"
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
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// A key on which the store breaks as a whole must not stop the others.
func TestPoisonedClaimStopsNobody(t *testing.T) {
	for _, first := range []bool{true, false} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			poisonClaims(r)
			keys := rig.Numbered("k", 50)
			if first {
				r.Send("bad")
			}
			r.Send(keys...)
			if !first {
				r.Send("bad")
			}
			r.Start()
			rig.Pass(10 * time.Minute)
			for n := range 20 { // and those that come later
				r.Send("bad" + string(rune('a'+n)))
				rig.Pass(time.Minute)
			}
			for n := range 20 {
				keys = append(keys, "bad"+string(rune('a'+n)))
			}
			for _, k := range keys {
				r.WantStatus(k, dedupe.Done)
			}
			if n := r.Q.Received("bad"); n < 2 || n > 10 {
				t.Errorf("the bad one was received %d times in half an hour", n)
			}
			if r.Seen.Started("bad") != 0 {
				t.Error("it ran unclaimed")
			}
			r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
			rig.Pass(10 * time.Minute)
			r.WantStatus("bad", dedupe.Done)
			r.WantQueue(0)
		}, rig.Preset(membroker.SQSStandard))
	}
}

// A worker is so busy that its store answers some claim at any time. The bad one is given back all
// the same, because it would keep a slot. Where its whole call fails, and it is never alone in one,
// it is found by dividing the call.
func TestPoisonedClaimAmongAStream(t *testing.T) {
	for name, refuse := range map[string]func(r *rig.Rig){
		"entry": func(r *rig.Rig) { erring(r, rig.ErrBoom, func(key string) bool { return key == "bad" }) },
		"call":  poisonClaims,
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
				n, _ := strconv.Atoi(strings.TrimLeft(string(j.Message.Body), "k"))
				rig.Takes(time.Duration(n%10) * 100 * time.Millisecond)
				return nil
			}, func(r *rig.Rig) {
				refuse(r)
				r.Store.Set(func(s *rig.Store) {
					s.Fault = func(c onceqtest.Call) (f faulty.Faults) {
						if c.Op == onceqtest.Claim {
							f = faulty.Slow(500 * time.Millisecond) // the others gather meanwhile
						}
						return f
					}
				})
				keys := rig.Numbered("k", 2000)
				r.Send("bad")
				r.Send(keys...)
				r.Start()
				rig.Pass(35 * time.Second)
				r.WantStatus(keys[len(keys)-1], 0)
				if os := r.Seen.Outcomes("bad"); len(os) != 1 || os[0] != "claim-refused" {
					t.Errorf("the bad one ended as %q", os)
				}
			}, rig.With(func(c *rig.Setup) { c.Concurrency, c.Prefetch = 40, 2000 }))
		})
	}
}

// A store that is too slow for some claims and answers others has refused nobody. What it did not
// answer in time comes again after a lease, and not after the five minutes in which somebody looks
// at a row. Each receive doubles that, because the queue counts them.
func TestSlowClaimIsNotRefused(t *testing.T) {
	for _, c := range []struct {
		err   error
		least time.Duration
	}{
		{rig.ErrBoom, 5 * time.Minute},
		{fmt.Errorf("slow: %w", context.DeadlineExceeded), 30 * time.Second},
	} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			erring(r, c.err, func(key string) bool { return key == "slow" })
			r.Send("slow")
			r.Send(rig.Numbered("k", 50)...)
			r.Start()
			for i := range 60 { // others are answered all the time
				r.Send("later" + strconv.Itoa(i))
				rig.Pass(30 * time.Second)
			}
			delays := r.Q.Delays("slow")
			for i, d := range delays {
				if least := min(c.least<<i, 5*time.Minute); d < least || d > 2*least {
					t.Errorf("%v: handed back for %v: the %d. is not %v", c.err, delays, i+1, least)
				}
			}
			if n := len(delays); n < 4 || n > 9 {
				t.Errorf("%v: handed back for %v in half an hour", c.err, delays)
			}
			r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
			rig.Pass(10 * time.Minute)
			r.WantStatus("slow", dedupe.Done)
		}, rig.Preset(membroker.SQSStandard))
	}
}

// What fails for all is an outage, however often it is tried one by one.
func TestDividedOutageIsOne(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Claim)
		r.Send(rig.Numbered("k", 40)...)
		r.Start()
		rig.Pass(time.Hour)
		for _, k := range rig.Numbered("k", 40) {
			if n, back := r.Q.Received(k), len(r.Q.Delays(k)); n > 1 || back > 0 {
				t.Errorf("%q was received %d times and nacked %d times", k, n, back)
			}
		}
		if n := r.Store.Claims.Load(); n > 20*3600/4 {
			t.Errorf("%d claims in an hour", n)
		}
		r.Store.Heals()
		rig.Pass(time.Minute)
		r.WantQueue(0)
	})
}

// A claim that is refused for a day becomes a letter, which reopens nothing. Without it the queue
// would drop the message in the end.
func TestClaimRefusedForADayIsALetter(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		erring(r, rig.ErrBoom, func(key string) bool { return key == "bad" })
		r.Send("bad")
		r.Start()
		for n := range 24 * 60 {
			if n == 23*60 {
				r.NoLetters()
			}
			r.Send("k" + strconv.Itoa(n))
			rig.Pass(time.Minute)
		}
		for n := range 20 {
			r.Send("later" + strconv.Itoa(n))
			rig.Pass(time.Minute)
		}
		if m := r.Letter(onceq.ClassClaimRefused); m.Meta.Dead.Fence != 0 {
			t.Errorf("the letter is %+v", m.Meta.Dead)
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard))
}

// A message that has only waited for a day is not to blame: in a backlog, until its time, or for a
// handler that had postponed it.
func TestClaimRefusedAfterALongWait(t *testing.T) {
	for _, c := range []struct {
		preset membroker.Preset
		waits  func(m *broker.Meta, until time.Time)
	}{
		{membroker.SQSStandard, func(*broker.Meta, time.Time) {}}, // which counts receives
		{membroker.PubSub, func(m *broker.Meta, until time.Time) { m.NotBefore = until }},
		{membroker.PubSub, func(m *broker.Meta, until time.Time) { m.Postponed = until }},
	} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			erring(r, rig.ErrBoom, func(key string) bool { return key == "bad" })
			m := rig.Message("bad")
			c.waits(m.Meta, time.Now().Add(48*time.Hour))
			r.PutRaw(m)
			rig.Pass(48 * time.Hour)
			r.Start()
			for n := range 60 {
				r.Send("k" + strconv.Itoa(n))
				rig.Pass(time.Minute)
			}
			r.NoLetters()
			r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
			rig.Pass(10 * time.Minute)
			r.WantOutcomes("bad", append(slices.Repeat([]string{"claim-refused"}, len(r.Seen.Of("bad"))-1), "done")...)
		}, rig.Preset(c.preset))
	}
}

// Where no other claim comes, the worker makes a claim of its own, to see whether the store answers
// that. So the letter comes in time, and nothing remains of what was claimed.
func TestClaimRefusedOnAQuietQueueIsALetter(t *testing.T) {
	for name, refuse := range map[string]func(r *rig.Rig){
		"entry": func(r *rig.Rig) { erring(r, rig.ErrBoom, func(key string) bool { return key == "bad" }) },
		"call":  poisonClaims,
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				refuse(r)
				r.Send("bad")
				r.Start()
				rig.Pass(23 * time.Hour)
				r.NoLetters()
				rig.Pass(90 * time.Minute)
				if m := r.Letter(onceq.ClassClaimRefused); m.Meta.Dead.Fence != 0 {
					t.Errorf("the letter is %+v", m.Meta.Dead)
				}
				r.WantQueue(0)
				for rec, err := range r.Store.List(t.Context(), dedupe.Query{}) {
					if err != nil || rec.Key != rig.Key("bad") {
						t.Errorf("there is a record of %+v, %v", rec, err)
					}
				}
				if n := r.Store.Claims.Load(); n > 24*60*3 {
					t.Errorf("%d claims in a day", n)
				}
			}, rig.Preset(membroker.SQSStandard))
		})
	}
}

// Who has mended the row replays the letter as it is, under its own key.
func TestClaimRefusedLetterIsReplayed(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		erring(r, rig.ErrBoom, func(key string) bool { return key == "bad" })
		r.Send("bad")
		r.RunFor(25 * time.Hour)
		dead := must.Get(dlq.New(r.DLQ, nil))
		replay := func() {
			t.Helper()
			rep, err := dead.Replay(r.Context(), dlq.ReplayOptions{
				To: r.Q.Broker, Filter: dlq.Filter{Class: onceq.ClassClaimRefused},
			})
			if err != nil || rep.Replayed != 1 {
				t.Fatalf("the report is %+v, %v", rep, err)
			}
		}
		replay() // too soon
		r.RunFor(25 * time.Hour)
		if n := r.Seen.Started("bad"); n != 0 {
			t.Errorf("it ran %d times, unclaimed", n)
		}
		r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
		replay()
		r.RunFor(time.Minute)
		r.WantStatus("bad", dedupe.Done)
		if n := r.Seen.Started("bad"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		r.NoLetters()
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard))
}

// A store that answers no claim makes no letter, however quiet the queue is and however long that
// lasts.
func TestOutageOnAQuietQueueIsNoLetter(t *testing.T) {
	for name, breaks := range map[string]func(r *rig.Rig){
		"entry": func(r *rig.Rig) { erring(r, rig.ErrBoom, func(string) bool { return true }) },
		"call":  func(r *rig.Rig) { r.Store.Fails(rig.ErrBoom, "claim") },
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				breaks(r)
				r.Send("a")
				r.Start()
				rig.Pass(30 * time.Hour)
				if n := r.Q.Received("a"); n > 3 { // SQS lets it be held for twelve hours
					t.Errorf("%d receives", n)
				}
				r.Store.Heals()
				r.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
				rig.Pass(time.Hour)
				r.NoLetters()
				r.WantStatus("a", dedupe.Done)
			}, rig.Preset(membroker.SQSStandard), rig.Warnings)
		})
	}
}

// The dead-letter queue refuses letters, one by one, for a reason that may pass. Such letters must
// not keep the slots.
func TestRefusedLettersStopNobody(t *testing.T) {
	rig.Bubble(t, failsOn("p"), func(r *rig.Rig) {
		bad := rig.Numbered("p", 4)
		r.Send(bad...)
		r.Send("perfect")
		r.Start()
		rig.Pass(time.Minute)
		for n := range 60 {
			r.Send("ok-" + strconv.Itoa(n))
			rig.Pass(time.Minute)
		}
		for _, k := range bad {
			r.WantStatus(k, dedupe.Failed)
			if n := r.Q.Received(k); n < 2 || n > 13 {
				t.Errorf("%q was received %d times in an hour", k, n)
			}
			if r.Seen.Started(k) != 1 {
				t.Errorf("%q ran %d times", k, r.Seen.Started(k))
			}
		}
		r.WantQueue(int64(len(bad)))
		if n := r.Logged.Count("does not take a letter"); n < len(bad) {
			t.Errorf("%d log lines", n)
		}
	}, rig.Preset(membroker.SQSStandard), rig.Refusing(func(o *broker.Outgoing) error {
		if strings.HasPrefix(string(o.Body), "p0") {
			return rig.ErrBoom
		}
		return nil
	}), rig.With(func(c *rig.Setup) { c.Concurrency = 4 }))
}

// failsOn is a handler that fails for good where the body begins like this.
func failsOn(prefix string) onceq.HandlerFunc {
	return func(_ context.Context, j *onceq.Job) error {
		if strings.HasPrefix(string(j.Message.Body), prefix) {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}
}

// poisonClaims makes every claim fail as a whole that has the key "bad" among its entries.
func poisonClaims(r *rig.Rig) {
	r.Store.Set(func(s *rig.Store) {
		s.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
			if slices.ContainsFunc(rs, func(q dedupe.ClaimRequest) bool { return q.Key.Key == "bad" }) {
				panic("the store breaks on this key")
			}
			return cs
		}
	})
}
