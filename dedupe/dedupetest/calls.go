package dedupetest

import (
	"context"

	"github.com/onceq/onceq/dedupe"
)

func callCases() []testCase {
	return []testCase{
		{
			Name: "limits",
			Rule: "Limits never change, and allow a result of at least 1 byte and a batch of at least 1 entry",
			Run:  limits,
		},
		{
			Name: "cancelled",
			Rule: "a call whose context has ended is answered with the context's error; repeating it gives what it would have given",
			Run:  cancelled,
		},
		{
			Name:  "closed",
			Rule:  "after Close every call is answered ErrClosed",
			Needs: []need{hasClose},
			Run:   closed,
		},
	}
}

func limits(e *env) {
	l := e.s.Limits()
	if l.MaxBatch < 1 || l.MaxResult < 1 {
		e.Errorf("Limits are %+v", l)
	}
	e.claim(e.request(key("k")))
	e.SameLimits(l, e.s.Limits())
}

func cancelled(e *env) {
	ctx := e.Ended()
	k := key("k")
	q := e.request(k)
	_, err := e.s.Claim(ctx, []dedupe.ClaimRequest{q})
	e.Want("Claim", err, context.Canceled)
	e.claim(q)
	n := dedupe.Renewal{Key: k, Token: q.Token, TTL: 2 * ttl, Started: true, State: []byte("step 1"), StateNo: 1}
	_, err = e.s.Renew(ctx, []dedupe.Renewal{n})
	e.Want("Renew", err, context.Canceled)
	e.renew(n)
	s := dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: []byte("result"), Retain: retain}
	_, err = e.s.Settle(ctx, []dedupe.Settlement{s})
	e.Want("Settle", err, context.Canceled)
	e.settle(s)
	_, err = e.s.Get(ctx, []dedupe.Key{k})
	e.Want("Get", err, context.Canceled)
	f := dedupe.Forgotten{Key: k, Fence: e.at(k).Fence}
	_, err = e.s.Forget(ctx, []dedupe.Forgotten{f})
	e.Want("Forget", err, context.Canceled)
	e.forget(f)
}

func closed(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	if err := e.subject.Close(); err != nil {
		e.Harnessf("Subject.Close: %v", err)
	}
	_, err := e.s.Claim(e.Context(), []dedupe.ClaimRequest{q})
	e.Want("Claim", err, dedupe.ErrClosed)
	_, err = e.s.Renew(e.Context(), []dedupe.Renewal{{Key: k, Token: q.Token, TTL: ttl}})
	e.Want("Renew", err, dedupe.ErrClosed)
	_, err = e.s.Settle(e.Context(), []dedupe.Settlement{{Key: k, Token: q.Token, To: dedupe.Done}})
	e.Want("Settle", err, dedupe.ErrClosed)
	_, err = e.s.Get(e.Context(), []dedupe.Key{k})
	e.Want("Get", err, dedupe.ErrClosed)
	_, err = e.s.Forget(e.Context(), []dedupe.Forgotten{{Key: k}})
	e.Want("Forget", err, dedupe.ErrClosed)
	for _, err := range e.s.List(e.Context(), dedupe.Query{}) {
		e.Want("List", err, dedupe.ErrClosed)
	}
}
