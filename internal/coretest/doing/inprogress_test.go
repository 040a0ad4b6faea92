package onceq_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// Times that no store should answer harm nobody.
func TestAnyTimeOfAClaimInProgress(t *testing.T) {
	const most, least = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, c := range []struct{ left, age, term time.Duration }{
		{most, 0, 0},
		{most, most, most},
		{most - time.Second, most, time.Second},
		{-time.Hour, -time.Hour, 0},
		{least, least, least},
		{0, least, most},
		{time.Second, most, least},
	} {
		answer := each(func(q *dedupe.Claim) {
			*q = dedupe.Claim{Outcome: dedupe.InProgress, Left: c.left, Age: c.age, Term: c.term}
		})
		bubble(t, returns(nil), func(r *rig) {
			r.store.set(func(s *store) { s.onClaim = answer })
			r.send("a")
			r.start()
			pass(time.Minute)
			ds := r.q.delays("a")
			if len(ds) == 0 || len(ds) > 200 {
				t.Fatalf("%v: %d nacks in a minute", c, len(ds))
			}
			for _, d := range ds {
				if wait := max(0, c.left, c.age); d < 0 || d > 365*24*time.Hour || wait < time.Hour && d > wait/8+wait+time.Second {
					t.Errorf("%v: nacked for %v", c, d)
				}
			}
		})
		bubbleDo(t, func(d *doer) {
			d.store.set(func(s *store) { s.onClaim = answer })
			_, err := d.do("a", wait(time.Minute), d.mustNot)
			if !isInProgress(err) {
				t.Errorf("%v: Do answered %v", c, err)
			}
			if n := d.store.claims.Load(); n > 601 {
				t.Errorf("%v: Do asked %d times in a minute", c, n)
			}
		})
	}
}

// A store that does not keep to its contexts: all calls of Do return, not the first alone.
func TestDoFollowersOfACallThatHangs(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		hang := make(chan struct{})
		d.store.set(func(s *store) {
			s.onClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				<-hang
				return cs
			}
		})
		var all sync.WaitGroup
		for n := range 5 {
			all.Go(func() {
				takes(time.Duration(n) * 3 * time.Second) // some come when the first has gone
				begin := time.Now()
				_, err := d.do("a", wait(time.Hour), d.mustNot)
				d.wants("a call", 0, err, 0, &onceq.NotRunError{})
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		}
		ended := make(chan struct{})
		go func() { all.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(time.Hour):
			t.Error("some have not returned")
		}
		close(hang)
		all.Wait()
		pass(time.Minute)
		d.store.set(func(s *store) { s.onClaim = nil })
		v, err := d.do("a", nil, func(context.Context, *onceq.Job) (int, error) { return 3, nil })
		d.wants("a later call", v, err, 3, nil)
	})
}
