package dedupetest

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/values"
)

var sweeper = need{Met: func(e *env) bool { _, ok := values.As[dedupe.Sweeper](e.s); return ok }, Why: "the Store is no dedupe.Sweeper"}

func sweepCases() []testCase {
	return []testCase{
		{
			Name:  "sweep",
			Rule:  "Sweep removes at most limit expired records, says how many, and removes no other",
			Needs: []need{sweeper},
			Run:   sweep,
		},
		{
			Name:  "sweep-cancelled",
			Rule:  "when the context has ended, Sweep gives its error and removes nothing",
			Needs: []need{sweeper},
			Run:   sweepCancelled,
		},
	}
}

// sweepable makes n records of each status, and lets their retention end where they have one.
func (e *env) sweepable(n int) (expired, kept []dedupe.Key) {
	e.Helper()
	for i := range n {
		for _, to := range []dedupe.Status{dedupe.Claimed, dedupe.Released, dedupe.Done, dedupe.Failed, dedupe.Parked} {
			k := dedupe.Key{Scope: "s", Key: fmt.Sprintf("%v-%d", to, i)}
			q := e.request(k)
			e.claim(q)
			if to != dedupe.Claimed {
				e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: to, Retain: retain})
			}
			if to == dedupe.Claimed || to == dedupe.Parked {
				kept = append(kept, k)
			} else {
				expired = append(expired, k)
			}
		}
	}
	for i := range n { // before time goes by: a store may drop expired records when a key is claimed
		k := dedupe.Key{Scope: "s", Key: fmt.Sprintf("young-%d", i)}
		q := e.request(k)
		e.claim(q)
		e.settle(dedupe.Settlement{Key: k, Token: q.Token, To: dedupe.Done, Retain: 3 * retain})
		kept = append(kept, k)
	}
	e.ageAll(append(expired[:len(expired):len(expired)], kept...), retain+time.Minute)
	return expired, kept
}

func sweep(e *env) {
	expired, kept := e.sweepable(3)
	s, _ := values.As[dedupe.Sweeper](e.s)
	left := len(expired)
	for _, limit := range []int{2, 1, 0, 5, -1} {
		e.Doing = fmt.Sprintf("limit %d, %d are left", limit, left)
		want := left
		if limit > 0 {
			want = min(limit, left)
		}
		n, err := s.Sweep(e.Context(), limit)
		e.OK(err, "Sweep")
		if n != want {
			e.Errorf("Sweep says %d, want %d", n, want)
		}
		left -= want
	}
	e.Doing = "all are swept"
	for _, k := range kept {
		e.stored(k)
	}
	for _, k := range expired {
		q := e.request(k)
		if c := e.claim(q); c.Outcome != dedupe.Won || !c.Fresh {
			e.Errorf("a claim of %v was answered %v, fresh %v", k, c.Outcome, c.Fresh)
		}
	}
}

func sweepCancelled(e *env) {
	expired, _ := e.sweepable(1)
	s, _ := values.As[dedupe.Sweeper](e.s)
	ctx := e.Ended()
	if n, err := s.Sweep(ctx, 0); err == nil || n != 0 {
		e.Errorf("Sweep says %d, %v", n, err)
	}
	n, err := s.Sweep(e.Context(), 0)
	e.OK(err, "Sweep")
	if n != len(expired) {
		e.Errorf("afterwards Sweep says %d, want %d", n, len(expired))
	}
}
