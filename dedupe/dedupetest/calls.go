package dedupetest

import (
	"context"
	"errors"

	"github.com/onceq/onceq/dedupe"
)

func callCases() []testCase {
	return []testCase{
		{
			name: "limits",
			rule: "Limits never change, and allow a result of at least 1 byte and a batch of at least 1 entry",
			run:  limits,
		},
		{
			name: "cancelled",
			rule: "a call whose context has ended is answered with the context's error; repeating it gives what it would have given",
			run:  cancelled,
		},
		{
			name:  "closed",
			rule:  "after Close every call is answered ErrClosed",
			needs: []need{hasClose},
			run:   closed,
		},
	}
}

func limits(e *env) {
	l := e.s.Limits()
	if l.MaxBatch < 1 || l.MaxResult < 1 {
		e.errorf("Limits are %+v", l)
	}
	e.claim(e.request(key("k")))
	if again := e.s.Limits(); again != l {
		e.errorf("Limits were %+v and are %+v", l, again)
	}
}

func cancelled(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	want := func(call string, err error) {
		e.Helper()
		if !errors.Is(err, context.Canceled) {
			e.errorf("%s was answered %v, want context.Canceled", call, err)
		}
	}
	k := key("k")
	q := e.request(k)
	_, err := e.s.Claim(ctx, []dedupe.ClaimRequest{q})
	want("Claim", err)
	e.claim(q)
	n := dedupe.Renewal{Key: k, Token: q.Token, TTL: 2 * ttl, Started: true, State: []byte("step 1"), StateNo: 1}
	_, err = e.s.Renew(ctx, []dedupe.Renewal{n})
	want("Renew", err)
	e.renew(n)
	s := dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: []byte("result"), Retain: retain}
	_, err = e.s.Settle(ctx, []dedupe.Settlement{s})
	want("Settle", err)
	e.settle(s)
	_, err = e.s.Get(ctx, []dedupe.Key{k})
	want("Get", err)
	f := dedupe.Forgotten{Key: k, Fence: e.at(k).Fence}
	_, err = e.s.Forget(ctx, []dedupe.Forgotten{f})
	want("Forget", err)
	e.forget(f)
}

func closed(e *env) {
	k := key("k")
	q := e.request(k)
	e.claim(q)
	e.ok(e.subject.Close(), "Close")
	_, err := e.s.Claim(e.ctx, []dedupe.ClaimRequest{q})
	e.wantErr("Claim", err, dedupe.ErrClosed)
	_, err = e.s.Renew(e.ctx, []dedupe.Renewal{{Key: k, Token: q.Token, TTL: ttl}})
	e.wantErr("Renew", err, dedupe.ErrClosed)
	_, err = e.s.Settle(e.ctx, []dedupe.Settlement{{Key: k, Token: q.Token, To: dedupe.Done}})
	e.wantErr("Settle", err, dedupe.ErrClosed)
	_, err = e.s.Get(e.ctx, []dedupe.Key{k})
	e.wantErr("Get", err, dedupe.ErrClosed)
	_, err = e.s.Forget(e.ctx, []dedupe.Forgotten{{Key: k}})
	e.wantErr("Forget", err, dedupe.ErrClosed)
	for _, err := range e.s.List(e.ctx, dedupe.Query{}) {
		e.wantErr("List", err, dedupe.ErrClosed)
	}
}
