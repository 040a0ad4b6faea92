package dedupetest

import (
	"fmt"

	"github.com/onceq/onceq/dedupe"
)

// This file has the ways to each record that a call may find, and the calls that meet it. The cases
// of the tables' rows play them, on the store and on the model alike. Each play has one goroutine,
// so nothing is locked.

// stand is a way to a record that a call may find. The record then has the token of the last claim.
type stand struct {
	name string
	// claimed gets a claim that was won; nil = the key was never claimed.
	claimed func(p player, k dedupe.Key, t dedupe.Token)
	policy  dedupe.Policy
}

func start(p player, k dedupe.Key, t dedupe.Token) {
	p.renew(dedupe.Renewal{Key: k, Token: t, TTL: ttl, Started: true, State: []byte("step 1")})
}

func die(p player, k dedupe.Key, _ dedupe.Token) { p.age(k, 2*ttl) }

func settled(to dedupe.Status) func(player, dedupe.Key, dedupe.Token) {
	return func(p player, k dedupe.Key, t dedupe.Token) {
		s := dedupe.Settlement{Key: k, Token: t, To: to, Retain: retain}
		if to == dedupe.Done {
			s.Result = []byte(`{"row":1}`)
		} else {
			s.ErrClass, s.ErrText = "timeout", "no answer from the bank"
		}
		p.settle(s)
	}
}

// uncounted releases twice: once with the attempt counted and once without.
func uncounted(p player, k dedupe.Key, t dedupe.Token) {
	settled(dedupe.Released)(p, k, t)
	t = p.token()
	p.claim(dedupe.ClaimRequest{Key: k, Token: t, TTL: ttl})
	p.settle(dedupe.Settlement{Key: k, Token: t, To: dedupe.Released, Uncounted: true, Retain: retain})
}

func takeover(p player, k dedupe.Key, _ dedupe.Token) {
	p.claim(dedupe.ClaimRequest{Key: k, Token: p.token(), TTL: ttl, Policy: dedupe.Park})
}

func expire(p player, k dedupe.Key, _ dedupe.Token) { p.age(k, 2*retain) }

func remove(p player, k dedupe.Key, _ dedupe.Token) {
	p.forget(dedupe.Forgotten{Key: k, Fence: p.at(k).Fence, Force: true})
}

// then plays several parts.
func then(parts ...func(player, dedupe.Key, dedupe.Token)) func(player, dedupe.Key, dedupe.Token) {
	return func(p player, k dedupe.Key, t dedupe.Token) {
		for _, f := range parts {
			f(p, k, t)
		}
	}
}

func stands() []stand {
	return []stand{
		{name: "nothing"},
		{name: "a forgotten record", claimed: remove},
		{name: "an expired done record", claimed: then(settled(dedupe.Done), expire)},
		{name: "an expired failed record", claimed: then(settled(dedupe.Failed), expire)},
		{name: "an expired released record", claimed: then(settled(dedupe.Released), expire)},
		{name: "a live claim", claimed: then()},
		{name: "a live claim that started", claimed: start},
		{name: "a live claim under Park that started", claimed: start, policy: dedupe.Park},
		{name: "a dead claim", claimed: die},
		{name: "a dead claim that started", claimed: then(start, die)},
		{name: "a dead claim under Park", claimed: die, policy: dedupe.Park},
		{name: "a dead claim under Park that started", claimed: then(start, die), policy: dedupe.Park},
		{name: "a released record", claimed: then(start, settled(dedupe.Released))},
		{name: "a record released uncounted", claimed: uncounted},
		{name: "a done record", claimed: then(start, settled(dedupe.Done))},
		{name: "a failed record", claimed: then(start, settled(dedupe.Failed))},
		{name: "a parked record", claimed: then(start, settled(dedupe.Parked)), policy: dedupe.Park},
		{name: "a record that a takeover parked", claimed: then(start, die, takeover), policy: dedupe.Park},
	}
}

// build makes the record. The token under which it first claims the key is not always the record's.
func (s *stand) build(p player, k dedupe.Key, print []byte) {
	if s.claimed == nil {
		return
	}
	t := p.token()
	p.claim(dedupe.ClaimRequest{
		Key: k, Token: t, TTL: ttl, Fingerprint: print, Policy: s.policy, Owner: "worker-0", MessageID: "message-0",
	})
	s.claimed(p, k, t)
}

// situation is a stand and the call that meets it.
type situation struct {
	stand stand
	print []byte // the fingerprint of the first claim
	own   bool   // the call's token is the record's
	call  string // what differs in the call, for people
	// One of these is set.
	claim  *dedupe.ClaimRequest
	renew  *dedupe.Renewal
	settle *dedupe.Settlement
	// reopen is how the claim's Reopen differs from the record's fence; none is 0.
	reopen reopen
}

type reopen uint8

const (
	noReopen reopen = iota
	rightReopen
	wrongReopen
)

// play builds the stand and makes the call.
func (s *situation) play(p player, k dedupe.Key) {
	s.stand.build(p, k, s.print)
	r := p.at(k)
	token := p.token()
	if s.own && r.Status != 0 {
		token = r.Token
	}
	switch {
	case s.claim != nil:
		q := *s.claim
		q.Key, q.Token = k, token
		switch s.reopen {
		case rightReopen:
			q.Reopen = r.Fence
		case wrongReopen:
			q.Reopen = r.Fence + 1
		case noReopen:
		}
		p.claim(q)
	case s.renew != nil:
		n := *s.renew
		n.Key, n.Token = k, token
		p.renew(n)
	default:
		t := *s.settle
		t.Key, t.Token = k, token
		p.settle(t)
	}
}

func (s *situation) String() string {
	token := "a new token"
	if s.own {
		token = "its own token"
	}
	found := s.stand.name
	if s.print != nil {
		found += " with a fingerprint"
	}
	return fmt.Sprintf("%s meets %s with %s", s.call, found, token)
}

// situations are all meetings of a stand and a call that the tables tell apart.
func situations() []situation {
	var all []situation
	prints := [][]byte{nil, []byte("payload A")}
	for _, st := range stands() {
		for _, own := range []bool{false, true} {
			for _, print := range prints {
				all = append(all, claimSituations(situation{stand: st, own: own, print: print})...)
			}
			all = append(all, endSituations(situation{stand: st, own: own})...)
		}
	}
	return all
}

func claimSituations(s situation) []situation {
	var all []situation
	for _, print := range [][]byte{nil, []byte("payload A"), []byte("payload B")} {
		for _, policy := range []dedupe.Policy{dedupe.Rerun, dedupe.Park} {
			for _, re := range []reopen{noReopen, rightReopen, wrongReopen} {
				s.claim = &dedupe.ClaimRequest{
					TTL: ttl / 2, Fingerprint: print, Policy: policy, Owner: "worker-1", MessageID: "message-1",
				}
				s.reopen = re
				s.call = fmt.Sprintf("a claim under %v", policy)
				if print != nil {
					s.call += fmt.Sprintf(" of %q", print)
				}
				switch re {
				case rightReopen:
					s.call += " that reopens this fence"
				case wrongReopen:
					s.call += " that reopens another fence"
				case noReopen:
				}
				all = append(all, s)
			}
		}
	}
	return all
}

func endSituations(s situation) []situation {
	var all []situation
	for _, n := range []dedupe.Renewal{
		{TTL: 3 * ttl},
		{TTL: ttl / 4},
		{TTL: 3 * ttl, Started: true},
		{TTL: 3 * ttl, State: []byte("step 2")},
		{TTL: 3 * ttl, State: []byte{}},
		{TTL: 3 * ttl, State: []byte("step 1, late"), StateNo: 1},
	} {
		r := s
		r.renew = &n
		r.call = fmt.Sprintf("a renewal (TTL %v, started %v, state %s, number %d)", n.TTL, n.Started, show(n.State), n.StateNo)
		all = append(all, r)
	}
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released, dedupe.Parked} {
		for _, joined := range []bool{false, true} {
			for _, un := range []bool{false, true} {
				t := dedupe.Settlement{To: to, Joined: joined, Uncounted: un, Retain: 2 * retain}
				if to == dedupe.Done {
					t.Result = []byte(`{"row":2}`)
				} else if !un {
					t.ErrClass, t.ErrText = "panic", "index out of range"
				}
				r := s
				r.settle = &t
				r.call = fmt.Sprintf("a settlement to %v (joined %v, uncounted %v)", to, joined, un)
				all = append(all, r)
				if !joined && !un {
					word := t
					word.Unparks = true
					r.settle, r.call = &word, "an operator's word: "+to.String()
					all = append(all, r)
				}
			}
		}
	}
	return all
}
