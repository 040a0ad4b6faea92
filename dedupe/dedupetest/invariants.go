package dedupetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of the invariants I1 to I4, I8 and I9, and of the reopening, each
// attacked with everything that a caller can send. Run calls each in a subtest with a store of its
// own.

func invariantCases() []testCase {
	return []testCase{
		{
			Name: "i1-one-winner",
			Rule: "at most one live (token, fence) exists for a key: of many claims at once, exactly one wins and the others are answered in-progress",
			Run:  oneWinner,
		},
		{
			Name:  "i1-one-winner-on-two-handles",
			Rule:  "at most one live (token, fence) exists for a key, whatever the number of processes",
			Needs: []need{second},
			Run:   func(e *env) { oneWinnerOf(e, e.s, e.subject.Second(e.TB)) },
		},
		{
			Name: "i1-one-takeover",
			Rule: "of many claims that find a dead lease at once, exactly one takes it over",
			Run:  oneTakeover,
		},
		{
			Name: "i2-fence-rises",
			Rule: "the fence of a key only rises: over releases, takeovers, failures, expiry and Forget",
			Run:  fenceRises,
		},
		{
			Name: "i3-done-never-changes",
			Rule: "a done record never changes until its retention ends, whoever calls",
			Run:  doneNeverChanges,
		},
		{
			Name: "i3-failed-and-parked-change-by-their-fence",
			Rule: "a failed or parked record changes only by the claim that names its fence",
			Run:  failedChangesByFence,
		},
		{
			Name: "i4-stale-token-changes-nothing",
			Rule: "a stale token gets ErrLeaseLost from Renew and Settle, whatever they ask, and changes nothing",
			Run:  staleToken,
		},
		{
			Name: "i8-lost-reply",
			Rule: "a claim whose answer was lost can be repeated by its caller and wins again, with the same fence, attempt, state and freshness",
			Run:  lostReply,
		},
		{
			Name: "i9-keys-never-meet",
			Rule: "scope and key are two values: no choice of them meets another pair's record",
			Run:  keysNeverMeet,
		},
		{
			Name: "reopen-once",
			Rule: "of many letters of one failure that are replayed at once, exactly one reopens it",
			Run:  reopenOnce,
		},
	}
}

const crowd = 16

// rush claims k with a token for each of n callers, all at once, through the handles in turn.
func (e *env) rush(k dedupe.Key, n int, reopen uint64, handles ...dedupe.Store) ([]dedupe.ClaimRequest, []dedupe.Claim) {
	e.Helper()
	qs, cs := make([]dedupe.ClaimRequest, n), make([]dedupe.Claim, n)
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		qs[i] = e.request(k)
		qs[i].Reopen = reopen
		wg.Go(func() {
			<-gate
			cs[i] = e.claimKnown(handles[i%len(handles)], qs[i])
		})
	}
	close(gate)
	wg.Wait()
	return qs, cs
}

// claimKnown claims past the model and repeats the call while the store is busy.
func (e *env) claimKnown(s dedupe.Store, q dedupe.ClaimRequest) (c dedupe.Claim) {
	err := e.untilKnown(1, func() (n int, at func(int) error, err error) {
		cs, err := s.Claim(e.Context(), []dedupe.ClaimRequest{q})
		if len(cs) == 1 {
			c = cs[0]
		}
		return len(cs), func(i int) error { return cs[i].Err }, err
	})
	if err != nil {
		c.Err = err
	}
	return c
}

// onlyWinner finds the one claim that won; all others must have the outcome lost.
func (e *env) onlyWinner(qs []dedupe.ClaimRequest, cs []dedupe.Claim, lost dedupe.Outcome) (dedupe.ClaimRequest, dedupe.Claim) {
	e.Helper()
	winner := -1
	for i := range cs {
		switch {
		case cs[i].Err != nil:
			e.Fatalf("caller %d was answered %v", i, cs[i].Err)
		case cs[i].Outcome == dedupe.Won && winner >= 0:
			e.Fatalf("callers %d and %d have both won, with fences %d and %d", winner, i, cs[winner].Lease.Fence, cs[i].Lease.Fence)
		case cs[i].Outcome == dedupe.Won:
			winner = i
		case cs[i].Outcome != lost:
			e.Fatalf("caller %d was answered %v, want %v", i, cs[i].Outcome, lost)
		}
	}
	if winner < 0 {
		e.Fatalf("none of %d callers has won", len(cs))
	}
	return qs[winner], cs[winner]
}

func oneWinner(e *env) { oneWinnerOf(e, e.s) }

func oneWinnerOf(e *env, handles ...dedupe.Store) {
	k := key("contended")
	fences := make(map[uint64]bool)
	for round := range 8 {
		e.Doing = fmt.Sprintf("round %d of %d callers", round+1, crowd)
		qs, cs := e.rush(k, crowd, 0, handles...)
		q, c := e.onlyWinner(qs, cs, dedupe.InProgress)
		if fences[c.Lease.Fence] {
			e.Fatalf("the fence %d was given twice", c.Lease.Fence)
		}
		fences[c.Lease.Fence] = true
		e.expectClaim(&q, &c, time.Now(), time.Now())
		e.stored(k)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released})
	}
}

func oneTakeover(e *env) {
	k := key("dead")
	for round := range 4 {
		e.Doing = fmt.Sprintf("round %d of %d callers", round+1, crowd)
		qs, cs := e.rush(k, crowd, 0, e.s)
		q, c := e.onlyWinner(qs, cs, dedupe.InProgress)
		e.expectClaim(&q, &c, time.Now(), time.Now())
		e.stored(k)
		e.age(k, 2*ttl)
	}
}

func fenceRises(e *env) {
	k := key("k")
	claim := func(reopen uint64) dedupe.Token {
		e.Helper()
		q := e.request(k)
		q.Reopen = reopen
		// claim checks with the model that the fence has risen.
		if c := e.claim(q); c.Outcome != dedupe.Won {
			e.Fatalf("a claim of %s was answered %v, want won", brief(e.at(k)), c.Outcome)
		}
		return q.Token
	}
	end := func(t dedupe.Token, to dedupe.Status) {
		e.Helper()
		e.settle(dedupe.Settlement{Key: k, Token: t, To: to, Retain: retain})
	}
	for round := range 3 {
		e.Doing = fmt.Sprintf("round %d", round+1)
		end(claim(0), dedupe.Released)
		claim(0)
		e.age(k, 2*ttl)
		end(claim(0), dedupe.Failed)
		end(claim(e.at(k).Fence), dedupe.Parked)
		end(claim(e.at(k).Fence), dedupe.Done)
		e.age(k, 2*retain)
		end(claim(0), dedupe.Failed)
		e.forget(dedupe.Forgotten{Key: k, Fence: e.at(k).Fence})
		claim(0)
		e.forget(dedupe.Forgotten{Key: k, Fence: e.at(k).Fence, Force: true})
		// Another key's claims must not bring the first one's fence back.
		other := key(fmt.Sprintf("other-%d", round))
		e.claim(e.request(other))
	}
}

// attack tries everything on k except the claim that names its fence. The calls compare the record
// each time.
func (e *env) attack(k dedupe.Key, tokens ...dedupe.Token) {
	e.Helper()
	for _, t := range append(tokens, e.token()) {
		for _, to := range []dedupe.Status{dedupe.Released, dedupe.Failed, dedupe.Done, dedupe.Parked} {
			for _, joined := range []bool{false, true} {
				e.settle(dedupe.Settlement{
					Key: k, Token: t, To: to, Joined: joined, Result: []byte("stolen"), ErrClass: "x", ErrText: "x", Uncounted: true, Retain: time.Second,
				})
			}
		}
		e.renew(dedupe.Renewal{Key: k, Token: t, TTL: 9 * ttl, Started: true, State: []byte("stolen")})
		for _, wrong := range []uint64{0, e.at(k).Fence - 1, e.at(k).Fence + 1} {
			q := dedupe.ClaimRequest{Key: k, Token: t, TTL: 9 * ttl, Policy: dedupe.Park, Reopen: wrong, Fingerprint: []byte("other"), Owner: "thief"}
			e.claim(q)
		}
		e.forget(dedupe.Forgotten{Key: k, Fence: e.at(k).Fence + 1, Force: true})
	}
}

func doneNeverChanges(e *env) {
	k := key("k")
	first := e.request(k)
	e.claim(first)
	e.age(k, 2*ttl)
	q := e.request(k)
	q.Fingerprint = []byte("payload")
	e.claim(q)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: []byte("receipt"), Retain: retain})
	was := e.get(k)
	e.attack(k, first.Token, q.Token)
	again := e.request(k)
	again.Reopen = e.at(k).Fence
	e.claim(again)
	e.age(k, retain/2)
	e.attack(k, first.Token, q.Token)
	is := e.get(k)
	if is == nil || is.Fence != was.Fence || is.Status != dedupe.Done || !same(is.Result, []byte("receipt")) {
		e.Errorf("the done record became %s with result %s", brief(is), show(is.Result))
	}
}

func failedChangesByFence(e *env) {
	for _, to := range []dedupe.Status{dedupe.Failed, dedupe.Parked} {
		e.Doing = to.String()
		k := key(to.String())
		first := e.request(k)
		e.claim(first)
		e.age(k, 2*ttl)
		q := e.request(k)
		e.claim(q)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to, ErrClass: "timeout", ErrText: "slow", Retain: retain})
		// A parked record takes its own token's word, so only the other token is tried.
		e.attack(k, first.Token)
		again := e.request(k)
		again.Reopen = e.at(k).Fence
		if c := e.claim(again); c.Outcome != dedupe.Won || c.Lease.Attempt != 1 {
			e.Errorf("the claim that names the fence was answered %v with attempt %d, want won with 1", c.Outcome, c.Lease.Attempt)
		}
	}
}

func staleToken(e *env) {
	k := key("k")
	old := e.request(k)
	e.claim(old)
	e.age(k, 2*ttl)
	q := e.request(k)
	e.claim(q)
	try := func() {
		e.Helper()
		if err := e.renew(dedupe.Renewal{Key: k, Token: old.Token, TTL: 9 * ttl, Started: true, State: []byte("stolen")}); !errors.Is(err, dedupe.ErrLeaseLost) {
			e.Errorf("Renew was answered %v", err)
		}
		for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released, dedupe.Parked} {
			a := e.settle(dedupe.Settlement{Key: k, Token: old.Token, To: to, Result: []byte("stolen"), Uncounted: true})
			if !errors.Is(a.Err, dedupe.ErrLeaseLost) {
				e.Errorf("Settle to %v was answered %v, %v", to, a.Status, a.Err)
			}
		}
	}
	for _, to := range []dedupe.Status{dedupe.Released, dedupe.Failed, dedupe.Parked, dedupe.Done} {
		e.Doing = "the other claim is live, later " + to.String()
		try()
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to})
		try()
		q = e.request(k)
		q.Reopen = e.at(k).Fence
		e.claim(q)
	}
}

func lostReply(e *env) {
	repeat := func(q dedupe.ClaimRequest, what string) {
		e.Helper()
		e.Doing = what
		c := e.claim(q)
		for range 2 {
			again := e.claim(q)
			if again.Outcome != dedupe.Won || again.Lease.Fence != c.Lease.Fence || again.Lease.Attempt != c.Lease.Attempt ||
				again.Fresh != c.Fresh || again.FirstErr != c.FirstErr || !same(again.State, c.State) || again.StateNo != c.StateNo {
				e.Errorf("the answer was %v (fence %d, attempt %d, fresh %v), repeated %v (fence %d, attempt %d, fresh %v)",
					c.Outcome, c.Lease.Fence, c.Lease.Attempt, c.Fresh, again.Outcome, again.Lease.Fence, again.Lease.Attempt, again.Fresh)
			}
		}
	}
	k := key("k")
	q := e.request(k)
	repeat(q, "the first claim of a key")
	e.age(k, 2*ttl)
	repeat(q, "its own lease is dead")
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, State: []byte("step 1")})
	e.age(k, 2*ttl)
	q = e.request(k)
	repeat(q, "a takeover")
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released, ErrClass: "timeout", ErrText: "slow"})
	e.age(k, time.Minute)
	q = e.request(k)
	repeat(q, "a claim after a release")
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Failed, ErrClass: "timeout", ErrText: "slower"})
	e.age(k, time.Minute)
	q = e.request(k)
	q.Reopen = e.at(k).Fence
	repeat(q, "a claim that reopens")
}

func keysNeverMeet(e *env) {
	pairs := []dedupe.Key{
		{Scope: "a", Key: "b:c"},
		{Scope: "a:b", Key: "c"},
		{Scope: "a/b", Key: "c"},
		{Scope: "a", Key: "b/c"},
		{Scope: "ab", Key: "c"},
		{Scope: "a", Key: "bc"},
		{Scope: "A", Key: "bc"},
		{Scope: "a", Key: "BC"},
		{Scope: "a", Key: "bc "},
		{Scope: "a ", Key: "bc"},
		{Scope: "bc", Key: "a"},
		{Scope: "a|b", Key: "c"},
		{Scope: "a", Key: "b|c"},
		{Scope: "a", Key: "b#c"},
		{Scope: "a#b", Key: "c"},
		// The same letter, composed and decomposed.
		{Scope: "a", Key: "\u00e9"},
		{Scope: "a", Key: "e\u0301"},
		{Scope: "a", Key: "1"},
		{Scope: "a", Key: "01"},
		{Scope: "a", Key: "1.0"},
	}
	for i, k := range pairs {
		e.Doing = fmt.Sprintf("scope %q, key %q", k.Scope, k.Key)
		q := e.request(k)
		if c := e.claim(q); c.Outcome != dedupe.Won || !c.Fresh {
			e.Fatalf("its first claim was answered %v (fresh %v)", c.Outcome, c.Fresh)
		}
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: fmt.Appendf(nil, "result %d", i)})
	}
	for _, k := range pairs {
		e.Doing = fmt.Sprintf("scope %q, key %q", k.Scope, k.Key)
		// claim compares the result, too.
		e.claim(e.request(k))
	}
}

func reopenOnce(e *env) {
	for _, to := range []dedupe.Status{dedupe.Failed, dedupe.Parked} {
		e.Doing = to.String()
		k := key(to.String())
		q := e.request(k)
		e.claim(q)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to, ErrClass: "timeout", ErrText: "slow"})
		letter := e.at(k).Fence
		qs, cs := e.rush(k, crowd, letter, e.s)
		q, c := e.onlyWinner(qs, cs, dedupe.InProgress)
		e.expectClaim(&q, &c, time.Now(), time.Now())
		e.stored(k)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Failed, ErrClass: "timeout", ErrText: "slow again"})
		// The first failure's letter again: it names a fence that is gone.
		q = e.request(k)
		q.Reopen = letter
		if c := e.claim(q); c.Outcome != dedupe.AlreadyFailed || c.Record.Fence == letter {
			e.Errorf("the letter of the earlier failure was answered %v with %s, want already-failed with the newer fence", c.Outcome, brief(c.Record))
		}
	}
}
