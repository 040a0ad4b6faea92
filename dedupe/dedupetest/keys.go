package dedupetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file has the cases of keys and of bad entries: which texts a key may be, and that an entry
// that cannot be right fails alone. It also has the batch calls that other cases use. Run calls
// each case in a subtest with a store of its own; a case has one goroutine, so nothing is locked.

func keyCases() []testCase {
	return []testCase{
		{
			Name: "keys-are-any-text",
			Rule: "scope and key are any UTF-8 without NUL, from 1 byte to MaxScope and MaxKey bytes, kept as they are",
			Run:  keysAnyText,
		},
		{
			Name:  "bad-keys-fail-alone",
			Rule:  "an entry whose key cannot be stored is answered ErrBadKey, by position, while its neighbours succeed",
			Needs: []need{batches},
			Run:   badKeys,
		},
		{
			Name:  "bad-requests-fail-alone",
			Rule:  "an entry that makes no sense is answered ErrBadRequest, by position, while its neighbours succeed",
			Needs: []need{batches},
			Run:   badRequests,
		},
	}
}

func keysAnyText(e *env) {
	texts := []string{
		"x", " ", "  two  spaces  ", "'", "''; drop table records; --", `"`, "`", `\`, `\\`, "%", "_", "*", "?", "[a]", "$1", ":1", "?1", "@p",
		"\n", "\t", "\r\n", "\x01", "\x7f", "null", "0", "true", "{}", "é", "e\u0301", "ß", "İ", "日本語", "🚀", "\U0010ffff", "\ufffd", "\ufeff", "\u200b", "a/b:c|d#e",
	}
	play := func(k dedupe.Key) {
		e.Helper()
		e.Doing = fmt.Sprintf("scope %.40q (%d bytes), key %.40q (%d bytes)", k.Scope, len(k.Scope), k.Key, len(k.Key))
		q := e.request(k)
		if c := e.claim(q); !c.Fresh {
			e.Errorf("its first claim was answered %v, fresh %v", c.Outcome, c.Fresh)
		}
		e.renew(dedupe.Renewal{Key: k, Token: q.Token, TTL: ttl})
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Result: fmt.Appendf(nil, "%.100s", k.Key)})
	}
	for _, s := range texts {
		play(dedupe.Key{Scope: "texts", Key: s})
		play(dedupe.Key{Scope: s, Key: "texts"})
	}
	most := dedupe.Key{Scope: strings.Repeat("s", dedupe.MaxScope), Key: strings.Repeat("k", dedupe.MaxKey)}
	play(most)
	play(dedupe.Key{Scope: most.Scope, Key: most.Key[1:] + "l"})
	play(dedupe.Key{Scope: strings.Repeat("é", dedupe.MaxScope/2), Key: strings.Repeat("🚀", dedupe.MaxKey/4)})
	e.Doing = "at the end"
	for k := range e.m.records {
		e.stored(k)
	}
}

// badOnes cannot be stored.
func badOnes() []dedupe.Key {
	return []dedupe.Key{
		{Scope: "", Key: "k"},
		{Scope: "s", Key: ""},
		{},
		{Scope: strings.Repeat("s", dedupe.MaxScope+1), Key: "k"},
		{Scope: "s", Key: strings.Repeat("k", dedupe.MaxKey+1)},
		{Scope: "s", Key: strings.Repeat("k", 1<<20)},
		{Scope: "s", Key: "a\x00b"},
		{Scope: "\x00", Key: "k"},
		{Scope: "s", Key: "a\xffb"},
		{Scope: "\xc3\x28", Key: "k"},
	}
}

func badKeys(e *env) {
	for i, bad := range badOnes() {
		e.Doing = fmt.Sprintf("the key is %.20q / %.20q", bad.Scope, bad.Key)
		good := dedupe.Key{Scope: "good", Key: fmt.Sprintf("k%d", i)}
		q, b := e.request(good), e.request(bad)
		// Both places, so that an answer cannot be right by luck.
		qs, at := []dedupe.ClaimRequest{b, q}, 0
		if i%2 == 1 {
			qs, at = []dedupe.ClaimRequest{q, b}, 1
		}
		cs := e.claimAll(qs)
		e.Want("Claim", cs[at].Err, dedupe.ErrBadKey)
		e.won(good, &qs[1-at], &cs[1-at])

		ns := make([]dedupe.Renewal, 2)
		ss := make([]dedupe.Settlement, 2)
		fs := make([]dedupe.Forgotten, 2)
		for j := range qs {
			ns[j] = dedupe.Renewal{Key: qs[j].Key, Token: qs[j].Token, TTL: ttl}
			ss[j] = dedupe.Settlement{Key: qs[j].Key, Token: qs[j].Token, To: dedupe.Done}
			fs[j] = dedupe.Forgotten{Key: qs[j].Key, Fence: e.at(good).Fence}
		}
		rs := e.renewAll(ns)
		e.Want("Renew", rs[at].Err, dedupe.ErrBadKey)
		e.Want("Renew of the neighbour", rs[1-at].Err, nil)
		as := e.settleAll(ss)
		e.Want("Settle", as[at].Err, dedupe.ErrBadKey)
		e.Want("Settle of the neighbour", as[1-at].Err, nil)
		got, err := e.s.Get(e.Context(), []dedupe.Key{qs[0].Key, qs[1].Key})
		e.OK(err, "Get")
		if len(got) != 2 || got[at] != nil || got[1-at] == nil || got[1-at].Key != good {
			e.Errorf("Get answered %v, want nil for the bad key and the record of the good one", got)
		}
		errs, err := e.s.Forget(e.Context(), fs)
		e.OK(err, "Forget")
		if len(errs) != 2 {
			e.Fatalf("Forget of 2 entries gave %d answers", len(errs))
		}
		e.Want("Forget", errs[at], dedupe.ErrBadKey)
		e.Want("Forget of the neighbour", errs[1-at], nil)
	}
}

func badRequests(e *env) {
	claims := map[string]func(*dedupe.ClaimRequest){
		"ClaimRequest.Token is zero":    func(q *dedupe.ClaimRequest) { q.Token = dedupe.Token{} },
		"ClaimRequest.TTL is 0":         func(q *dedupe.ClaimRequest) { q.TTL = 0 },
		"ClaimRequest.TTL is below 0":   func(q *dedupe.ClaimRequest) { q.TTL = -ttl },
		"ClaimRequest.Policy is absurd": func(q *dedupe.ClaimRequest) { q.Policy = 7 },
	}
	for name, spoil := range claims {
		e.Doing = name
		good, bad := e.request(key("a good one, "+name)), e.request(key("bad, "+name))
		spoil(&bad)
		cs := e.claimAll([]dedupe.ClaimRequest{good, bad})
		e.won(good.Key, &good, &cs[0])
		e.Want("Claim", cs[1].Err, dedupe.ErrBadRequest)
		e.stored(bad.Key)
	}
	a, b := e.request(key("a")), e.request(key("b"))
	e.claim(a)
	e.claim(b)
	for name, n := range map[string]dedupe.Renewal{
		"Renewal.TTL is 0":       {Key: b.Key, Token: b.Token, Started: true},
		"Renewal.TTL is below 0": {Key: b.Key, Token: b.Token, TTL: -1, Started: true},
	} {
		e.Doing = name
		rs := e.renewAll([]dedupe.Renewal{n, {Key: a.Key, Token: a.Token, TTL: ttl}})
		e.Want("Renew", rs[0].Err, dedupe.ErrBadRequest)
		e.Want("Renew of the neighbour", rs[1].Err, nil)
		e.stored(b.Key)
	}
	for name, t := range map[string]dedupe.Settlement{
		"Settlement.To is not given":   {Key: b.Key, Token: b.Token},
		"Settlement.To is claimed":     {Key: b.Key, Token: b.Token, To: dedupe.Claimed},
		"Settlement.To is absurd":      {Key: b.Key, Token: b.Token, To: 99},
		"Settlement.Retain is below 0": {Key: b.Key, Token: b.Token, To: dedupe.Done, Retain: -1},
	} {
		e.Doing = name
		as := e.settleAll([]dedupe.Settlement{t, {Key: a.Key, Token: a.Token, To: dedupe.Done}})
		e.Want("Settle", as[0].Err, dedupe.ErrBadRequest)
		e.Want("Settle of the neighbour", as[1].Err, nil)
		e.stored(b.Key)
	}
}

// claimAll claims a batch past the model.
func (e *env) claimAll(qs []dedupe.ClaimRequest) []dedupe.Claim {
	e.Helper()
	cs, err := e.s.Claim(e.Context(), qs)
	e.OK(err, "Claim")
	if len(cs) != len(qs) {
		e.Fatalf("Claim of %d entries gave %d answers", len(qs), len(cs))
	}
	return cs
}

// renewAll renews a batch past the model.
func (e *env) renewAll(ns []dedupe.Renewal) []dedupe.Renewed {
	e.Helper()
	rs, err := e.s.Renew(e.Context(), ns)
	e.OK(err, "Renew")
	if len(rs) != len(ns) {
		e.Fatalf("Renew of %d entries gave %d answers", len(ns), len(rs))
	}
	return rs
}

// settleAll settles a batch past the model.
func (e *env) settleAll(ss []dedupe.Settlement) []dedupe.Settled {
	e.Helper()
	as, err := e.s.Settle(e.Context(), ss)
	e.OK(err, "Settle")
	if len(as) != len(ss) {
		e.Fatalf("Settle of %d entries gave %d answers", len(ss), len(as))
	}
	return as
}

// won checks that a claim of k in a batch has won, and tells the model.
func (e *env) won(k dedupe.Key, q *dedupe.ClaimRequest, c *dedupe.Claim) {
	e.Helper()
	if c.Err != nil || c.Outcome != dedupe.Won || c.Lease.Key != k || c.Lease.Token != q.Token {
		e.Fatalf("the claim of %s was answered %v, %v, with a lease on %s; want won", k, c.Outcome, c.Err, c.Lease.Key)
	}
	now := time.Now()
	e.expectClaim(q, c, now, now)
}
