package dedupetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of what a record keeps of earlier attempts, and of what a finished one
// drops. Run calls each in a subtest with a store of its own.

func pastCases() []testCase {
	return []testCase{
		{
			Name: "past-after-a-release",
			Rule: "a claim that replaces a released attempt folds it into Past: number, fence, owner, times, end, class and text",
			Run: func(e *env) {
				e.claimAfter("a", settled(dedupe.Released))
				e.claimAfter("b", settled(dedupe.Released))
			},
		},
		{
			Name: "past-after-a-dead-lease",
			Rule: "a takeover folds the dead claim into Past, ended when its lease did, and answers whose it was and for how long it was dead",
			Run:  pastDeadLease,
		},
		{
			Name: "past-after-a-replay",
			Rule: "a claim that reopens folds the failure into Past, marked, although it forgets the failure's errors; it answers the failure's class",
			Run: func(e *env) {
				e.claimAfter("a", settled(dedupe.Released))
				e.claimAfter("b", settled(dedupe.Failed))
			},
		},
		{
			Name: "past-after-a-park",
			Rule: "an operator's word on a parked record leaves Past alone; the claim after it folds the parked attempt, as it was resolved",
			Run:  pastPark,
		},
		{
			Name: "past-of-a-done-record",
			Rule: "a done record keeps Past, and a new record under its key begins without; so does Sent",
			Run:  pastDone,
		},
		{
			Name: "past-is-bounded",
			Rule: "of forty attempts with long texts Past keeps the first and the newest, 16 at most, in 1,024 bytes",
			Run:  pastBounded,
		},
		{
			Name: "sent",
			Rule: "Sent is the first claim's; where that knew none, a later one fills it in",
			Run:  sentOnce,
		},
		{
			Name: "done-is-small",
			Rule: "done drops what nobody asks a done record for: the message id and the saved steps; it keeps owner, token, fence, attempt and fingerprint",
			Run:  doneIsSmall,
		},
	}
}

// claimAfter claims k as owner, lets end happen, and claims again: the last claim's Past and answer
// are compared with the tables, as always, and here with the words of the rules.
func (e *env) claimAfter(owner string, end func(player, dedupe.Key, dedupe.Token)) dedupe.Claim {
	e.Helper()
	k := key("k")
	q := e.request(k)
	q.Owner = owner
	if r := e.at(k); r.Status == dedupe.Failed || r.Status == dedupe.Parked {
		q.Reopen = r.Fence
	}
	if c := e.claim(q); c.Outcome != dedupe.Won {
		e.Fatalf("the claim of %s was answered %v, want won", owner, c.Outcome)
	}
	end(e, k, q.Token)
	was := e.at(k).Clone()
	next := e.request(k)
	next.Owner, next.Reopen = "next", was.Fence
	c := e.claim(next)
	past := e.read(k).Past
	if c.Outcome != dedupe.Won || len(past) == 0 {
		e.Fatalf("the next claim was answered %v, and Past has %d attempts", c.Outcome, len(past))
	}
	last := past[len(past)-1]
	if last.Fence != was.Fence || last.Number != was.Attempt || last.Owner != owner || last.End != was.Status || last.Reopened != (was.Status == dedupe.Failed || was.Status == dedupe.Parked) {
		e.Errorf("the newest attempt is %+v; the record was %s of %q", last, brief(was), owner)
	}
	if was.Status != dedupe.Claimed && (last.Class != was.ErrClass || last.Err != was.LastErr || c.ErrClass != was.ErrClass || c.From != "" || c.DeadFor != 0) {
		e.Errorf("the newest attempt is %+v, answered class %q from %q dead for %v; the record had %q, %q", last, c.ErrClass, c.From, c.DeadFor, was.ErrClass, was.LastErr)
	}
	settled(dedupe.Released)(e, k, next.Token)
	return c
}

// read is the record under k, which must be there.
func (e *env) read(k dedupe.Key) *dedupe.Record {
	e.Helper()
	rs, err := e.s.Get(e.Context(), []dedupe.Key{k})
	e.OK(err, "Get")
	if len(rs) != 1 || rs[0] == nil {
		e.Fatalf("Get of %s gave no record", k)
	}
	return rs[0]
}

func pastDeadLease(e *env) {
	c := e.claimAfter("a", die)
	if c.From != "a" {
		e.Errorf("the takeover says that the lease was of %q, want a", c.From)
	}
	e.near("DeadFor", c.DeadFor, ttl)
	past := e.read(key("k")).Past
	if len(past) < 1 || past[0].End != dedupe.Claimed || past[0].Class != "" {
		e.Errorf("Past is %+v, want the dead claim, without a class", past)
	}
}

func pastPark(e *env) {
	for _, to := range []dedupe.Status{dedupe.Released, dedupe.Failed, dedupe.Done} {
		e.Doing = "resolved to " + to.String()
		k := key(to.String())
		q := e.request(k)
		e.claim(q)
		settled(dedupe.Released)(e, k, q.Token)
		q = e.request(k)
		e.claim(q)
		settled(dedupe.Parked)(e, k, q.Token)
		fence := e.at(k).Fence
		e.OK(dedupe.Resolve(e.Context(), e.s, k, fence, to, nil), "Resolve")
		e.m.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to, Unparks: true, ErrClass: "timeout", ErrText: "no answer from the bank"})
		if past := e.read(k).Past; len(past) != 1 {
			e.Errorf("Past is %+v, want the first attempt alone", past)
		}
		if to == dedupe.Done {
			continue
		}
		next := e.request(k)
		next.Reopen = fence
		e.claim(next)
		if past := e.read(k).Past; len(past) != 2 || past[1].End != to || past[1].Fence != fence {
			e.Errorf("Past is %+v, want the attempt that was %v", past, to)
		}
	}
}

func pastDone(e *env) {
	k := key("k")
	e.claimAfter("a", settled(dedupe.Released))
	q := e.request(k)
	e.claim(q)
	settled(dedupe.Done)(e, k, q.Token)
	if r := e.read(k); len(r.Past) != 2 || !r.Sent.Equal(sent) {
		e.Errorf("a done record has the Past %+v, and was sent %v", r.Past, r.Sent)
	}
	e.age(k, 2*retain)
	q = e.request(k)
	q.Sent = time.Time{}
	e.claim(q)
	if r := e.read(k); r.Past != nil || !r.Sent.IsZero() {
		e.Errorf("a new record has the Past %+v, and was sent %v", r.Past, r.Sent)
	}
}

func pastBounded(e *env) {
	k := key("k")
	var first dedupe.Attempt
	for n := range 41 {
		q := e.request(k)
		q.Owner = fmt.Sprintf("host-%d-%s", n%2, strings.Repeat("é", 40))
		e.claim(q)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released, ErrClass: "timeout", ErrText: strings.Repeat("é", 100), Retain: retain})
		if past := e.read(k).Past; n == 1 && len(past) > 0 {
			first = past[0]
		}
	}
	past := e.read(k).Past
	ns := make([]int, len(past))
	for i, a := range past {
		ns[i] = a.Number
	}
	if n := len(dedupe.EncodePast(past)); n > dedupe.MaxPastBytes || len(past) < 2 || len(past) > dedupe.MaxPast {
		e.Fatalf("Past has %d attempts in %d bytes", len(past), n)
	}
	if ns[0] != 1 || ns[len(ns)-1] != 40 || !slices.IsSorted(ns) {
		e.Errorf("Past has the attempts %v of 40", ns)
	}
	first.Err, past[0].Err = "", "" // a text may go
	if past[0] != first {
		e.Errorf("the first attempt has become %+v, it was %+v", past[0], first)
	}
}

func sentOnce(e *env) {
	k := key("k")
	for n, c := range []struct{ given, want time.Time }{
		{time.Time{}, time.Time{}},
		{time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
		{time.Date(-10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
		{sent, sent},
		{sent.Add(time.Hour), sent},
	} {
		q := e.request(k)
		q.Sent = c.given
		e.claim(q)
		if got := e.read(k).Sent; !got.Equal(c.want) {
			e.Errorf("after claim %d Sent is %v, want %v", n+1, orNone(got), orNone(c.want))
		}
		settled(dedupe.Released)(e, k, q.Token)
	}
}

func doneIsSmall(e *env) {
	k := key("k")
	q := e.request(k)
	q.Fingerprint = []byte("payload")
	c := e.claim(q)
	start(e, k, q.Token)
	settled(dedupe.Done)(e, k, q.Token)
	r := e.read(k)
	if r.MessageID != "" || r.State != nil || r.StateNo != 0 {
		e.Errorf("a done record has the message %q and the state %s, number %d", r.MessageID, show(r.State), r.StateNo)
	}
	if r.Owner != q.Owner || r.Token != q.Token || r.Fence != c.Lease.Fence || r.Attempt != 1 || string(r.Fingerprint) != "payload" || r.ClaimedAt.IsZero() {
		e.Errorf("a done record is %s of %q", brief(r), r.Owner)
	}
	// What it keeps is asked for by these.
	if a := e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done}); a.Status != dedupe.Done {
		e.Errorf("the settlement again is answered %v, %v", a.Status, a.Err)
	}
	other := e.request(k)
	other.Fingerprint = []byte("another")
	if c := e.claim(other); c.Outcome != dedupe.Mismatch {
		e.Errorf("another payload is answered %v", c.Outcome)
	}
}
