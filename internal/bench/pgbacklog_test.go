package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// BenchmarkPostgresQueueBacklog is BenchmarkPostgresQueue's worker beside River tuned, where each
// has done 260,000 jobs before, and each table is vacuumed and analysed before each round. On a
// busy machine the processor time of both sides says more than the time on the wall.
func BenchmarkPostgresQueueBacklog(b *testing.B) {
	const older, jobs = 260_000, 20_000
	pool := openPool(b, testpg.NewDurable(b).URL)
	q, st := openPGQueue(b, pool, "bench"), openStore(b, pool, "bench_queue")
	quick := func(c *river.Config) { c.FetchCooldown, c.FetchPollInterval = time.Millisecond, 5*time.Millisecond }
	server := lookAtServer(b, pool)
	vs := []variant{
		{"river tuned", openRiver(b, pool, quick)},
		{"worker", queueWorker(q, st, func(context.Context, *onceq.Job) error { return nil })},
	}
	cpus, logs := make([][]float64, len(vs)), make([][]float64, len(vs))
	for i, v := range vs {
		run, _ := v.ready(b.Context(), b, older)
		run()
		vs[i].ready = func(ctx context.Context, tb testing.TB, n int) (do, after func()) {
			run, after := v.ready(ctx, tb, n)
			for _, sql := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
				if _, err := pool.Exec(ctx, sql); err != nil {
					tb.Fatal(err)
				}
			}
			return func() {
				cpu, log := server.cpu(), server.log(tb)
				run()
				cpus[i] = append(cpus[i], float64(server.cpu()-cpu)/float64(n))
				logs[i] = append(logs[i], float64(server.log(tb)-log)/float64(n))
			}, after
		}
	}
	b.ResetTimer()
	cs := compare(b, rounds, jobs, vs, nil)
	b.ReportMetric(0, "ns/op")
	var both [2]float64
	for i, v := range []string{"river-tuned", "worker"} {
		cpu, log := middle(cpus[i][1:]), middle(logs[i][1:]) // without the round that warms up
		both[i] = cpu + cs[i].cpu
		b.Logf("%-12s the server's %5.1f µs, its log %5.0f bytes a job", v, cpu/1e3, log)
		b.ReportMetric(1e9/cs[i].wall, v+"-jobs/s")
		b.ReportMetric(cs[i].cpu/1e3, v+"-client-µs/job")
		b.ReportMetric(cpu/1e3, v+"-server-µs/job")
		b.ReportMetric(log, v+"-log-B/job")
	}
	b.ReportMetric(1/cs[1].beside, "worker-x-tuned")
	b.ReportMetric(both[1]/both[0], "worker-cpu-x-tuned")
}

func middle(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// dbServer is the server of a pool: its processor time where it is on this machine, and its log.
type dbServer struct {
	pool *pgxpool.Pool
	pid  int // of the process that has begun the others; 0 = it cannot be seen
}

func lookAtServer(tb testing.TB, pool *pgxpool.Pool) dbServer {
	tb.Helper()
	s := dbServer{pool: pool}
	var file string
	if err := pool.QueryRow(tb.Context(), `SELECT pg_read_file('postmaster.pid')`).Scan(&file); err == nil {
		line, _, _ := strings.Cut(file, "\n")
		s.pid, _ = strconv.Atoi(line)
	}
	if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.pid)); !strings.HasPrefix(string(name), "postgres") {
		tb.Log("the server's processes cannot be seen from here: its processor time is told as 0")
		s.pid = 0
	}
	return s
}

// cpu is what the server's processes have used, those that have ended too.
func (s dbServer) cpu() (used time.Duration) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil || s.pid == 0 {
			continue
		}
		// Behind the name, in parentheses: state, parent, and from the twelfth on the times of the
		// process and of its children that have ended, in hundredths of a second.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		own, ended := filepath.Dir(stat) == fmt.Sprintf("/proc/%d", s.pid), 0
		if own {
			ended = 2
		} else if fields[1] != strconv.Itoa(s.pid) {
			continue
		}
		for _, field := range fields[11 : 13+ended] {
			n, _ := strconv.Atoi(field)
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

// log is how far its write-ahead log has come, in bytes.
func (s dbServer) log(tb testing.TB) (at int64) {
	tb.Helper()
	if err := s.pool.QueryRow(context.WithoutCancel(tb.Context()), `SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`).Scan(&at); err != nil {
		tb.Fatal(err)
	}
	return at
}
