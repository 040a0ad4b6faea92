package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

const benchBatch = 10

// jobs makes batches of claims and settlements of keys that nobody had before. The names are made
// beforehand: they come with the message, not from the store.
type jobs struct {
	names  []string
	n      uint64
	claims []dedupe.ClaimRequest
	ends   []dedupe.Settlement
}

func newJobs(worker int) *jobs {
	j := &jobs{claims: make([]dedupe.ClaimRequest, benchBatch), ends: make([]dedupe.Settlement, benchBatch)}
	for i := range 65_530 {
		j.names = append(j.names, "order-"+strconv.Itoa(worker)+"-"+strconv.Itoa(i))
	}
	return j
}

func (j *jobs) next(scope string) {
	for i := range j.claims {
		j.n++
		var t dedupe.Token
		binary.LittleEndian.PutUint64(t[:], j.n)
		k := dedupe.Key{Scope: scope, Key: j.names[j.n%uint64(len(j.names))]}
		j.claims[i] = dedupe.ClaimRequest{Key: k, Token: t, TTL: 30 * time.Second, Owner: "worker-1", MessageID: "m-1"}
		j.ends[i] = dedupe.Settlement{Key: k, Token: t, To: dedupe.Done}
	}
}

func (j *jobs) run(ctx context.Context, b *testing.B, s *Store) {
	cs, err := s.Claim(ctx, j.claims)
	if err != nil {
		b.Fatal(err)
	}
	for i := range cs {
		if cs[i].Outcome != dedupe.Won {
			b.Fatal(cs[i].Outcome, cs[i].Err)
		}
	}
	as, err := s.Settle(ctx, j.ends)
	if err != nil {
		b.Fatal(err)
	}
	for i := range as {
		if as[i].Err != nil {
			b.Fatal(as[i].Err)
		}
	}
}

// scopes keeps the keys new although the names come round.
func scope(round uint64) string { return "orders-" + strconv.FormatUint(round, 10) }

// BenchmarkClaimSettle claims and settles jobs whose keys are new, batch of 10, in a store that is
// full from the start: each claim drops the oldest done record. One operation is one job.
func BenchmarkClaimSettle(b *testing.B) {
	for _, full := range []int{1, 1_000, 30_000, 1_000_000} {
		b.Run(fmt.Sprintf("full=%d", full), func(b *testing.B) {
			s := mustNew(b, &Options{MaxRecords: max(full, benchBatch)})
			j := newJobs(0)
			sc := scope(0)
			step := func() {
				if j.n%uint64(len(j.names)) == 0 {
					sc = scope(j.n)
				}
				j.next(sc)
				j.run(b.Context(), b, s)
			}
			for s.Len() < max(full, benchBatch) {
				step()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N/benchBatch + 1 {
				step()
			}
		})
	}
}

// BenchmarkClaimSettleGrowing is the same in a store that is not full, memory for new records
// included.
func BenchmarkClaimSettleGrowing(b *testing.B) {
	s := mustNew(b, &Options{MaxRecords: 1 << 40})
	j := newJobs(0)
	sc := scope(0)
	b.ReportAllocs()
	for i := 0; i < b.N; i += benchBatch {
		if i%(benchBatch<<16) == 0 {
			b.StopTimer()
			s = mustNew(b, &Options{MaxRecords: 1 << 40})
			b.StartTimer()
		}
		if j.n%uint64(len(j.names)) == 0 {
			sc = scope(j.n)
		}
		j.next(sc)
		j.run(b.Context(), b, s)
	}
}

// BenchmarkClaimSettleParallel is BenchmarkClaimSettle from all processors at once.
func BenchmarkClaimSettleParallel(b *testing.B) {
	s := mustNew(b, &Options{MaxRecords: 100_000})
	var workers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		j := newJobs(int(workers.Add(1)))
		for round := uint64(0); ; round++ {
			sc := scope(round)
			for range len(j.names) / benchBatch {
				j.next(sc)
				for range benchBatch {
					if !pb.Next() {
						return
					}
				}
				j.run(b.Context(), b, s)
			}
		}
	})
}

// BenchmarkDuplicate claims a key that is done: the answer carries a copy of the record.
func BenchmarkDuplicate(b *testing.B) {
	s := mustNew(b, nil)
	j := newJobs(0)
	j.next("orders")
	j.run(b.Context(), b, s)
	for i := range j.claims {
		j.claims[i].Token[15] = 1
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += benchBatch {
		if _, err := s.Claim(b.Context(), j.claims); err != nil {
			b.Fatal(err)
		}
	}
}

func mustNew(tb testing.TB, o *Options) *Store {
	tb.Helper()
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
