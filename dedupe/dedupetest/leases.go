package dedupetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of leases: deadlines, renewals, takeovers. Run calls each in a subtest
// with a store of its own.

func leaseCases() []testCase {
	return []testCase{
		{
			Name: "renew-never-shortens",
			Rule: "a renewal and a repeated claim never shorten a lease",
			Run:  renewNeverShortens,
		},
		{
			Name: "renew-a-dead-lease",
			Rule: "a dead lease that nobody took is renewed, and lives again",
			Run:  renewDead,
		},
		{
			Name: "started-and-state",
			Rule: "Started and State are kept with the claim; the state goes to the next attempt, Started does not; no State leaves it, an empty one replaces it",
			Run:  startedAndState,
		},
		{
			Name: "state-order",
			Rule: "a state takes the place of one with a lower number only; a late one is left out, its renewal succeeds, and the numbers go on over attempts",
			Run:  stateOrder,
		},
		{
			Name: "park-by-record-or-claimer",
			Rule: "a dead claim that started is parked when the record or the claimer says Park; one that did not start is taken over",
			Run:  parkByEither,
		},
		{
			Name: "left-and-age",
			Rule: "in-progress tells how long the lease still lives and how old the claim is",
			Run:  leftAndAge,
		},
		{
			Name:  "clock-of-the-second-handle",
			Rule:  "two processes see a lease live and die at the same time",
			Needs: []need{second},
			Run:   secondClock,
		},
	}
}

func renewNeverShortens(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: 5 * ttl})
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl})
	e.claim(q)
	e.age(k, 4*ttl)
	if c := e.claim(e.request(k)); c.Outcome != dedupe.InProgress {
		e.Errorf("after a renewal of 5 h and one of 1 h the lease was dead 4 h later: %v", c.Outcome)
	}
}

func renewDead(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	e.age(k, 3*ttl)
	if err := e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl}); err != nil {
		e.Errorf("Renew was answered %v", err)
	}
	e.age(k, ttl/2)
	if c := e.claim(e.request(k)); c.Outcome != dedupe.InProgress {
		e.Errorf("a claim within the renewed lease was answered %v", c.Outcome)
	}
	e.age(k, 3*ttl)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done})
}

func startedAndState(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	state := []byte("bytes \x00\xff of a state")
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, Started: true, State: state})
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl})
	if r := e.get(k); !r.Started || !same(r.State, state) {
		e.Errorf("a plain renewal left Started %v and state %s", r.Started, show(r.State))
	}
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released})
	q = e.request(k)
	if c := e.claim(q); !same(c.State, state) {
		e.Errorf("the next attempt got state %s", show(c.State))
	}
	if e.get(k).Started {
		e.Errorf("the next attempt counts as started before it began")
	}
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, State: []byte{}})
	e.age(k, 2*ttl)
	if c := e.claim(e.request(k)); len(c.State) != 0 {
		e.Errorf("after an empty state the next attempt got %s", show(c.State))
	}
}

func stateOrder(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	save := func(no int, state string, want string) {
		e.Helper()
		e.Doing = fmt.Sprintf("state %d, %q", no, state)
		if err := e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, State: []byte(state), StateNo: no}); err != nil {
			e.Errorf("the renewal was answered %v", err)
		}
		if r := e.get(k); string(r.State) != want {
			e.Errorf("the state is %s, want %q", show(r.State), want)
		}
	}
	save(2, "two", "two")
	save(2, "two", "two") // its answer was lost
	save(1, "one, which was given up", "two")
	save(2, "another two", "two")
	save(255, "255", "255")
	save(256, "256", "256")
	save(3, "three", "256")
	save(1000, "", "")
	save(999, "999", "")
	if err := e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: 5 * ttl, State: []byte("late"), StateNo: 4}); err != nil {
		e.Errorf("a late state with a longer lease was answered %v", err)
	}
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, State: []byte("1001"), StateNo: 1001})
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Failed, ErrClass: "timeout", ErrText: "slow"})
	q = e.request(k)
	q.Reopen = e.at(k).Fence
	if c := e.claim(q); c.StateNo != 1001 || string(c.State) != "1001" {
		e.Errorf("the next attempt got state %s, number %d", show(c.State), c.StateNo)
	}
	save(1, "a new attempt that does not count on", "1001")
	save(1002, "1002", "1002")
	e.Doing = "a state without a number"
	for _, no := range []int{0, -1} {
		rs, err := e.s.Renew(e.Context(), []dedupe.Renewal{{Key: k, Token: q.Token, TTL: ttl, State: []byte("x"), StateNo: no}})
		if err != nil || len(rs) != 1 || !errors.Is(rs[0].Err, dedupe.ErrBadRequest) {
			e.Errorf("number %d was answered %+v, %v; want ErrBadRequest", no, rs, err)
		}
	}
	e.stored(k)
	e.Doing = "the key begins anew"
	e.forget(dedupe.Forgotten{Key: k, Fence: e.at(k).Fence, Force: true})
	q = e.request(k)
	if c := e.claim(q); c.StateNo != 0 || c.State != nil {
		e.Errorf("it got state %s, number %d", show(c.State), c.StateNo)
	}
	save(1, "one", "one")
}

func parkByEither(e *env) {
	for _, c := range []struct {
		name            string
		record, claimer dedupe.Policy
		started         bool
		want            dedupe.Outcome
	}{
		{"record says Park", dedupe.Park, dedupe.Rerun, true, dedupe.IsParked},
		{"claimer says Park", dedupe.Rerun, dedupe.Park, true, dedupe.IsParked},
		{"both say Rerun", dedupe.Rerun, dedupe.Rerun, true, dedupe.Won},
		{"not started", dedupe.Park, dedupe.Park, false, dedupe.Won},
	} {
		e.Doing = c.name
		k := key(c.name)
		q := e.request(k)
		q.Policy = c.record
		e.claim(q)
		e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, Started: c.started})
		e.age(k, 2*ttl)
		late := q.Token
		q = e.request(k)
		q.Policy = c.claimer
		if got := e.claim(q); got.Outcome != c.want {
			e.Errorf("the claim was answered %v, want %v", got.Outcome, c.want)
		}
		if c.want == dedupe.IsParked {
			// Nobody else has run it, so the owner that was only silent still has the last word.
			if a := e.settle(dedupe.Settlement{Key: k, Token: late, To: dedupe.Done, Result: []byte("late")}); a.Status != dedupe.Done {
				e.Errorf("the late word of the parked claim was answered %v, %v", a.Status, a.Err)
			}
		}
	}
}

func leftAndAge(e *env) {
	k := key("k")
	q := e.request(k)
	q.TTL = 2 * ttl
	e.claim(q)
	e.age(k, ttl/2)
	c := e.claim(e.request(k))
	e.near("Left", c.Left, 3*ttl/2)
	e.near("Age", c.Age, ttl/2)
	e.near("Term", c.Term, 2*ttl)
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: 2 * ttl})
	c = e.claim(e.request(k))
	e.near("Term after a renewal", c.Term, 2*ttl)
	e.near("Left after a renewal", c.Left, 2*ttl)
	e.near("Age after a renewal", c.Age, ttl/2)
}

func secondClock(e *env) {
	other := e.on(e.subject.Second(e.TB))
	k := key("k")
	q := e.request(k)
	e.claim(q)
	other.stored(k)
	c := other.claim(other.request(k))
	other.near("Left", c.Left, ttl)
	e.age(k, ttl-5*time.Minute)
	if c := other.claim(other.request(k)); c.Outcome != dedupe.InProgress {
		e.Errorf("5 minutes before the end the second handle was answered %v", c.Outcome)
	}
	e.age(k, 10*time.Minute)
	q2 := other.request(k)
	if c := other.claim(q2); c.Outcome != dedupe.Won {
		e.Errorf("5 minutes after the end the second handle was answered %v", c.Outcome)
	}
	// What the second handle took, the first one has lost.
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl})
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done})
	other.settle(dedupe.Settlement{Key: k, Token: q2.Token, To: dedupe.Done, Result: []byte("second")})
	e.claim(e.request(k))
}
