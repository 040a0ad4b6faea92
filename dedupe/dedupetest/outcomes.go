package dedupetest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of settlements: what each end stores and answers. Run calls each in a
// subtest with a store of its own.

func outcomeCases() []testCase {
	return []testCase{
		{
			Name: "settle-again",
			Rule: "repeating a settlement is success and changes nothing, even when the repeat asks for something else",
			Run:  settleAgain,
		},
		{
			Name: "late-packet",
			Rule: "a claim request that arrives after its claim was released is stale: it must not bring the claim back",
			Run:  latePacket,
		},
		{
			Name: "late-release-stays-parked",
			Rule: "a parked claim that its own worker releases late stays parked, with the worker's word as its last error; a replay's claim with its fence wins, an operator releases it, and done and failed are written",
			Run:  lateRelease,
		},
		{
			Name: "joined-never-writes-done",
			Rule: "a joined settlement never turns claimed or parked into done; it tells whether a transaction has",
			Run:  joinedNeverDone,
		},
		{
			Name: "uncounted-gives-the-attempt-back",
			Rule: "an uncounted release gives the attempt back, once for each claim, and never goes below 0",
			Run:  uncountedAttempts,
		},
		{
			Name: "first-and-last-error",
			Rule: "the record keeps the first error of a job and the last one, with its class; done and a reopening clear them",
			Run:  firstAndLast,
		},
		{
			Name: "fingerprints",
			Rule: "fingerprints are compared where both are given, before anything but a reopening that is granted; an empty one counts as given",
			Run:  fingerprints,
		},
		{
			Name: "retention",
			Rule: "done, failed and released records count as absent once their Retain is over, and not before",
			Run:  retention,
		},
		{
			Name: "default-retention",
			Rule: fmt.Sprintf("a record without Retain is kept for DefaultRetention, %v", dedupe.DefaultRetention),
			Run:  defaultRetention,
		},
		{
			Name: "claimed-and-parked-never-expire",
			Rule: "claimed and parked records have no expiry",
			Run:  neverExpire,
		},
		{
			Name: "for-ever",
			Rule: "the longest time.Duration is taken as TTL and as Retain: the lease, and the record, end in nobody's lifetime",
			Run:  longest,
		},
		{
			Name: "forget",
			Rule: "Forget removes a record whose fence is named, refuses a live claim unless forced, and is content where there is nothing",
			Run:  forgetRules,
		},
	}
}

func settleAgain(e *env) {
	statuses := []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released, dedupe.Parked}
	for _, to := range statuses {
		for _, then := range statuses {
			if to == dedupe.Parked && then != dedupe.Parked {
				continue // that is a late word
			}
			e.Doing = fmt.Sprintf("%v, then %v", to, then)
			k := key(e.Doing)
			q := e.request(k)
			e.claim(q)
			first := dedupe.Settlement{Key: k, Token: q.Token, To: to, Result: []byte("first"), ErrClass: "a", ErrText: "first", Uncounted: true, Retain: retain}
			e.settle(first)
			repeat := first
			repeat.To, repeat.Result, repeat.ErrText, repeat.Retain = then, []byte("second"), "second", 9*retain
			for range 2 {
				if a := e.settle(repeat); a.Err != nil || a.Status != to {
					e.Errorf("the repeat was answered %v, %v; want %v", a.Status, a.Err, to)
				}
			}
		}
	}
}

func latePacket(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released})
	for range 2 {
		if c := e.claim(q); c.Outcome != dedupe.Stale {
			e.Errorf("the late packet was answered %v, want stale", c.Outcome)
		}
	}
	q = e.request(k)
	if c := e.claim(q); c.Outcome != dedupe.Won {
		e.Errorf("a claim with a new token was answered %v, want won", c.Outcome)
	}
}

// lateRelease: the message of what was parked is gone. A record that says released would be told as
// waiting for a message that nobody sends.
func lateRelease(e *env) {
	park := func(name string) (dedupe.Key, dedupe.Token) {
		e.Doing = name
		k := key(name)
		q := e.request(k)
		q.Policy = dedupe.Park
		e.claim(q)
		e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, Started: true})
		e.age(k, 2*ttl)
		e.claim(e.request(k)) // parks it
		return k, q.Token
	}
	for _, un := range []bool{false, true} {
		k, own := park(fmt.Sprintf("uncounted %v", un))
		late := dedupe.Settlement{Key: k, Token: own, To: dedupe.Released, Uncounted: un, ErrClass: "bank", ErrText: "no answer", Retain: retain}
		for range 2 { // the first answer may be lost
			if a := e.settle(late); a.Status != dedupe.Parked || a.Err != nil {
				e.Errorf("it was answered %v, %v; want parked", a.Status, a.Err)
			}
		}
		r := e.read(k)
		if r.Status != dedupe.Parked || r.ErrClass != dedupe.ClassInterrupted || r.LastErr != late.LateText() || r.FirstErr != "no answer" || r.Attempt != 1 || !r.Expires.IsZero() {
			e.Errorf("the record is %+v", r)
		}
		q := e.request(k)
		if q.Reopen = r.Fence; e.claim(q).Outcome != dedupe.Won {
			e.Errorf("the letter's replay does not run it")
		}
		if a := e.settle(late); !errors.Is(a.Err, dedupe.ErrLeaseLost) {
			e.Errorf("the late word after a replay was answered %v, %v", a.Status, a.Err)
		}
	}
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
		k, own := park("then " + to.String())
		e.settle(dedupe.Settlement{Key: k, Token: own, To: dedupe.Released})
		if a := e.settle(dedupe.Settlement{Key: k, Token: own, To: to, Unparks: true}); a.Status != to || a.Err != nil {
			e.Errorf("an operator's word was answered %v, %v", a.Status, a.Err)
		}
		e.read(k)
	}
}

func joinedNeverDone(e *env) {
	k := key("k")
	q := e.request(k)
	q.Policy = dedupe.Park
	e.claim(q)
	joined := dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: []byte("x"), Joined: true}
	if a := e.settle(joined); a.Status != dedupe.Claimed || a.Err != nil {
		e.Errorf("it was answered %v, %v; want claimed", a.Status, a.Err)
	}
	e.age(k, 2*ttl)
	e.settle(joined)
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, Started: true})
	e.age(k, 2*ttl)
	e.claim(e.request(k)) // parks it
	if a := e.settle(joined); a.Status != dedupe.Parked || a.Err != nil {
		e.Errorf("on a parked record it was answered %v, %v; want parked", a.Status, a.Err)
	}
	joined.To, joined.ErrClass = dedupe.Released, "tx-not-committed"
	if a := e.settle(joined); a.Status != dedupe.Parked {
		e.Errorf("a joined release was answered %v, %v; want parked", a.Status, a.Err)
	}
}

func uncountedAttempts(e *env) {
	k := key("k")
	for round := range 3 {
		q := e.request(k)
		if c := e.claim(q); c.Lease.Attempt != 1 {
			e.Errorf("claim %d has attempt %d, want 1", round+1, c.Lease.Attempt)
		}
		release := dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released, Uncounted: true}
		e.settle(release)
		e.settle(release)
		if r := e.get(k); r.Attempt != 0 {
			e.Errorf("after uncounted release %d, repeated, the attempt is %d, want 0", round+1, r.Attempt)
		}
	}
}

func firstAndLast(e *env) {
	k := key("k")
	fail := func(to dedupe.Status, class, text string, reopen uint64) {
		e.Helper()
		q := e.request(k)
		q.Reopen = reopen
		e.claim(q)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to, ErrClass: class, ErrText: text})
	}
	fail(dedupe.Released, "", "", 0)
	fail(dedupe.Released, "timeout", "first ' \" \\ % text\n", 0)
	fail(dedupe.Released, "", "", 0)
	fail(dedupe.Failed, "panic", "second", 0)
	if r := e.get(k); r.FirstErr != "first ' \" \\ % text\n" || r.LastErr != "second" || r.ErrClass != "panic" {
		e.Errorf("first %q, last %q, class %q", r.FirstErr, r.LastErr, r.ErrClass)
	}
	fail(dedupe.Failed, "timeout", "third", e.at(k).Fence)
	if r := e.get(k); r.FirstErr != "third" {
		e.Errorf("after a reopening the first error is %q", r.FirstErr)
	}
	fail(dedupe.Done, "", "", e.at(k).Fence)
	if r := e.get(k); r.FirstErr != "" || r.LastErr != "" || r.ErrClass != "" {
		e.Errorf("a done record has errors %q, %q, class %q", r.FirstErr, r.LastErr, r.ErrClass)
	}
}

func fingerprints(e *env) {
	k := key("k")
	claim := func(print []byte, reopen uint64, want dedupe.Outcome) dedupe.Token {
		e.Helper()
		q := e.request(k)
		q.Fingerprint, q.Reopen = print, reopen
		if c := e.claim(q); c.Outcome != want {
			e.Errorf("a claim with fingerprint %s on %s was answered %v, want %v", show(print), brief(e.at(k)), c.Outcome, want)
		}
		return q.Token
	}
	a, b := []byte("A\x00\xff"), []byte("B")
	t := claim(a, 0, dedupe.Won)
	claim(b, 0, dedupe.Mismatch)
	claim([]byte{}, 0, dedupe.Mismatch)
	claim(a, 0, dedupe.InProgress)
	claim(nil, 0, dedupe.InProgress)
	own := e.request(k)
	own.Token, own.Fingerprint = t, b
	if c := e.claim(own); c.Outcome != dedupe.Mismatch {
		e.Errorf("the claim's own token with another fingerprint was answered %v", c.Outcome)
	}
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Released})
	t = claim(nil, 0, dedupe.Won)
	claim(b, 0, dedupe.Mismatch) // the claim without one has not removed it
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Failed})
	claim(b, 0, dedupe.Mismatch)
	claim(b, e.at(k).Fence+1, dedupe.Mismatch) // a Reopen that fits nothing does not switch it off
	claim(nil, e.at(k).Fence+1, dedupe.AlreadyFailed)
	t = claim(b, e.at(k).Fence, dedupe.Won)
	claim(a, 0, dedupe.Mismatch)
	claim(a, e.at(k).Fence, dedupe.Mismatch)
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Parked})
	claim(a, e.at(k).Fence-1, dedupe.Mismatch)
	t = claim(nil, e.at(k).Fence, dedupe.Won)
	claim(a, 0, dedupe.InProgress) // the reopening had none, so there is none
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Done})
	claim(a, 0, dedupe.AlreadyDone)

	k = key("nothing has run")
	t = claim(a, 0, dedupe.Won)
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Released, Uncounted: true})
	t = claim(b, 0, dedupe.Won)
	claim(a, 0, dedupe.Mismatch)
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Released, Uncounted: true, ErrClass: "error"})
	claim(a, 0, dedupe.Mismatch)

	// A first attempt that was postponed counts as none, and yet what it saved is its payload's.
	k = key("postponed")
	t = claim(a, 0, dedupe.Won)
	e.renew(dedupe.Renewal{Key: k, Token: t, TTL: ttl, State: []byte("charged for A"), StateNo: 1})
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Released, Uncounted: true, ErrClass: "postponed"})
	claim(b, 0, dedupe.Mismatch)
	t = claim(a, 0, dedupe.Won)
	if r := e.read(k); string(r.State) != "charged for A" || r.Attempt != 1 || r.ErrClass != "postponed" || r.LastErr != "" {
		e.Errorf("the claim after a postponement has state %q, attempt %d, class %q, error %q", r.State, r.Attempt, r.ErrClass, r.LastErr)
	}
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Released, Uncounted: true, ErrClass: "postponed"})
	claim(b, 0, dedupe.Mismatch)

	// A replay forgets the failure, and not what was saved.
	k = key("replayed")
	t = claim(a, 0, dedupe.Won)
	e.renew(dedupe.Renewal{Key: k, Token: t, TTL: ttl, State: []byte("charged for A"), StateNo: 1})
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Failed, ErrClass: "permanent"})
	t = claim(a, e.at(k).Fence, dedupe.Won)
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Released, Uncounted: true})
	claim(b, 0, dedupe.Mismatch)

	k = key("done")
	t = claim(a, 0, dedupe.Won)
	e.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Done})
	claim(b, e.at(k).Fence, dedupe.Mismatch) // what is done is not reopened
	claim(a, e.at(k).Fence, dedupe.AlreadyDone)

	k = key("empty")
	claim([]byte{}, 0, dedupe.Won)
	claim(a, 0, dedupe.Mismatch)
	claim([]byte{}, 0, dedupe.InProgress)
}

func retention(e *env) {
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
		e.Doing = to.String()
		k := key(to.String())
		q := e.request(k)
		e.claim(q)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to, ErrClass: "a", ErrText: "b", Retain: retain})
		e.age(k, retain-10*time.Minute)
		if e.get(k) == nil {
			e.Errorf("10 minutes before the end it was gone")
		}
		e.age(k, 20*time.Minute)
		e.stored(k)
		for r, err := range e.s.List(e.Context(), dedupe.Query{Scope: k.Scope, Prefix: k.Key}) {
			e.OK(err, "List")
			e.Errorf("10 minutes after the end List shows %s", brief(r))
		}
		q = e.request(k)
		q.Fingerprint = []byte("new")
		if c := e.claim(q); c.Outcome != dedupe.Won || !c.Fresh || c.Lease.Attempt != 1 || c.FirstErr != "" {
			e.Errorf("a claim after the end was answered %v, fresh %v, attempt %d", c.Outcome, c.Fresh, c.Lease.Attempt)
		}
	}
}

func defaultRetention(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done})
	r := e.get(k)
	e.near("Expires after Finished", r.Expires.Sub(r.Finished), dedupe.DefaultRetention)
	e.age(k, dedupe.DefaultRetention-time.Hour)
	e.claim(e.request(k))
	e.age(k, 2*time.Hour)
	e.claim(e.request(k))
}

func longest(e *env) {
	const forEver, years = math.MaxInt64, 20 * 365 * 24 * time.Hour
	k := key("k")
	q := e.request(k)
	q.TTL = forEver
	e.claim(q)
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: forEver})
	e.age(k, years)
	e.claim(e.request(k))
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released, Retain: forEver})
	q = e.request(k)
	e.claim(q)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Retain: forEver})
	e.age(k, years)
	e.claim(e.request(k))
}

func neverExpire(e *env) {
	claimed, parked := key("claimed"), key("parked")
	e.claim(e.request(claimed))
	q := e.request(parked)
	e.claim(q)
	e.settle(dedupe.Settlement{Key: parked, Token: q.Token, To: dedupe.Parked, Retain: time.Minute})
	const years = 20 * 365 * 24 * time.Hour
	e.age(claimed, years)
	if !e.h.Virtual {
		e.age(parked, years)
	}
	for _, k := range []dedupe.Key{claimed, parked} {
		e.Doing = k.Key
		if e.get(k) == nil {
			e.Errorf("20 years later it was gone")
		}
		if c := e.claim(e.request(k)); c.Fresh {
			e.Errorf("20 years later a claim found nothing")
		}
	}
}

func forgetRules(e *env) {
	k := key("k")
	want := func(f dedupe.Forgotten, gone bool) {
		e.Helper()
		e.forget(f)
		if r := e.get(k); (r == nil) != gone {
			e.Errorf("Forget with fence %d (force %v) left %s", f.Fence, f.Force, brief(r))
		}
	}
	want(dedupe.Forgotten{Key: k, Fence: 1}, true)
	for _, to := range []dedupe.Status{dedupe.Claimed, dedupe.Released, dedupe.Done, dedupe.Failed, dedupe.Parked} {
		e.Doing = to.String()
		q := e.request(k)
		e.claim(q)
		f := e.at(k).Fence
		want(dedupe.Forgotten{Key: k, Fence: f - 1, Force: true}, false)
		want(dedupe.Forgotten{Key: k, Force: true}, false)
		want(dedupe.Forgotten{Key: k, Fence: f}, false) // the claim is live
		if to != dedupe.Claimed {
			e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to})
		} else {
			e.age(k, 2*ttl)
		}
		want(dedupe.Forgotten{Key: k, Fence: f}, true)
		want(dedupe.Forgotten{Key: k, Fence: f}, true)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done})
		e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl})
	}
	e.Doing = "by force"
	q := e.request(k)
	e.claim(q)
	want(dedupe.Forgotten{Key: k, Fence: e.at(k).Fence, Force: true}, true)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done})
	if c := e.claim(e.request(k)); !c.Fresh {
		e.Errorf("the next claim is not fresh")
	}
}
