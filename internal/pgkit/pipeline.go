package pgkit

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file owns how statements are sent. Each call makes a Pipeline of its own and holds one
// connection of the pool while it runs; nothing else is locked.

const (
	beginTx  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitTx = `COMMIT`
)

// Plain sets, for the transaction, what a role or a database may have set otherwise. Under another
// encoding the server would transcode names and keys: one key would have two spellings, and two
// winners. If results come as text, pgx reads dates and bytes in one form each, and would fail
// after the COMMIT.
const Plain = `SELECT pg_catalog.set_config('client_encoding', 'UTF8', true), pg_catalog.set_config('datestyle', 'ISO', true), ` +
	`pg_catalog.set_config('bytea_output', 'hex', true)`

// Pipeline is a transaction that goes out as a whole, in one round trip, or several that go out
// together, one after the other. Each sets READ COMMITTED, whatever the default of the role or the
// database is, because each of its statements must see what others have committed before it.
type Pipeline struct {
	Batch pgx.Batch
	// Committed is how many transactions were answered COMMIT.
	Committed  int
	unanswered int
	busy       func(error) bool
	settings   string
	args       []any
}

// NewPipeline begins a transaction with a statement of settings. busy finds the refusals after
// which the connection stays with the pool.
func NewPipeline(busy func(error) bool, settings string, args ...any) *Pipeline {
	p := &Pipeline{busy: busy, settings: settings, args: args}
	p.open()
	return p
}

// EndOf is for a transaction that was begun before: the pipeline ends it.
func EndOf() *Pipeline { return &Pipeline{unanswered: 1} }

func (p *Pipeline) open() {
	p.unanswered++
	p.Batch.Queue(beginTx)
	p.Batch.Queue(p.settings, p.args...)
}

func (p *Pipeline) close() {
	p.Batch.Queue(commitTx).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != commitTx {
			return fmt.Errorf("COMMIT was answered %s: %w", tag, pgx.ErrTxCommitRollback)
		}
		p.unanswered--
		p.Committed++
		return nil
	})
}

// Another ends the transaction, and begins the one behind it.
func (p *Pipeline) Another() {
	p.close()
	p.open()
}

// Exec adds a statement without rows.
func (p *Pipeline) Exec(sql string, args ...any) { p.Batch.Queue(sql, args...) }

// Count adds a statement, and adds to n how many rows it has changed.
func (p *Pipeline) Count(n *int64, sql string, args ...any) {
	p.Batch.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		*n += tag.RowsAffected()
		return nil
	})
}

// Query adds a statement whose rows go to read, one call each. What read keeps holds only when Run
// has succeeded.
func (p *Pipeline) Query(sql string, args []any, read func(pgx.Rows) error) {
	AddQuery(&p.Batch, sql, args, read)
}

// AddQuery adds a statement to b whose rows go to read.
func AddQuery(b *pgx.Batch, sql string, args []any, read func(pgx.Rows) error) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := read(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Run sends the pipeline and reads the answers. After an error of the statements their transaction
// has written nothing; those before it are committed. Any other error leaves that open.
func (p *Pipeline) Run(ctx context.Context, db DB) error { return p.RunPatient(ctx, ctx, db) }

// RunPatient waits for a connection as long as ctx lives, and for the answers as long as patient
// does.
func (p *Pipeline) RunPatient(ctx, patient context.Context, db DB) error {
	return p.RunBy(func() error { return SendBatch(ctx, patient, db, &p.Batch, p.busy) })
}

// RunBy is Run where send sends the batch.
func (p *Pipeline) RunBy(send func() error) error {
	p.close()
	err := send()
	if err == nil && p.unanswered > 0 {
		err = errors.New("COMMIT was not answered")
	}
	return err
}

// SendBatch sends the statements. If the server has refused them because of others, it rolls back,
// so that the pool keeps the connection: a pool closes one that comes back in a failed transaction.
// Each busy row, and each statement_timeout of a slow server, would otherwise cost a connection
// when connections are dearest. After any other error the pool may close it, because a server that
// has become a replica, for instance, must be left. A type that wraps a pool has methods of its
// own, which must not be passed by.
func SendBatch(ctx, patient context.Context, db DB, b *pgx.Batch, busy func(error) bool) error {
	pool, ok := db.(*pgxpool.Pool)
	if !ok {
		return db.SendBatch(patient, b).Close()
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = conn.SendBatch(patient, b).Close(); busy(err) {
		_, _ = conn.Exec(patient, `ROLLBACK`) // where it fails, the pool closes the connection after all
	}
	return err
}
