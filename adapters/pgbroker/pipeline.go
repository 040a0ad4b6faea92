package pgbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file owns how statements are sent. Each call makes a pipeline of its own and holds one
// connection of the pool while it runs; nothing else is locked.

const (
	beginTx  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitTx = `COMMIT`
)

// plain sets, for the transaction, what a role or a database may have set otherwise, so that names
// are not transcoded and results that come as text can be read.
const plain = `SELECT pg_catalog.set_config('client_encoding', 'UTF8', true), pg_catalog.set_config('datestyle', 'ISO', true), ` +
	`pg_catalog.set_config('bytea_output', 'hex', true)`

// steady adds what the planner needs, so that each statement goes down the index that was made for
// it. Left alone, the planner reads a small table without statistics whole, and a prepared
// statement would go on doing so as the table grows. A bitmap or a sort would read a whole backlog
// for its first hundred rows. lock_timeout bounds the waits that are left: for a lock on the whole
// table, and for another transaction of ours that orders the same group.
const steady = plain + `, pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_hashjoin', 'off', true), ` +
	`pg_catalog.set_config('enable_mergejoin', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true), ` +
	`pg_catalog.set_config('enable_sort', 'off', true), pg_catalog.set_config('jit', 'off', true), ` +
	`pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)`

// swift lets a transaction not wait for the disk.
const swift = `SELECT pg_catalog.set_config('synchronous_commit', 'off', true)`

// How long a statement waits for a lock: settlements first try it for a moment.
const (
	lockTimeout   = "4s"
	settleTimeout = "300ms"
)

// pipeline is a transaction that goes out as a whole, in one round trip, or several that go out
// together, one after the other. Each sets READ COMMITTED, whatever the default of the role or the
// database is, because each of its statements must see what others have committed before it.
type pipeline struct {
	b           pgx.Batch
	lockTimeout string
	// unanswered is how many transactions have no answer to their COMMIT, committed how many have.
	unanswered, committed int
}

func newPipeline() *pipeline { return newPipelineWith(lockTimeout) }

func newPipelineWith(lockTimeout string) *pipeline {
	p := &pipeline{lockTimeout: lockTimeout}
	p.open()
	return p
}

func (p *pipeline) open() {
	p.unanswered++
	p.b.Queue(beginTx)
	p.b.Queue(steady, p.lockTimeout)
}

func (p *pipeline) commit() {
	p.b.Queue(commitTx).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != commitTx {
			return fmt.Errorf("COMMIT was answered %s: %w", tag, pgx.ErrTxCommitRollback)
		}
		p.unanswered--
		p.committed++
		return nil
	})
}

// another ends the transaction, and begins the one behind it.
func (p *pipeline) another() {
	p.commit()
	p.open()
}

func (p *pipeline) exec(sql string, args ...any) { p.b.Queue(sql, args...) }

// count adds a statement, and adds to n how many rows it has changed.
func (p *pipeline) count(n *int64, sql string, args ...any) {
	p.b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		*n += tag.RowsAffected()
		return nil
	})
}

// query adds a statement whose rows go to read, one call each. What read keeps holds only when run
// has succeeded.
func (p *pipeline) query(sql string, args []any, read func(pgx.Rows) error) {
	addQuery(&p.b, sql, args, read)
}

func addQuery(b *pgx.Batch, sql string, args []any, read func(pgx.Rows) error) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := read(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// run sends the pipeline and reads the answers. After an error of the statements their transaction
// has written nothing; those before it are committed. Any other error leaves that open.
func (p *pipeline) run(ctx context.Context, db DB) error { return p.runPatient(ctx, ctx, db) }

// runPatient waits for a connection as long as ctx lives, and for the answers as long as patient
// does.
func (p *pipeline) runPatient(ctx, patient context.Context, db DB) error {
	p.commit()
	err := sendBatch(ctx, patient, db, &p.b)
	if err == nil && p.unanswered > 0 {
		err = errors.New("COMMIT was not answered")
	}
	return err
}

// sendBatch sends the statements. If the server has refused them because of others, it rolls back,
// so that the pool keeps the connection: a pool closes one that comes back in a failed transaction,
// and connections are dearest when the server is busy. After any other error the pool may close it,
// because a server that has become a replica, for instance, must be left. A type that wraps a pool
// has methods of its own, which must not be passed by.
func sendBatch(ctx, patient context.Context, db DB, b *pgx.Batch) error {
	pool, ok := db.(*pgxpool.Pool)
	if !ok {
		return db.SendBatch(patient, b).Close()
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = conn.SendBatch(patient, b).Close(); isBusy(err) {
		_, _ = conn.Exec(patient, `ROLLBACK`) // where it fails, the pool closes the connection after all
	}
	return err
}
