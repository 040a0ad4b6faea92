package sqlitebroker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// BenchmarkJobs empties a queue with a Worker whose store is in the same file: receive, claim,
// settle, ack. Every commit is on the disk before it is answered. jobs/s is the figure.
func BenchmarkJobs(b *testing.B) {
	for _, size := range []int{64, 256} {
		b.Run(fmt.Sprintf("concurrency=%d", size), func(b *testing.B) {
			const jobs = 20_000
			for b.Loop() {
				b.StopTimer()
				f := openFile(b, tempFile(b))
				orders, dead := f.queue("orders", nil), f.queue("dead", nil)
				for n := range jobs / 100 {
					ms := make([]broker.Outgoing, 100)
					for i := range ms {
						ms[i] = onceq.Message("pay", fmt.Sprint("order-", n, "-", i), []byte(`{"order":1}`))
					}
					if err := onceq.Send(b.Context(), orders, ms); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				drain(b, f, orders, dead, size, jobs)
			}
			b.ReportMetric(float64(jobs)*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

func drain(b *testing.B, f *file, orders, dead *Queue, concurrency, jobs int) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var done atomic.Int64
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Store: f.store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			if done.Add(1) == int64(jobs) {
				stop()
			}
			return nil
		}),
	}))
	w := must.Get(p.Worker(orders, onceq.WorkerConfig{DeadLetter: dead, Concurrency: concurrency}))
	if err := w.Run(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkReceive receives and acks ten messages at a time, of a table that is small and of ones
// that have grown: by a million that wait, by 100,000 followers of one group, by a thousand queues.
// ONCEQ_ROWS=100000 grows them less. p50-us is the median of the receives.
func BenchmarkReceive(b *testing.B) {
	rows := 1_000_000
	if s := os.Getenv("ONCEQ_ROWS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 10_000 {
			b.Fatalf("ONCEQ_ROWS is %q, want a number, 10000 or more", s)
		}
		rows = n
	}
	fmt.Fprintf(os.Stderr, "BenchmarkReceive fills files with up to %d rows: they need %.1f GB of the disk for temporary files\n", rows, float64(rows)*bytesPerRow/1e9)
	for _, c := range []struct {
		name string
		grow func(f *file, orders *Queue)
	}{
		{"small", func(*file, *Queue) {}},
		{"waiting", func(f *file, orders *Queue) { fill(f, "orders", "NULL", "x'31'", rows) }},
		{"followers", func(f *file, orders *Queue) { fill(f, "orders", "'vip'", "x'31'", rows/10) }},
		{"queues", func(f *file, orders *Queue) { fill(f, "q", "NULL", "x'31'", rows) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := openFile(b, tempFile(b))
			orders := f.queue("orders", nil)
			c.grow(f, orders)
			f.exec("PRAGMA wal_checkpoint(TRUNCATE)")
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				send(b, orders, bodies("", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")...)
				b.StartTimer()
				begun := time.Now()
				ms := take(b, orders, 10)
				took = append(took, time.Since(begun))
				ack(b, orders, ms...)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
		})
	}
}

// bytesPerRow is what a row takes on the disk with its indexes and, while a table is filled, the
// log.
const bytesPerRow = 500

// fill puts n rows into a queue, or, with the name q, into a thousand of them.
func fill(f *file, name, group, body string, n int) {
	f.Helper()
	queue := "'" + name + "'"
	if name == "q" {
		queue = "'q' || (value % 1000)"
	}
	f.exec(`INSERT INTO `+defaultTable+` (queue, due, grp, published, body)
		SELECT `+queue+`, '2020-01-01T00:00:00.000000000Z', `+group+`, '2020-01-01T00:00:00.000000000Z', `+body+`
		FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?) SELECT value FROM n)`, n)
}
