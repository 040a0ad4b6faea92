package pgstore

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// gate is a transaction, or a savepoint in it, that answers [pgx.ErrTxClosed] when the transaction
// is over. pgx closes a transaction whose COMMIT it has sent itself. This COMMIT goes out with the
// completion, and the connection goes back to the pool. Without the gate a goroutine that f has
// left behind would write into the next user's transaction.
//
// Conn and LargeObjects give what is beneath, as they do in pgx.
type gate struct {
	pgx.Tx
	over *atomic.Bool
}

func (g gate) err() error {
	if g.over.Load() {
		return pgx.ErrTxClosed
	}
	return nil
}

func (g gate) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := g.err(); err != nil {
		return nil, err
	}
	tx, err := g.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return gate{tx, g.over}, nil
}

func (g gate) Commit(ctx context.Context) error {
	if err := g.err(); err != nil {
		return err
	}
	return g.Tx.Commit(ctx)
}

func (g gate) Rollback(ctx context.Context) error {
	if err := g.err(); err != nil {
		return err
	}
	return g.Tx.Rollback(ctx)
}

func (g gate) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := g.err(); err != nil {
		return 0, err
	}
	return g.Tx.CopyFrom(ctx, table, columns, rows)
}

func (g gate) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := g.err(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return g.Tx.SendBatch(ctx, b)
}

func (g gate) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := g.err(); err != nil {
		return nil, err
	}
	return g.Tx.Prepare(ctx, name, sql)
}

func (g gate) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := g.err(); err != nil {
		return pgconn.CommandTag{}, err
	}
	return g.Tx.Exec(ctx, sql, args...)
}

func (g gate) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := g.err(); err != nil {
		return pgx.FailedBatchResults(new(pgx.Batch), err).Query()
	}
	return g.Tx.Query(ctx, sql, args...)
}

func (g gate) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := g.err(); err != nil {
		return pgx.FailedBatchResults(new(pgx.Batch), err).QueryRow()
	}
	return g.Tx.QueryRow(ctx, sql, args...)
}
