package pgstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the index of what people look for, and how it is built beside workers. Migrate
// calls it. One starter builds: it holds an advisory lock of PostgreSQL in a transaction of its
// own, which has no snapshot, so that the build does not wait for it.

// Bounds of changing a table at which workers are at work.
const (
	alterWait  = "200ms" // less than insertWait
	alterTries = 60
	// buildTries bound the builds that others break off, by a deadlock for instance.
	buildTries = 5
)

// alterPause is the one after the n-th refusal: up to a second, half of it at random.
func alterPause(n int) time.Duration {
	d := min(time.Duration(n)*100*time.Millisecond, time.Second)
	return d/2 + rand.N(d/2+1)
}

func (s *Store) attentionName() string { return s.table + "_attention" }

// attentionIndex is the statement that makes the index, in the way of "CONCURRENTLY" or "".
func (s *Store) attentionIndex(way string) string {
	return "CREATE INDEX " + way + " " + pgx.Identifier{s.attentionName()}.Sanitize() + " ON {table} " + createAttention
}

// buildAttention builds the index. A table of ten million rows is read twice for it, and a claim or
// a settlement meanwhile waits for nothing. If another starter builds it, there is nothing to do.
func (s *Store) buildAttention(ctx context.Context, have *present) error {
	for n := 1; ; n++ {
		err := s.tryBuild(ctx, have)
		// A time limit would end the next try, too, after as much work.
		if !pgkit.IsBusy(err) || pgkit.State(err) == pgkit.QueryCanceled || n == buildTries || !retry.Rest(ctx, alterPause(n)) {
			return err
		}
	}
}

func (s *Store) tryBuild(ctx context.Context, have *present) error {
	lock, err := s.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	free := func() { _ = lock.Rollback(context.WithoutCancel(ctx)) }
	defer free()
	if _, err := lock.Exec(ctx, pgkit.Plain+patient); err != nil {
		return err
	}
	// It never waits, because a statement that waits has a snapshot, and the build waits for that.
	var mine bool
	const try = `SELECT pg_catalog.pg_try_advisory_xact_lock($1::bigint)`
	if err := lock.QueryRow(ctx, try, -pgkit.Turn-int64(have.oid)).Scan(&mine); err != nil || !mine {
		return err
	}
	now, err := s.inspect(ctx, lock)
	if err != nil || now.attention == ready {
		return err
	}
	if now.attention == invalid {
		// Somebody may be building whose turn has ended with a connection.
		var building bool
		if err := lock.QueryRow(ctx, pgkit.Operators(isBuilding), have.oid).Scan(&building); err != nil || building {
			return err
		}
	}
	// The portal of the last query with arguments keeps its snapshot until the next statement, and
	// the build would wait for it for ever. One without arguments leaves no portal.
	if _, err := lock.Exec(ctx, `SELECT 1`); err != nil {
		return err
	}
	if !s.hasSecond(ctx) {
		free() // in a pool of one connection the build would wait for the lock's
	}
	st := newStatements(have.schema, s.table)
	if now.attention == invalid {
		name := pgx.Identifier{have.schema, s.attentionName()}.Sanitize()
		if err := s.alone(ctx, `DROP INDEX CONCURRENTLY IF EXISTS `+name); err != nil {
			return err
		}
	}
	return s.alone(ctx, st.fill(s.attentionIndex("CONCURRENTLY IF NOT EXISTS")))
}

// patient takes the limits off a transaction that is idle while the index is built. If the server
// ended it, another starter would have the turn, and drop what is being built.
const patient = `, pg_catalog.set_config('idle_in_transaction_session_timeout', '0', true), ` +
	`CASE WHEN pg_catalog.current_setting('transaction_timeout', true) IS NOT NULL THEN pg_catalog.set_config('transaction_timeout', '0', true) END`

// isBuilding reports whether an index of the table is being built. Of another role's builds the
// view does not tell the table.
const isBuilding = `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_create_index b
	WHERE b.datname {=} pg_catalog.current_database() AND (b.relid IS NULL OR b.relid {=} $1::pg_catalog.oid))`

// hasSecond reports whether the pool gives a connection beside the one that is taken.
func (s *Store) hasSecond(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return pgkit.Ask(ctx, s.db, newPipeline) == nil
}

// alone sends a statement that PostgreSQL takes outside of transactions only.
func (s *Store) alone(ctx context.Context, sql string) error {
	var b pgx.Batch
	b.Queue(sql)
	err := s.db.SendBatch(ctx, &b).Close()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("building the index %s: %w", s.attentionName(), err)
	switch pgkit.State(err) {
	case pgkit.QueryCanceled, pgkit.LockNotAvailable:
		if ctx.Err() == nil {
			err = fmt.Errorf("%w (if a statement_timeout or lock_timeout of the role has ended it: run Migrate once, before the workers start, as a role without)", err)
		}
	case pgkit.NotSupported:
		err = fmt.Errorf("%w (run this once as the table's owner, when a lock on the table harms nobody: %s)", err,
			strings.Join(strings.Fields(strings.ReplaceAll(sql, " CONCURRENTLY", "")), " "))
	}
	return err
}
