package doing

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
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
		answer := rig.Each(func(q *dedupe.Claim) {
			*q = dedupe.Claim{Outcome: dedupe.InProgress, Left: c.left, Age: c.age, Term: c.term}
		})
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Store.Set(func(s *rig.Store) { s.OnClaim = answer })
			r.Send("a")
			r.Start()
			rig.Pass(time.Minute)
			ds := r.Q.Delays("a")
			if len(ds) == 0 || len(ds) > 200 {
				t.Fatalf("%v: %d nacks in a minute", c, len(ds))
			}
			for _, d := range ds {
				if wait := max(0, c.left, c.age); d < 0 || d > 365*24*time.Hour || wait < time.Hour && d > wait/8+wait+time.Second {
					t.Errorf("%v: nacked for %v", c, d)
				}
			}
		})
		rig.BubbleDo(t, func(d *rig.Doer) {
			d.Store.Set(func(s *rig.Store) { s.OnClaim = answer })
			_, err := d.Do("a", wait(time.Minute), d.MustNot)
			if !isInProgress(err) {
				t.Errorf("%v: Do answered %v", c, err)
			}
			if n := d.Store.Claims.Load(); n > 601 {
				t.Errorf("%v: Do asked %d times in a minute", c, n)
			}
		})
	}
}

// A store that does not keep to its contexts: all calls of Do return, not the first alone.
func TestDoFollowersOfACallThatHangs(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		hang := make(chan struct{})
		d.Store.Set(func(s *rig.Store) {
			s.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				<-hang
				return cs
			}
		})
		var all sync.WaitGroup
		for n := range 5 {
			all.Go(func() {
				rig.Takes(time.Duration(n) * 3 * time.Second) // some come when the first has gone
				begin := time.Now()
				_, err := d.Do("a", wait(time.Hour), d.MustNot)
				d.Wants("a call", 0, err, 0, &onceq.NotRunError{})
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
		rig.Pass(time.Minute)
		d.Store.Set(func(s *rig.Store) { s.OnClaim = nil })
		v, err := d.Do("a", nil, func(context.Context, *onceq.Job) (int, error) { return 3, nil })
		d.Wants("a later call", v, err, 3, nil)
	})
}
