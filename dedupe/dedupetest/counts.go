package dedupetest

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of two optional interfaces, dedupe.Counter and dedupe.Clock. A store
// without them rules them out. Run calls each in a subtest with a store of its own.

var (
	counter = need{Met: func(e *env) bool { _, ok := e.s.(dedupe.Counter); return ok }, Why: "the Store is no dedupe.Counter"}
	clock   = need{Met: func(e *env) bool { _, ok := e.s.(dedupe.Clock); return ok }, Why: "the Store is no dedupe.Clock"}
)

func countCases() []testCase {
	return []testCase{
		{
			Name:  "count",
			Rule:  "Count answers how many records a query selects, by scope and status; expired ones do not count, and those of a small table are exact",
			Needs: []need{counter},
			Run:   counts,
		},
		{
			Name:  "count-cancelled",
			Rule:  "a Count whose context has ended is answered with the context's error",
			Needs: []need{counter},
			Run: func(e *env) {
				_, err := e.s.(dedupe.Counter).Count(e.Ended(), dedupe.Query{})
				e.Want("Count", err, context.Canceled)
			},
		},
		{
			Name:  "clock",
			Rule:  "Now is the time by which a lease is granted",
			Needs: []need{clock},
			Run:   storesClock,
		},
	}
}

func counts(e *env) {
	e.mix()
	k := dedupe.Key{Scope: "gone", Key: "expired"}
	q := e.request(k)
	e.claim(q)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Retain: ttl})
	e.age(k, 2*ttl)
	now := time.Now()
	for _, scope := range []string{"", "s1", "none", "gone"} {
		for _, prefix := range []string{"", "old"} {
			for s := dedupe.Status(0); s <= dedupe.Parked; s++ {
				e.compareCount(dedupe.Query{Scope: scope, Prefix: prefix, Status: s, Limit: 1})
				e.compareCount(dedupe.Query{Scope: scope, Prefix: prefix, Status: s, Before: now.Add(-time.Hour)})
				e.compareCount(dedupe.Query{Scope: scope, Prefix: prefix, Status: s, LeaseBefore: now})
			}
		}
	}
}

func (e *env) compareCount(q dedupe.Query) {
	e.Helper()
	got, err := e.s.(dedupe.Counter).Count(e.Context(), q)
	e.OK(err, "Count")
	all := q
	all.Limit = 0
	of := make(map[dedupe.Count]int64)
	for _, k := range e.want(all) {
		of[dedupe.Count{Scope: k.Scope, Status: e.at(k).Status}]++
	}
	var want []dedupe.Count
	for _, scope := range []string{"gone", "s1", "s2"} {
		for s := dedupe.Claimed; s <= dedupe.Parked; s++ {
			c := dedupe.Count{Scope: scope, Status: s}
			if n := of[c]; n > 0 {
				c.N, c.Exact = n, true
				want = append(want, c)
			}
		}
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		e.Errorf("Count of %s gave %s, want %s", describe(q), g, w)
	}
}

func storesClock(e *env) {
	c := e.s.(dedupe.Clock)
	_, err := c.Now(e.Ended())
	e.Want("Now", err, context.Canceled)
	before, err := c.Now(e.Context())
	e.OK(err, "Now")
	k := key("k")
	e.claim(e.request(k))
	after, err := c.Now(e.Context())
	e.OK(err, "Now")
	if at := e.read(k).ClaimedAt; at.Before(before.Add(-clockSlack)) || at.After(after.Add(clockSlack)) || after.Before(before) {
		e.Errorf("a claim between %v and %v was won at %v", before, after, at)
	}
}

// clockSlack is for a service that tells the time in whole seconds.
const clockSlack = time.Second
