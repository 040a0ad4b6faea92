package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/cputime"
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
	s := newStore(b, benchPool(b), newTable())
	const size, callers = 100, 4
	spread(b, callers, (b.N+size-1)/size, func(n int64) error { return claimAndSettle(b.Context(), s, "job", n*size, size) })
}

func claimAndSettle(ctx context.Context, s dedupe.Store, name string, from int64, size int) error {
	qs := make([]dedupe.ClaimRequest, size)
	es := make([]dedupe.Settlement, size)
	for i := range qs {
		qs[i] = request(fmt.Sprintf("%s-%012d", name, from+int64(i)))
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
