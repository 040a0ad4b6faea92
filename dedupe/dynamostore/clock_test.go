package dynamostore

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// TestClock: from Dates in whole seconds, on ways of up to 300 ms, the clock comes within half a
// second at once, and within some ten milliseconds in time, however wrong the host's clock is.
func TestClock(t *testing.T) {
	for _, off := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 20 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := clock{wall: func() time.Time { return time.Now().Add(off) }}
			if _, known := c.now(); known {
				t.Error("a new clock knows the time")
			}
			var last time.Time
			for n := range 200 {
				sent, began := c.host(), time.Now()
				<-time.After(rand.N(150 * time.Millisecond))
				date := time.Now().Truncate(time.Second)
				<-time.After(rand.N(150 * time.Millisecond))
				c.observe(date, sent, c.host(), time.Since(began))
				most := 700 * time.Millisecond
				if n == 199 {
					most = 60 * time.Millisecond
				}
				now, known := c.now()
				if !known || time.Until(now).Abs() > most {
					t.Fatalf("%v off, after %d answers the clock is wrong by %v", off, n+1, time.Until(now))
				}
				if !now.After(last) {
					t.Fatalf("%v off, after %d answers the clock goes back by %v, or stands still", off, n+1, last.Sub(now))
				}
				last = now
			}
		})
	}
}

// TestClockSteps: the host's clock is set, or the host sleeps, so that its monotonic clock stands
// still. Then nothing is known until the next answer.
func TestClockSteps(t *testing.T) {
	for name, step := range map[string]time.Duration{"set back": -10 * time.Minute, "set ahead, or slept": 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			off := time.Duration(0)
			c := clock{wall: func() time.Time { return time.Now().Add(off) }}
			observe := func() {
				c.observe(time.Now().Truncate(time.Second), c.host(), c.host(), 0)
			}
			observe()
			<-time.After(time.Hour)
			if _, known := c.now(); !known {
				t.Errorf("%s: after an hour the time is forgotten", name)
			}
			off = step
			if _, known := c.now(); known {
				t.Errorf("%s: not seen", name)
			}
			observe()
			if now, known := c.now(); !known || time.Until(now).Abs() > time.Second {
				t.Errorf("%s: the clock is wrong by %v afterwards", name, time.Until(now))
			}
		})
	}
}

// TestClockDrifts: the host's clock runs slowly away from the service's, which contradicts what was
// learnt before.
func TestClockDrifts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		// The host runs 500 ppm fast.
		c := clock{wall: func() time.Time { return time.Now().Add(time.Since(began) / 2000) }}
		for range 24 * 60 {
			<-time.After(time.Minute)
			c.observe(time.Now().Truncate(time.Second), c.host(), c.host(), 0)
			if now, known := c.now(); !known || time.Until(now).Abs() > 1100*time.Millisecond {
				t.Fatalf("after %v the clock is wrong by %v", time.Since(began), time.Until(now))
			}
		}
	})
}

// TestWrongClocks: one worker's clock is ten minutes ahead, the other's ten minutes behind. A live
// lease is left alone, a dead one is taken, both at the right time, and the stale token changes
// nothing.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	ahead := openStore(t)
	behind := second(t, ahead)
	ahead.clock.wall = func() time.Time { return time.Now().Add(10 * time.Minute) }
	behind.clock.wall = func() time.Time { return time.Now().Add(-10 * time.Minute) }
	for name, w := range map[string][2]*Store{"the owner is ahead": {ahead, behind}, "the owner is behind": {behind, ahead}} {
		owner, rival := w[0], w[1]
		// Two new processes.
		owner.clock, rival.clock = clock{wall: owner.clock.wall}, clock{wall: rival.clock.wall}
		q := request(name)
		old := claimOne(t, owner, q)
		if d := time.Until(old.Deadline); d > q.TTL || d < q.TTL-10*time.Second {
			t.Errorf("%s: its own deadline is in %v, by its own clock", name, d)
		}
		c := claimAll(t, rival, request(name))[0]
		if c.Outcome != dedupe.InProgress || (c.Left-q.TTL-margin).Abs() > 10*time.Second || c.Age > 10*time.Second {
			t.Errorf("%s: a live lease of %v was answered %v, left %v, age %v", name, q.TTL, c.Outcome, c.Left, c.Age)
		}
		if err := renewOne(t, owner, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: 2 * time.Minute}); err != nil {
			t.Errorf("%s: renewal: %v", name, err)
		}
		age(t, owner, q.Key, 100*time.Second)
		if c := claimAll(t, rival, request(name))[0]; c.Outcome != dedupe.InProgress {
			t.Errorf("%s: a lease with 20 s left was answered %v", name, c.Outcome)
		}
		age(t, owner, q.Key, 40*time.Second)
		now := claimOne(t, rival, request(name)) // dead for 20 s
		if now.Fence <= old.Fence {
			t.Errorf("%s: fence %d after %d", name, now.Fence, old.Fence)
		}
		if err := renewOne(t, owner, dedupe.Renewal{Key: q.Key, Token: q.Token, TTL: time.Hour}); !errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("%s: the stale renewal: %v", name, err)
		}
		if _, err := settle(t, owner, dedupe.Settlement{Key: q.Key, Token: q.Token, To: dedupe.Done, Result: []byte("stale")}); !errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("%s: the stale settlement: %v", name, err)
		}
		if c := claimAll(t, owner, request(name))[0]; c.Outcome != dedupe.InProgress {
			t.Errorf("%s: the new claim is not seen: %v", name, c.Outcome)
		}
		settleOne(t, rival, now, dedupe.Done)
		// After a deletion by TTL the clock is the floor of the fence, on either worker.
		deleteRaw(t, owner, q.Key)
		<-time.After(1100 * time.Millisecond) // two clocks may differ by what a Date leaves open
		l := claimOne(t, owner, request(name))
		if l.Fence <= now.Fence {
			t.Errorf("%s: after a deletion the fence is %d, and was %d", name, l.Fence, now.Fence)
		}
		settleOne(t, owner, l, dedupe.Failed)
		deleteRaw(t, owner, q.Key)
		<-time.After(1100 * time.Millisecond)
		if again := claimOne(t, rival, request(name)); again.Fence <= l.Fence {
			t.Errorf("%s: after a deletion the fence is %d, and was %d", name, again.Fence, l.Fence)
		}
	}
}

// TestFenceOutlivesItsItem: TTL has deleted the record after half a minute, and with it the fence.
// The next one is higher all the same, where the times of the two workers are as far apart as they
// can be. The first goes by a guess that just stands: a second ahead of its estimate, which is a
// second ahead of the service. The other knows the time from an answer that took ten seconds.
func TestFenceOutlivesItsItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at a whole second
		table := &oneItem{tb: t}
		on := func(before, after time.Duration) *Store {
			s, _ := stubbed(t, func(c stubCall) stubAnswer {
				<-time.After(before)
				a := table.answer(c)
				a.late = after
				return a
			})
			return s
		}
		first := on(time.Second, 0)
		first.clock.wall = func() time.Time { return time.Now().Add(1990 * time.Millisecond) }
		began := time.Now()
		l := claimOne(t, first, request("k"))
		if d := time.UnixMilli(int64(l.Fence)).Sub(began); d < 1900*time.Millisecond {
			t.Fatalf("the first worker's time is %v ahead", d)
		}
		<-time.After(999 * time.Millisecond)
		table.item = nil
		other := on(0, 9900*time.Millisecond)
		claimOne(t, other, request("whose answer tells the time"))
		if d := time.Until(other.now()); d > -9*time.Second {
			t.Fatalf("the other worker's time is %v ahead", d)
		}
		// The worker that has settled the record was behind as well.
		<-time.After(time.Until(began.Add(30*time.Second - 10*time.Second)))
		table.item = nil
		if c := claimAll(t, other, request("k"))[0]; !c.Fresh || c.Lease.Fence <= l.Fence {
			t.Errorf("%+v after fence %d", c, l.Fence)
		}
	})
}

// TestSuspendedHost: a virtual machine is suspended and both of its clocks stand still. What the
// next write says of the time is wrong, its answer tells, and it is made again: else the lease
// would be dead to others while its owner counts on it.
func TestSuspendedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written any
		s, st := stubbed(t, func(stubCall) stubAnswer { return applied })
		claimAll(t, s, request("before"))
		sleep := func() {
			st.ahead += 10 * time.Minute
			st.calls = nil
		}
		check := func(what, op string, deadline time.Time) {
			t.Helper()
			cs := st.of(op)
			if left := time.Until(leaseEnd(t, cs).Add(-st.ahead)); len(cs) != 2 || left < time.Until(deadline) || left > time.Until(deadline)+2*margin {
				t.Errorf("%s: after %d writes the lease ends in %v, and for its owner in %v", what, len(cs), left, time.Until(deadline))
			}
		}
		sleep()
		q := request("k")
		c := claimAll(t, s, q)[0]
		check("a claim", "PutItem", c.Lease.Deadline)
		puts := st.of("PutItem")
		if !c.Fresh || c.Lease.Attempt != 1 || c.Lease.Fence == 0 || puts[1].in["ConditionExpression"] == puts[0].in["ConditionExpression"] {
			t.Errorf("the claim is %+v, on the condition %v", c, puts[1].in["ConditionExpression"])
		}
		sleep()
		rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: q.TTL}})
		if err != nil || rs[0].Err != nil {
			t.Fatal(rs, err)
		}
		check("a renewal", "UpdateItem", rs[0].Deadline)

		// Between the refusal and the writing of what the table makes of it. It stays the second
		// attempt.
		table := &oneItem{tb: t, item: rivalItem("released", map[string]time.Time{"expires_at": time.Now().Add(st.ahead + time.Hour)})}
		st.calls, st.answer = nil, func(c stubCall) stubAnswer {
			if len(st.calls) == 2 {
				st.ahead += 10 * time.Minute
			}
			return table.answer(c)
		}
		c = claimAll(t, s, request("k"))[0]
		if left := timeOf(t, table.item, "lease_until").Add(-st.ahead).Sub(c.Lease.Deadline); c.Fresh || c.Lease.Attempt != 2 || len(st.calls) != 3 || left < 0 || left > 2*margin {
			t.Errorf("after %d calls the claim is %+v, and its lease ends %v after its deadline", len(st.calls), c, left)
		}

		// Another was quicker.
		st.answer = func(c stubCall) stubAnswer {
			if c.op == "PutItem" && c.n == 1 {
				written = c.in["Item"]
				return applied
			}
			rival := maps.Clone(written.(object))
			rival["token"], rival["version"] = object{"S": newToken().Hex()}, object{"N": "2"}
			rival["lease_until"] = object{"N": strconv.FormatInt(time.Now().Add(st.ahead+time.Minute).UnixMicro(), 10)}
			return refused(rival)
		}
		sleep()
		if c := claimAll(t, s, request("k"))[0]; c.Outcome != dedupe.InProgress {
			t.Errorf("a lease that another has taken at once was answered %v", c.Outcome)
		}
	})
}

// TestSteppedInACall: in the middle of a claim the host's clock, which is ten minutes wrong, is
// set. What is known of the time is worth nothing then, and the host's own time is worth less: a
// live lease is left alone, and a claim that was won is made sure of.
func TestSteppedInACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wrong := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
			off := wrong
			table := &oneItem{tb: t}
			s, st := stubbed(t, table.answer)
			s.clock.wall = func() time.Time { return time.Now().Add(off) }
			// learn makes the time known, and set the clock be set on the way of the next call.
			learn := func() {
				table.item, off = nil, wrong
				claimAll(t, s, request("k"))
			}
			set := func() {
				st.calls, st.answer = nil, func(c stubCall) stubAnswer {
					off, st.answer = wrong+5*time.Second, table.answer
					return table.answer(c)
				}
			}
			learn()
			set()
			if c := claimAll(t, s, request("k"))[0]; c.Outcome != dedupe.InProgress || (c.Left-time.Minute-margin).Abs() > 2*time.Second || len(st.calls) != 2 {
				t.Errorf("%v wrong: a live lease was answered %v, left %v, after %d calls", wrong, c.Outcome, c.Left, len(st.calls))
			}
			learn()
			table.item = nil
			set()
			l := claimOne(t, s, request("k"))
			if left := time.Until(timeOf(t, table.item, "lease_until")); len(st.of("PutItem")) != 3 || (left-time.Until(l.Deadline)-margin).Abs() > margin/2 {
				t.Errorf("%v wrong: after %d writes the lease ends in %v, and for its owner in %v", wrong, len(st.of("PutItem")), left, time.Until(l.Deadline))
			}
			learn()
			table.item["token"] = object{"S": l.Token.Hex()}
			set()
			rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: time.Minute}})
			if err != nil || rs[0].Err != nil {
				t.Fatal(rs, err)
			}
			if left := time.Until(leaseEnd(t, st.of("UpdateItem"))); len(st.of("UpdateItem")) != 3 || (left-time.Until(rs[0].Deadline)-margin).Abs() > margin/2 {
				t.Errorf("%v wrong: after %d writes the renewed lease ends in %v, and for its owner in %v", wrong, len(st.of("UpdateItem")), left, time.Until(rs[0].Deadline))
			}
		}
	})
}
