package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/cputime"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// benchPool is a pool of 16 connections to a server that has every commit on the disk before it
// answers.
func benchPool(b *testing.B) *pgxpool.Pool {
	b.Helper()
	db := testpg.NewDurable(b)
	return poolOn(b, db.URL, func(c *pgxpool.Config) { c.MaxConns = 16 })
}

// BenchmarkBatch is what a worker under load does: claims and settlements of 100 jobs in one call
// each, four at once. One operation is one job.
func BenchmarkBatch(b *testing.B) {
	pool := benchPool(b)
	s := newStore(b, pool, newTable())
	const size, callers = 100, 4
	server := startServerCost(b, pool)
	spread(b, callers, (b.N+size-1)/size, func(n int64) error { return claimAndSettle(b.Context(), s, "job", n*size, size) })
	server.report(b, pool, s)
}

// serverCost is what the server has spent: on a machine that is shared with others it tells more
// than jobs a second.
type serverCost struct {
	wal string
	cpu map[int]time.Duration // of each of its processes that can be seen
}

func startServerCost(b *testing.B, pool *pgxpool.Pool) *serverCost {
	b.Helper()
	for range pool.Config().MaxConns - 1 { // all connections are there
		conn, err := pool.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Release()
	}
	return &serverCost{pgtest.Scan[string](b, pool, "SELECT pg_current_wal_insert_lsn()::text"), serverCPU(b, pool)}
}

// report adds the WAL and the processor time a job, and what a key takes on the disk, as the jobs
// have left it and after a VACUUM FULL.
func (c *serverCost) report(b *testing.B, pool *pgxpool.Pool, s *Store) {
	b.Helper()
	wal := pgtest.Scan[int64](b, pool, "SELECT (pg_current_wal_insert_lsn() - $1::pg_lsn)::bigint", c.wal)
	var cpu time.Duration
	for pid, used := range serverCPU(b, pool) {
		cpu += used - c.cpu[pid]
	}
	n := float64(b.N)
	b.ReportMetric(float64(wal)/n, "WAL-B/job")
	b.ReportMetric(float64(cpu.Microseconds())/n, "server-µs/job")
	size := func(table, index string) {
		const q = "SELECT pg_table_size($1::regclass), pg_indexes_size($1::regclass)"
		var t, i int64
		if err := pool.QueryRow(b.Context(), q, s.sql().table).Scan(&t, &i); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(t)/n, table)
		b.ReportMetric(float64(i)/n, index)
	}
	size("table-B/key", "index-B/key")
	exec(b, pool, "VACUUM FULL "+s.sql().table)
	size("packed-table-B/key", "packed-index-B/key")
}

// serverCPU is the processor time of each process of the server, where it runs on this host.
func serverCPU(b *testing.B, pool *pgxpool.Pool) map[int]time.Duration {
	b.Helper()
	rows, err := pool.Query(b.Context(), "SELECT pid FROM pg_stat_activity")
	if err != nil {
		b.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		b.Fatal(err)
	}
	used := make(map[int]time.Duration)
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // elsewhere, or gone
		}
		// The name, which may have blanks, ends with the last parenthesis.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		used[pid] = time.Duration(user+system) * 10 * time.Millisecond // a tick of Linux
	}
	return used
}

func claimAndSettle(ctx context.Context, s dedupe.Store, name string, from int64, size int) error {
	qs := make([]dedupe.ClaimRequest, size)
	es := make([]dedupe.Settlement, size)
	for i := range qs {
		qs[i] = request(fmt.Sprintf("%s-%012d", name, from+int64(i)))
		// As a worker names a message of SQS: its id, and a sum.
		qs[i].MessageID = fmt.Sprintf("%08x-7f4e-4b7e-9d4b-%012x#1x2u4y6r8w9q", from, from+int64(i))
		qs[i].Owner, qs[i].Sent = "ip-10-0-12-34.eu-west-1/4711", time.Now()
		es[i] = dedupe.Settlement{Key: qs[i].Key, Token: qs[i].Token, To: dedupe.Done}
	}
	cs, err := s.Claim(ctx, qs)
	if err != nil {
		return err
	}
	for i := range cs {
		if cs[i].Outcome != dedupe.Won {
			return errors.Join(cs[i].Err, errors.New(cs[i].Outcome.String()))
		}
	}
	as, err := s.Settle(ctx, es)
	if err != nil {
		return err
	}
	for i := range as {
		if as[i].Status != dedupe.Done {
			return errors.Join(as[i].Err, errors.New(as[i].Status.String()))
		}
	}
	return nil
}

// BenchmarkBatchByHand is the limit to come near: the same batches by two bare statements that
// answer nothing but how many rows they wrote.
func BenchmarkBatchByHand(b *testing.B) {
	pool := benchPool(b)
	s := newStore(b, pool, newTable())
	insert := `INSERT INTO ` + s.sql().table + ` (scope, key, status, fence, token, attempt, started, policy, owner, message_id, lease_until,
		error_class, first_error, last_error, created, claimed_at, updated)
		SELECT 'orders', u.key, 'claimed', nextval('` + s.sql().fence + `'), u.token, 1, false, 'rerun', 'worker-1', u.message, clock_timestamp() + interval '1 minute',
		'', '', '', clock_timestamp(), clock_timestamp(), clock_timestamp() FROM unnest($1::text[], $2::uuid[], $3::text[]) AS u (key, token, message) ON CONFLICT DO NOTHING`
	settle := `UPDATE ` + s.sql().table + ` t SET status = 'done', lease_until = NULL, updated = clock_timestamp(), finished = clock_timestamp(),
		expires = clock_timestamp() + interval '31 days' FROM unnest($1::text[], $2::uuid[]) AS u (key, token)
		WHERE t.scope = 'orders' AND t.key = u.key AND t.token = u.token AND t.status = 'claimed'`
	const size = 100
	spread(b, 4, (b.N+size-1)/size, func(n int64) error {
		var keys, messages []string
		var tokens [][16]byte
		for i := range size {
			q := request(fmt.Sprintf("job-%012d", n*size+int64(i)))
			keys, messages, tokens = append(keys, q.Key.Key), append(messages, q.MessageID), append(tokens, q.Token)
		}
		tag, err := pool.Exec(b.Context(), insert, keys, tokens, messages)
		if err != nil || tag.RowsAffected() != size {
			return fmt.Errorf("%v, %w", tag, err)
		}
		tag, err = pool.Exec(b.Context(), settle, keys, tokens)
		if err != nil || tag.RowsAffected() != size {
			return fmt.Errorf("%v, %w", tag, err)
		}
		return nil
	})
}

// BenchmarkAlone is the yardstick: one transaction for each claim and for each settlement, as
// hand-written code does it, from 64 callers on the same connections.
func BenchmarkAlone(b *testing.B) {
	pool := benchPool(b)
	s := newStore(b, pool, newTable())
	insert := `INSERT INTO ` + s.sql().table + ` (scope, key, status, fence, token, attempt, started, policy, owner, message_id, lease_until,
		error_class, first_error, last_error, created, claimed_at, updated)
		VALUES ($1, $2, 'claimed', nextval('` + s.sql().fence + `'), $3, 1, false, 'rerun', 'worker-1', $4, clock_timestamp() + interval '1 minute',
		'', '', '', clock_timestamp(), clock_timestamp(), clock_timestamp()) ON CONFLICT DO NOTHING`
	settle := `UPDATE ` + s.sql().table + ` SET status = 'done', lease_until = NULL, updated = clock_timestamp(), finished = clock_timestamp(),
		expires = clock_timestamp() + interval '31 days' WHERE scope = $1 AND key = $2 AND token = $3 AND status = 'claimed'`
	one := func(n int64) error {
		q := request("job-" + strconv.FormatInt(n, 10))
		tag, err := pool.Exec(b.Context(), insert, q.Key.Scope, q.Key.Key, [16]byte(q.Token), q.MessageID)
		if err != nil || tag.RowsAffected() != 1 {
			return fmt.Errorf("%v, %w", tag, err)
		}
		tag, err = pool.Exec(b.Context(), settle, q.Key.Scope, q.Key.Key, [16]byte(q.Token))
		if err != nil || tag.RowsAffected() != 1 {
			return fmt.Errorf("%v, %w", tag, err)
		}
		return nil
	}
	spread(b, 64, b.N, one)
}

// BenchmarkCompleteTx is the user's transaction: two statements of business, with and without a
// completion beside them.
func BenchmarkCompleteTx(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprintf("complete=%v", with), func(b *testing.B) {
			pool := benchPool(b)
			s := newStore(b, pool, newTable())
			exec(b, pool, "CREATE TABLE orders (id bigint PRIMARY KEY, cents bigint)")
			exec(b, pool, "CREATE TABLE lines (id bigint, line text)")
			const ahead = 500
			var mu sync.Mutex
			leases := make(map[int64]dedupe.Lease)
			lease := func(n int64) dedupe.Lease {
				mu.Lock()
				defer mu.Unlock()
				if _, ok := leases[n]; !ok {
					b.StopTimer()
					qs := make([]dedupe.ClaimRequest, ahead)
					for i := range qs {
						qs[i] = request(fmt.Sprintf("%012d", n/ahead*ahead+int64(i)))
					}
					for i, c := range claimAll(b, s, qs...) {
						leases[n/ahead*ahead+int64(i)] = c.Lease
					}
					b.StartTimer()
				}
				return leases[n]
			}
			spread(b, 8, b.N, func(n int64) error {
				l := lease(n)
				return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(b.Context(), "INSERT INTO orders VALUES ($1, 995)", n); err != nil {
						return err
					}
					if _, err := tx.Exec(b.Context(), "INSERT INTO lines VALUES ($1, 'a line')", n); err != nil {
						return err
					}
					if !with {
						return nil
					}
					return s.CompleteTx(b.Context(), tx, &job{Of: l}, nil)
				})
			})
		})
	}
}

// spread makes so many calls, which are b.N jobs, from so many goroutines.
func spread(b *testing.B, callers, calls int, one func(n int64) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cputime.Used()
	for range callers {
		wg.Go(func() {
			for {
				n := next.Add(1) - 1
				if n >= int64(calls) {
					return
				}
				if err := one(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(cputime.Used()-cpu)/1e3/float64(b.N), "cpu-µs/job")
}
