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

// plain holds for the transaction, so that what a role or a database has set changes neither what
// is stored nor what is read. Under another encoding the server would transcode keys, and one key
// would have two spellings: two winners. Where results come as text, pgx reads dates and bytes in
// one form each, and would fail after the COMMIT.
const plain = `SELECT pg_catalog.set_config('client_encoding', 'UTF8', true), pg_catalog.set_config('datestyle', 'ISO', true), ` +
	`pg_catalog.set_config('bytea_output', 'hex', true)`

// steady adds to that what the planner needs. The statements look up each key in the primary key's
// index and nowhere else: while the table is small and without statistics the planner likes to read
// it whole, and a prepared statement would go on doing so as the table grows, for a minute or more.
const steady = plain + `, pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_hashjoin', 'off', true), ` +
	`pg_catalog.set_config('enable_mergejoin', 'off', true), pg_catalog.set_config('jit', 'off', true), ` +
	`pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)`

// hasty holds for the transaction, too.
const hasty = steady + `, pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`

// pipeline is one transaction that goes out as a whole: one round trip. It says READ COMMITTED,
// whatever the role's or the database's default is: each of its statements must see what others
// have committed before it.
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

// run sends the pipeline and reads the answers. An error of the statements means that nothing was
// written; any other leaves that open.
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

// send keeps the connection when the server has refused because of others. It is in a failed
// transaction then, and a pool closes what comes back in one: each busy row, and each
// statement_timeout of a slow server, would cost a connection when connections are dearest. After
// any other error the pool may do so: a server that has become a replica, say, must be left. What
// wraps a pool has methods of its own, which must not be passed by.
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
