package sqlitestore

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storetest"
)

// BenchmarkJob is one job: a claim and a settlement, each a call of its own, from many callers.
// Every commit is on the disk before it is answered. "alone" is the same with one transaction for
// each call.
func BenchmarkJob(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, c := range []struct {
			name string
			most int
		}{{"combined", maxBatch}, {"alone", 1}} {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, c.name), func(b *testing.B) {
				s, _ := newStore(b, tempFile(b), nil)
				s.w.Most = c.most
				jobs(b, s, callers)
			})
		}
	}
}

// BenchmarkGet reads one record, and as many as a look at a queue's seats asks for at once.
func BenchmarkGet(b *testing.B) {
	for _, n := range []int{1, 40} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			s, _ := newStore(b, tempFile(b), nil)
			ks := make([]dedupe.Key, n)
			for i := range ks {
				ks[i] = dedupe.Key{Scope: "orders", Key: strconv.Itoa(i)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Get(b.Context(), ks); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJobTwoProcesses is BenchmarkJob with another process at work on the file; others/s is
// what that one did meanwhile.
func BenchmarkJobTwoProcesses(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			path := tempFile(b)
			s, _ := newStore(b, path, nil)
			p := start(b, "endless", path)
			var others atomic.Int64
			var wg sync.WaitGroup
			wg.Go(func() {
				for p.out.Scan() {
					others.Add(1)
				}
			})
			jobs(b, s, callers)
			n := others.Load()
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "others/s")
			if err := p.Process.Kill(); err != nil {
				b.Fatal(err)
			}
			wg.Wait()
			p.Wait()
		})
	}
}

// jobs runs b.N jobs from so many goroutines and reports the longest that a call took.
func jobs(b *testing.B, s *Store, callers int) {
	b.Helper()
	var next, longest atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				began := time.Now()
				if won, err := runOnce(s, "job-"+strconv.FormatInt(n, 10)); err != nil || !won {
					b.Error(won, err)
					return
				}
				took := int64(time.Since(began))
				for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(longest.Load())/1e6, "max-ms")
}

// BenchmarkBatch is what a worker under load does: claims and settlements of 64 jobs in one call
// each. One operation is one job.
func BenchmarkBatch(b *testing.B) {
	s, _ := newStore(b, tempFile(b), nil)
	const size = 64
	b.ReportAllocs()
	for n := 0; n < b.N; n += size {
		qs := make([]dedupe.ClaimRequest, size)
		es := make([]dedupe.Settlement, size)
		for i := range qs {
			qs[i] = request(fmt.Sprintf("%09d", n+i))
			es[i] = dedupe.Settlement{Key: qs[i].Key, Token: qs[i].Token, To: dedupe.Done}
		}
		storetest.ClaimAll(b, s, qs...)
		as, err := s.Settle(b.Context(), es)
		if err != nil || as[0].Err != nil {
			b.Fatal(as, err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
