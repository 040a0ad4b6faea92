package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	beginTx  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitTx = `COMMIT`
)

// plain sets, for the transaction, what a role or a database may have set otherwise. Under another
// encoding the server would transcode keys: one key would have two spellings, and two winners. If
// results come as text, pgx reads dates and bytes in one form each, and would fail after the
// COMMIT.
const plain = `SELECT pg_catalog.set_config('client_encoding', 'UTF8', true), pg_catalog.set_config('datestyle', 'ISO', true), ` +
	`pg_catalog.set_config('bytea_output', 'hex', true)`

// steady adds to that what the planner needs, so that the statements look up each key in the
// primary key's index, find a locked row at its place, and read nothing else. Left alone, the
// planner reads a small table without statistics whole. A prepared statement would go on doing so
// as the table grows, for a minute or more.
//
// Each key is looked up in a subquery of its own, which a lock or OFFSET 0 keeps apart: its only
// way to the row is the condition on the index. In a plain join the planner may as well walk
// through the whole index and compare the rows, because that costs nothing more while the table is
// empty.
const steady = plain + `, pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true), ` +
	`pg_catalog.set_config('enable_indexscan', 'on', true), pg_catalog.set_config('enable_tidscan', 'on', true), ` +
	`pg_catalog.set_config('enable_nestloop', 'on', true), pg_catalog.set_config('enable_hashjoin', 'off', true), ` +
	`pg_catalog.set_config('enable_mergejoin', 'off', true), pg_catalog.set_config('jit', 'off', true), ` +
	`pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)`

// placed is where a row stands that a statement locks, and atPlace finds it again. The partitions
// of one table have rows at equal places.
const (
	placed  = `t.ctid AS place, t.tableoid AS part`
	atPlace = `t.ctid {=} g.place AND t.tableoid {=} g.part`
)

// hasty holds for the transaction, too.
const hasty = steady + `, pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`

// pipeline is one transaction that goes out as a whole, in one round trip. It sets READ COMMITTED,
// whatever the default of the role or the database is, because each of its statements must see what
// others have committed before it.
type pipeline struct {
	b pgx.Batch
	// uncommitted is cleared when COMMIT was answered.
	uncommitted bool
}

func newPipeline() *pipeline {
	p := &pipeline{uncommitted: true}
	p.b.Queue(beginTx)
	p.b.Queue(steady)
	return p
}

// newHasty is a pipeline that fails with SQLSTATE 55P03 when it has to wait for a row, or the
// table, longer than limit.
func newHasty(limit string) *pipeline {
	p := &pipeline{uncommitted: true}
	p.b.Queue(beginTx)
	p.b.Queue(hasty, limit)
	return p
}

func (p *pipeline) exec(sql string, args ...any) { p.b.Queue(sql, args...) }

// query adds a statement whose rows go to read, one call each. What read keeps holds only when run
// has succeeded.
func (p *pipeline) query(sql string, args []any, read func(pgx.Rows) error) {
	p.b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := read(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// run sends the pipeline and reads the answers. After an error of the statements nothing was
// written. Any other error leaves that open.
func (p *pipeline) run(ctx context.Context, db DB) error {
	return p.commit(func() error { return p.send(ctx, db) })
}

// commit adds the end of the transaction and sends all of it.
func (p *pipeline) commit(send func() error) error {
	p.b.Queue(commitTx).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != commitTx {
			return fmt.Errorf("COMMIT was answered %s: %w", tag, pgx.ErrTxCommitRollback)
		}
		p.uncommitted = false
		return nil
	})
	err := send()
	if err == nil && p.uncommitted {
		err = errors.New("COMMIT was not answered")
	}
	return err
}

// send sends the statements. If the server has refused them because of others, send rolls back, so
// that the pool keeps the connection: a pool closes one that comes back in a failed transaction.
// Each busy row, and each statement_timeout of a slow server, would otherwise cost a connection
// when connections are dearest. After any other error the pool may close it, because a server that
// has become a replica, for instance, must be left. A type that wraps a pool has methods of its
// own, which must not be passed by.
func (p *pipeline) send(ctx context.Context, db DB) error {
	pool, ok := db.(*pgxpool.Pool)
	if !ok {
		return db.SendBatch(ctx, &p.b).Close()
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = conn.SendBatch(ctx, &p.b).Close(); isBusy(err) {
		_, _ = conn.Exec(ctx, `ROLLBACK`) // where it fails, the pool closes the connection after all
	}
	return err
}
