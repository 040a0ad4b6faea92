package doing

import (
	"context"
	"strconv"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/cputime"
	"github.com/onceq/onceq/internal/must"
)

// BenchmarkDo is one caller's calls of Do, each with a key of its own, on a memory store that is at
// its bound; and the same for a key that is done.
func BenchmarkDo(b *testing.B) {
	const records = 100_000
	st := must.Get(memstore.New(&memstore.Options{MaxRecords: records}))
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{Store: st, Scope: "bench"}))
	n := 0
	one := func(b *testing.B, key string) {
		if _, err := onceq.Do(context.Background(), p, dedupe.Key{Key: key}, nil, func(context.Context, *onceq.Job) (int, error) { return 1, nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("new", func(b *testing.B) {
		for ; n < records; n++ {
			one(b, "fill-"+strconv.Itoa(n))
		}
		measure(b, func() {
			n++
			one(b, "key-"+strconv.Itoa(n))
		})
	})
	b.Run("duplicate", func(b *testing.B) {
		one(b, "same")
		measure(b, func() { one(b, "same") })
	})
}

// measure also reports the processor time of all threads.
func measure(b *testing.B, call func()) {
	b.Helper()
	b.ReportAllocs()
	used := cputime.Used()
	for b.Loop() {
		call()
	}
	b.ReportMetric(float64(cputime.Used()-used)/float64(b.N), "cpu-ns/op")
}
