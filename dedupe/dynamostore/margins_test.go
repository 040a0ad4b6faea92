package dynamostore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
)

// atPart waits until d of a second have gone by: a Date leaves them out.
func atPart(d time.Duration) {
	now := time.Now()
	<-time.After(now.Truncate(time.Second).Add(time.Second + d).Sub(now))
}

// TestMargins: whatever the host's clock says, at whatever part of a second, and for whatever time
// the first answer takes: the lease of a process's first claim is kept half a margin longer than
// its owner counts on it, and a process that has met one is not more than half a margin ahead of
// the service. So a lease is nobody else's before its Deadline.
func TestMargins(t *testing.T) {
	for _, way := range []time.Duration{0, 50 * time.Millisecond, 600 * time.Millisecond, 950 * time.Millisecond, 3 * time.Second} {
		for off := -4 * time.Second; off <= 4*time.Second; off += 150 * time.Millisecond {
			for part := time.Duration(0); part < time.Second; part += 130 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					table := &oneItem{tb: t}
					owner, st := stubbed(t, func(c stubCall) stubAnswer {
						a := table.answer(c)
						a.late = way // and has the Date of its begin
						return a
					})
					st.ahead = off
					atPart(part)
					l := claimOne(t, owner, request("k"))
					if left := timeOf(t, table.item, "lease_until").Add(-off).Sub(l.Deadline); left < margin/2 {
						t.Errorf("the service %v ahead, answering within %v, at %v: the lease ends %v after its deadline", off, way, part, left)
					}
					rival, st := stubbed(t, func(c stubCall) stubAnswer {
						retry.Rest(context.Background(), way) // and has the Date of its end
						return table.answer(c)
					})
					st.ahead = off
					atPart(part)
					claimAll(t, rival, request("k"))
					if now, known := rival.clock.now(); !known || time.Until(now.Add(-off)) > margin/2 {
						t.Errorf("the service %v ahead, answering within %v, at %v: after a refusal the time is %v ahead", off, way, part, time.Until(now.Add(-off)))
					}
				})
			}
		}
	}
}

// TestLeaseIsNotStolen: the owner's host is a second behind and the other's 2.4 s ahead, and their
// first answers take as long.
func TestLeaseIsNotStolen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way = 950 * time.Millisecond
		table := &oneItem{tb: t}
		owner, _ := stubbed(t, func(c stubCall) stubAnswer {
			a := table.answer(c)
			a.late = way
			return a
		})
		owner.clock.wall = func() time.Time { return time.Now().Add(-1050 * time.Millisecond) }
		atPart(100 * time.Millisecond)
		l := claimOne(t, owner, request("k"))
		rival, st := stubbed(t, nil)
		st.answer = func(c stubCall) stubAnswer {
			if len(st.calls) == 1 {
				<-time.After(way)
			}
			return table.answer(c)
		}
		rival.clock.wall = func() time.Time { return time.Now().Add(2400 * time.Millisecond) }
		<-time.After(time.Until(l.Deadline) - way - 60*time.Millisecond)
		if c := claimAll(t, rival, request("k"))[0]; c.Outcome != dedupe.InProgress || time.Until(l.Deadline) < 0 {
			t.Errorf("%v before its deadline a lease was answered %v", time.Until(l.Deadline), c.Outcome)
		}
	})
}

// TestClockSetBeforeSlowAnswer: the host's clock was set ahead by 4 s. The next answer takes as
// long, so that it does not contradict what was known before; which is worth nothing all the same.
func TestClockSetBeforeSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off time.Duration
		c := clock{wall: func() time.Time { return time.Now().Add(off) }}
		for range 50 {
			<-time.After(970 * time.Millisecond)
			c.observe(time.Now().Truncate(time.Second), c.host(), c.host(), 0)
		}
		off = 4 * time.Second
		sent, began := c.host(), time.Now()
		<-time.After(3500 * time.Millisecond)
		c.observe(time.Now().Truncate(time.Second), sent, c.host(), time.Since(began))
		now, known := c.now()
		if ahead := time.Until(now); !known || ahead > margin/2 || ahead+c.spread() < 0 {
			t.Errorf("the time is %v ahead, and open by %v; known: %v", ahead, c.spread(), known)
		}
	})
}

// TestRenewedLongerDeadline: a renewal meets a longer lease, by an answer that comes late. It was
// longer than what was asked for then, not than what would be asked for now.
func TestRenewedLongerDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := warmed(t, nil)
		k, token, end := request("k").Key, newToken(), time.Now().Add(time.Minute+margin+500*time.Millisecond)
		st.answer = func(c stubCall) stubAnswer {
			if c.n > 1 {
				return applied
			}
			it := rivalItem("claimed", map[string]time.Time{"lease_until": end})
			it["token"] = object{"S": token.Hex()}
			a := refused(it)
			a.late = 4 * time.Second
			return a
		}
		rs, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: k, Token: token, TTL: time.Minute}})
		if err != nil || rs[0].Err != nil || len(st.calls) != 2 {
			t.Fatal(rs, err, len(st.calls))
		}
		if d := end.Sub(rs[0].Deadline); d < margin {
			t.Errorf("the lease ends %v after its deadline", d)
		}
	})
}

// TestClaimedAgainAfterGuess: a call ends between the two writes of its claim, or before it has the
// answer to the first, and its caller claims with the same token again. The host was four minutes
// ahead: neither lease nor fence stay so.
func TestClaimedAgainAfterGuess(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			table := &oneItem{tb: t}
			s, st := stubbed(t, nil)
			s.clock.wall = func() time.Time { return time.Now().Add(4 * time.Minute) }
			st.answer = func(c stubCall) stubAnswer {
				if len(st.calls) > 1 {
					return stubAnswer{silent: true}
				}
				a := table.answer(c)
				a.silent = lost
				return a
			}
			q := request("k")
			if cs, err := s.Claim(within(t, time.Second), []dedupe.ClaimRequest{q}); err == nil {
				t.Fatalf("answered %+v", cs)
			}
			st.answer = table.answer
			c := claimAll(t, s, q)[0]
			if c.Outcome != dedupe.Won || !c.Fresh || c.Lease.Attempt != 1 {
				t.Errorf("answered %+v", c)
			}
			expectTimes(t, "claimed again", table.item, q, c.Lease, time.Now())
		})
	}
}
