package dedupetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of results and sizes. Run calls each in a subtest of its own, with a
// store of its own; nothing is shared, so nothing is locked.

func resultCases() []testCase {
	return []testCase{
		{
			Name: "results-are-kept",
			Rule: "a result is any bytes, kept as they are: none is not empty, and null, false, 0 and \"\" are results",
			Run:  resultsKept,
		},
		{
			Name:  "result-limit",
			Rule:  "a result and a state of Limits.MaxResult bytes are kept; one byte more is answered ErrResultSize, and nothing is written",
			Needs: []need{smallResult},
			Run:   resultLimit,
		},
		{
			Name: "answers-are-copies",
			Rule: "what a store was given and what it answered is the caller's to change",
			Run:  answersAreCopies,
		},
		{
			Name: "texts-are-kept",
			Rule: "owner, message id, error class and error text are any UTF-8, of kilobytes, kept as they are",
			Run:  textsKept,
		},
	}
}

func resultsKept(e *env) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	results := [][]byte{
		nil,
		{},
		[]byte("null"), []byte("false"), []byte("0"), []byte(`""`), []byte(" "), []byte("{}"), []byte("[]"),
		{0},
		{0, 0},
		all,
		bytes.Repeat(all, 64), []byte(strings.Repeat("x", 4096)),
	}
	for i, want := range results {
		if len(want) > e.l.MaxResult {
			continue
		}
		e.Doing = "the result is " + show(want)
		k := key(fmt.Sprintf("k%d", i))
		q := e.request(k)
		e.claim(q)
		e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, State: want})
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: want})
		c := e.claim(e.request(k))
		if c.Record == nil || !same(c.Record.Result, want) {
			e.Errorf("a duplicate was answered %v with %s", c.Outcome, brief(c.Record))
		}
	}
	// A result is kept when the job is done, and only then.
	e.Doing = "the claim is released with a result"
	k := key("released")
	q := e.request(k)
	e.claim(q)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released, Result: []byte("x")})
}

func resultLimit(e *env) {
	most := bytes.Repeat([]byte{'x'}, e.l.MaxResult)
	over := append(most[:len(most):len(most)], 'y')
	k := key("k")
	q := e.request(k)
	e.claim(q)
	was := e.get(k)
	as, err := e.s.Settle(e.Context(), []dedupe.Settlement{{Key: k, Token: q.Token, To: dedupe.Done, Result: over}})
	e.OK(err, "Settle with one entry that is too large")
	if len(as) != 1 || !errors.Is(as[0].Err, dedupe.ErrResultSize) {
		e.Fatalf("Settle with a result of MaxResult + 1 bytes was answered %+v", as)
	}
	e.equal("the record after that", e.get(k), was)
	rs, err := e.s.Renew(e.Context(), []dedupe.Renewal{{Key: k, Token: q.Token, TTL: 5 * ttl, Started: true, State: over, StateNo: 1}})
	e.OK(err, "Renew with one entry that is too large")
	if len(rs) != 1 || !errors.Is(rs[0].Err, dedupe.ErrResultSize) {
		e.Fatalf("Renew with a state of MaxResult + 1 bytes was answered %+v", rs)
	}
	e.equal("the record after that", e.get(k), was)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: most})
	k = key("state")
	q = e.request(k)
	e.claim(q)
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, State: most})
}

func answersAreCopies(e *env) {
	k := key("k")
	print, state, result := []byte("print"), []byte("state"), []byte("result")
	q := e.request(k)
	q.Fingerprint = print
	e.claim(q)
	e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl, State: state})
	spoil(print)
	spoil(state)
	// The model has copied, too: stored compares with what it keeps.
	e.Doing = "the caller has changed what it gave"
	e.stored(k)
	again := q
	again.Fingerprint = nil
	c := e.claim(again)
	spoil(c.State)
	e.Doing = "the caller has changed a won claim's state"
	e.stored(k)
	e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: result})
	spoil(result)
	e.Doing = "the caller has changed the result it gave"
	e.stored(k)
	e.Doing = "the caller has changed the records it was answered"
	c = e.claim(e.request(k))
	for _, r := range []*dedupe.Record{c.Record, e.get(k)} {
		if r == nil {
			e.Fatalf("a done record was not answered")
		}
		r.Status, r.Fence = dedupe.Released, 0
		spoil(r.Result)
		spoil(r.Fingerprint)
		spoil(r.State)
	}
	for r, err := range e.s.List(e.Context(), dedupe.Query{}) {
		e.OK(err, "List")
		r.Status = dedupe.Released
		spoil(r.Result)
	}
	e.stored(k)
}

func spoil(b []byte) {
	for i := range b {
		b[i] = '!'
	}
}

func textsKept(e *env) {
	texts := []string{"plain", "quote ' \" ` \\ and % _ * ? ;--", "line\nbreak\ttab", "Zażółć 日本語 🚀 \u200b", strings.Repeat("long ", 800)}
	for i, text := range texts {
		e.Doing = fmt.Sprintf("the text is %.40q", text)
		k := key(fmt.Sprintf("k%d", i))
		q := e.request(k)
		q.Owner, q.MessageID = text, text
		e.claim(q)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Released, ErrClass: text, ErrText: text})
		q = e.request(k)
		if c := e.claim(q); c.FirstErr != text {
			e.Errorf("the next claim got the first error %.40q", c.FirstErr)
		}
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Failed, ErrClass: text, ErrText: text})
	}
}
