package bench

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/cputime"
)

// rounds is odd: the median is one of the rounds.
const rounds = 5

// A variant is one way to run n jobs. It makes them ready, which is not measured, and answers what runs them.
type variant struct {
	name  string
	ready func(ctx context.Context, tb testing.TB, n int) (run func())
}

// cost is what n jobs took: wall and processor time of this process, in nanoseconds a job.
type cost struct{ wall, cpu float64 }

// compare lets the variants take turns with n jobs each and answers their medians, in order. The first round warms up and does not
// count.
func compare(b *testing.B, n int, vs []variant) []cost {
	b.Helper()
	all := make([][]cost, len(vs))
	for round := range rounds + 1 {
		for k := range vs {
			i := (k + round) % len(vs) // nobody is always first
			run := vs[i].ready(b.Context(), b, n)
			runtime.GC()
			start, used := time.Now(), cputime.Used()
			run()
			if round > 0 {
				all[i] = append(all[i], cost{float64(time.Since(start)) / float64(n), float64(cputime.Used()-used) / float64(n)})
			}
		}
	}
	medians := make([]cost, len(vs))
	for i, cs := range all {
		medians[i].wall = median(cs, func(c cost) float64 { return c.wall })
		medians[i].cpu = median(cs, func(c cost) float64 { return c.cpu })
		b.Logf("%-24s %9.0f jobs/s %7.1f µs cpu/job", vs[i].name, 1e9/medians[i].wall, medians[i].cpu/1e3)
	}
	return medians
}

func median(cs []cost, part func(cost) float64) float64 {
	vs := make([]float64, len(cs))
	for i, c := range cs {
		vs[i] = part(c)
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}
