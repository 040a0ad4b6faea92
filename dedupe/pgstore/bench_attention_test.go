package pgstore

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/onceq/onceq/dedupe"
)

// rowBytes is what a done record takes on the disk while a table is filled: the row, its part of
// the indexes, and the log.
const rowBytes = 700

// BenchmarkAttention is what an operator's list costs beside many done records: 1,000 failed ones
// beside 10 million, or as many as ONCEQ_ROWS says. Filling takes minutes, and the disk that it
// says first.
func BenchmarkAttention(b *testing.B) {
	rows := 10_000_000
	if s := os.Getenv("ONCEQ_ROWS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 10_000 {
			b.Fatalf("ONCEQ_ROWS is %q, want a number, 10000 or more", s)
		}
		rows = n
	}
	fmt.Fprintf(os.Stderr, "BenchmarkAttention fills a table with %d rows: it needs %.1f GB of the server's disk (ONCEQ_ROWS=1000000 needs less)\n",
		rows, float64(rows)*rowBytes/1e9)
	pool := benchPool(b)
	s := newStore(b, pool, "records")
	fillTable(b, pool, s, rows, 1000)
	exec(b, pool, "VACUUM ANALYZE records")
	list := func(b *testing.B, q dedupe.Query, want int) {
		b.Helper()
		for b.Loop() {
			n := 0
			for _, err := range s.List(b.Context(), q) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != want {
				b.Fatalf("%d records, want %d", n, want)
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/list")
	}
	b.Run("failed", func(b *testing.B) { list(b, dedupe.Query{Status: dedupe.Failed}, 1000) })
	b.Run("failed-of-a-scope", func(b *testing.B) { list(b, dedupe.Query{Status: dedupe.Failed, Scope: "scope-3"}, 100) })
	b.Run("a-page", func(b *testing.B) { list(b, dedupe.Query{Status: dedupe.Failed, Limit: 20}, 20) })
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Count(b.Context(), dedupe.Query{}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/count")
	})
}
