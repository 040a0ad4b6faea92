package pgstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pgkit/pgtest"
	"github.com/onceq/onceq/internal/storetest"
)

// What the tests of all stores say.
type job = storetest.Job

var (
	newToken  = storetest.Token
	request   = storetest.Request
	claimAll  = storetest.ClaimAll
	claimOne  = storetest.Claim
	get       = storetest.Get
	settleOne = storetest.End
)

// What the tests of the queue say, too.
var (
	openPool = pgtest.Pool
	poolOn   = pgtest.PoolOn
	exec     = pgtest.Exec
	modes    = pgtest.Modes
)

// newStore makes a store with its table, which may be there already.
func newStore(tb testing.TB, db DB, table string) *Store {
	tb.Helper()
	s := must.Get(New(db, &Options{Table: table}))
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

var tables atomic.Int64

// newTable is a table's name that no other test of the process has.
func newTable() string { return fmt.Sprintf("records_%d", tables.Add(1)) }

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
