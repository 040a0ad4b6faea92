package dlq_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/onceqtest"
)

// A rate that no int holds is as good as none: letters go out in full batches, at once.
func TestRateExtremes(t *testing.T) {
	for _, rate := range []float64{1e9, 1e18, 1e19, math.MaxFloat64} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.many(100)
				var p onceqtest.Process
				to := p.Producer(r.queue)
				began := time.Now()
				rep := r.mustReplay(dlq.ReplayOptions{To: to, PerSecond: rate})
				full := (100 + to.Limits().SendBatch - 1) / to.Limits().SendBatch
				if rep.Replayed != 100 || p.Calls(onceqtest.Send) > full+1 || time.Since(began) > 10*time.Second {
					t.Errorf("%v in %d calls and %v, full batches are %d", rep, p.Calls(onceqtest.Send), time.Since(began), full)
				}
			})
		})
	}
}

// A watch of the longest time there is ends when the jobs are done, or when one came back.
func TestCanaryWaitExtreme(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.many(3)
		done := func(context.Context, []dlq.Ref) (dlq.Became, error) { return dlq.Became{Done: 1}, nil }
		rep := r.mustReplay(dlq.ReplayOptions{Canary: 1, CanaryWait: math.MaxInt64, Done: done})
		if rep.Replayed != 3 {
			t.Error(rep)
		}
	})
}
