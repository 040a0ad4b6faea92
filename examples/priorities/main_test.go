package main

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestShares: with work everywhere the classes have their weights, or the first has all but the
// floors; without, the others have what it leaves. Nobody starves, and the slots are never
// exceeded.
func TestShares(t *testing.T) {
	const many, long = 5_000, 20 * time.Second
	total := float64(slots) * float64(long) / float64(jobTime)
	for name, c := range map[string]struct {
		strict bool
		late   time.Duration
		jobs   [3]int
		want   [3]float64 // parts of what twenty slots can do
	}{
		"weights":               {false, 0, [3]int{many, many, many}, [3]float64{12. / 20, 6. / 20, 2. / 20}},
		"nothing to charge":     {false, 0, [3]int{0, many, many}, [3]float64{0, 14. / 20, 5. / 20}},
		"reports alone":         {false, 0, [3]int{0, 0, many}, [3]float64{0, 0, 18. / 20}},
		"reports are first":     {false, 10 * time.Second, [3]int{many, many, many}, [3]float64{6. / 20, 3. / 20, 10. / 20}},
		"strict":                {true, 0, [3]int{many, many, many}, [3]float64{18. / 20, 1. / 20, 1. / 20}},
		"strict, few to charge": {true, 0, [3]int{50, many, many}, [3]float64{0, 18. / 20, 1. / 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, err := run(t.Context(), io.Discard, c.strict, long, c.late, c.jobs)
				require.NoError(t, err)
				require.LessOrEqual(t, got.most, slots)
				for i, queue := range names {
					part := float64(got.done[queue]) / total
					require.InDelta(t, c.want[i], part, 0.05, "%s", queue)
					if c.jobs[i] > 0 {
						require.Less(t, got.first[queue].Sub(began), c.late+time.Second, "%s starves", queue)
						require.Positive(t, got.done[queue])
					}
				}
			})
		})
	}
}
