package batch_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onceq/onceq/internal/batch"
)

func BenchmarkAdd(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept=%v", kept), func(b *testing.B) {
			var n atomic.Int64
			q := batch.New(batch.Options{Max: 10, Flight: 4}, func(e []int) { n.Add(int64(len(e))) })
			q.Keep(kept)
			defer q.Keep(false)
			b.ReportAllocs()
			for b.Loop() {
				q.Add(1)
			}
		})
	}
}

// BenchmarkBacklog is an entry's cost when 100,000 others wait before it.
func BenchmarkBacklog(b *testing.B) {
	const most = 100_000
	entries := numbers(0, most)
	b.ReportAllocs()
	for b.Loop() {
		var done sync.WaitGroup
		done.Add(most)
		q := batch.New(batch.Options{Max: 10, Flight: 1}, func(e []int) { done.Add(-len(e)) })
		q.Add(entries...)
		done.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/most, "ns/entry")
}
