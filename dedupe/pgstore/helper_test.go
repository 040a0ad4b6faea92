package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// openPool opens a pool on a database of the test's own.
func openPool(tb testing.TB, settings ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return poolOn(tb, testpg.New(tb).URL, settings...)
}

func poolOn(tb testing.TB, url string, settings ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	c.MaxConns = 10
	for _, set := range settings {
		set(c)
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// newStore makes a store with its table, which may be there already.
func newStore(tb testing.TB, db DB, table string) *Store {
	tb.Helper()
	s, err := New(db, &Options{Table: table})
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

var tables atomic.Int64

// newTable is a table's name that no other test of the process has.
func newTable() string { return fmt.Sprintf("records_%d", tables.Add(1)) }

func newToken() (t dedupe.Token) {
	rand.Read(t[:])
	return t
}

func request(key string) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{
		Key: dedupe.Key{Scope: "orders", Key: key}, Token: newToken(), TTL: time.Minute,
		Owner: "worker-1", MessageID: "m-" + key,
	}
}

// claimAll claims a batch in which every entry is to be answered.
func claimAll(tb testing.TB, s dedupe.Store, qs ...dedupe.ClaimRequest) []dedupe.Claim {
	tb.Helper()
	cs, err := s.Claim(tb.Context(), qs)
	if err == nil {
		for _, c := range cs {
			err = errors.Join(err, c.Err)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return cs
}

// claimOne wins the key or fails the test.
func claimOne(tb testing.TB, s dedupe.Store, q dedupe.ClaimRequest) dedupe.Lease {
	tb.Helper()
	c := claimAll(tb, s, q)[0]
	if c.Outcome != dedupe.Won {
		tb.Fatalf("claim of %v: %v, want won", q.Key, c.Outcome)
	}
	return c.Lease
}

// get reads the record, which must be there.
func get(tb testing.TB, s dedupe.Store, k dedupe.Key) *dedupe.Record {
	tb.Helper()
	rs, err := s.Get(tb.Context(), []dedupe.Key{k})
	if err != nil {
		tb.Fatal(err)
	}
	if rs[0] == nil {
		tb.Fatalf("no record under %v", k)
	}
	return rs[0]
}

func settleOne(tb testing.TB, s dedupe.Store, l dedupe.Lease, to dedupe.Status) {
	tb.Helper()
	as, err := s.Settle(tb.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: to, Result: []byte(`"ok"`)}})
	if err != nil || as[0].Err != nil || as[0].Status != to {
		tb.Fatalf("settle %v to %v: %+v, %v", l.Key, to, as, err)
	}
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

// scan reads one value.
func scan[T any](tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), sql, args...).Scan(&v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// age lets d go by for the record under k.
func age(tb testing.TB, pool *pgxpool.Pool, s *Store, k dedupe.Key, d time.Duration) {
	tb.Helper()
	exec(tb, pool, `UPDATE `+s.sql().table+` SET lease_until = lease_until - $3::interval, created = created - $3::interval, claimed_at = claimed_at - $3::interval,
		updated = updated - $3::interval, finished = finished - $3::interval, expires = expires - $3::interval WHERE scope = $1 AND key = $2`, k.Scope, k.Key, d)
}

// counted counts the round trips that a store makes.
type counted struct {
	DB
	trips atomic.Int64
	// before is called before each one.
	before func()
}

func (c *counted) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c.trips.Add(1)
	if c.before != nil {
		c.before()
	}
	return c.DB.SendBatch(ctx, b)
}

// job is a running job, as the processor shows it.
type job struct {
	lease  dedupe.Lease
	retain time.Duration
	joined atomic.Bool
}

func (j *job) Lease() dedupe.Lease   { return j.lease }
func (j *job) Retain() time.Duration { return j.retain }
func (j *job) Join()                 { j.joined.Store(true) }
