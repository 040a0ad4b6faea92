package bench

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/cputime"
)

// rounds is odd: the median is one of the rounds. A ratio that is to be exact to a few in a
// hundred, where each job waits for the disk, takes more and shorter ones.
const (
	rounds      = 5
	shortRounds = 31
)

// A variant is one way to run n jobs. It makes them ready, which is not measured, and answers what
// runs them, and what clears up behind it, which is not measured either; nil = nothing.
type variant struct {
	name  string
	ready func(ctx context.Context, tb testing.TB, n int) (run, after func())
}

// cost is what a job took: wall and processor time of this process in nanoseconds, allocations, and
// requests where a server counts them. beside is the wall time by that of the first variant in the
// same round, so that what slows the machine for seconds slows both; half of the rounds are within
// low and high.
type cost struct{ wall, cpu, allocs, requests, beside, low, high float64 }

// compare lets the variants take turns with n jobs each and answers their medians, in order. The
// first round warms up and does not count. What requests counts, if it is given, is read before and
// after.
func compare(b *testing.B, rounds, n int, vs []variant, requests func() int64) []cost {
	b.Helper()
	if requests == nil {
		requests = func() int64 { return 0 }
	}
	all := make([][]cost, len(vs))
	for round := range rounds + 1 {
		for k := range vs {
			i := (k + round) % len(vs) // nobody is always first
			run, after := vs[i].ready(b.Context(), b, n)
			var m0, m1 runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m0)
			asked, start, used := requests(), time.Now(), cputime.Used()
			run()
			c := cost{wall: float64(time.Since(start)), cpu: float64(cputime.Used() - used)}
			runtime.ReadMemStats(&m1)
			c.allocs, c.requests = float64(m1.Mallocs-m0.Mallocs), float64(requests()-asked)
			if after != nil {
				after()
			}
			if round > 0 {
				f := float64(n)
				all[i] = append(all[i], cost{wall: c.wall / f, cpu: c.cpu / f, allocs: c.allocs / f, requests: c.requests / f})
			}
		}
	}
	for _, cs := range all {
		for round := range cs {
			cs[round].beside = cs[round].wall / all[0][round].wall
		}
	}
	medians := make([]cost, len(vs))
	for i, cs := range all {
		medians[i] = cost{
			wall:     median(cs, func(c cost) float64 { return c.wall }),
			cpu:      median(cs, func(c cost) float64 { return c.cpu }),
			allocs:   median(cs, func(c cost) float64 { return c.allocs }),
			requests: median(cs, func(c cost) float64 { return c.requests }),
			beside:   median(cs, func(c cost) float64 { return c.beside }),
			low:      quantile(cs, 1, 4, func(c cost) float64 { return c.beside }),
			high:     quantile(cs, 3, 4, func(c cost) float64 { return c.beside }),
		}
		m := medians[i]
		b.Logf("%-24s %9.0f jobs/s %7.1f µs cpu/job %7.1f allocs/job %6.3f requests/job, takes %.2f x the first (%.2f-%.2f)",
			vs[i].name, 1e9/m.wall, m.cpu/1e3, m.allocs, m.requests, m.beside, m.low, m.high)
	}
	return medians
}

func median(cs []cost, part func(cost) float64) float64 { return quantile(cs, 1, 2, part) }

// quantile is the value below which n of m parts are.
func quantile(cs []cost, n, m int, part func(cost) float64) float64 {
	vs := make([]float64, len(cs))
	for i, c := range cs {
		vs[i] = part(c)
	}
	slices.Sort(vs)
	return vs[len(vs)*n/m]
}
