package main

import (
	"context"
	"database/sql"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/examples/internal/shop"
)

// sqliteTill is a file that all workers of the machine share.
type sqliteTill struct {
	path string
	db   *sql.DB
	s    *sqlitestore.Store
}

func openSQLiteTill(path string) (till, error) {
	db, err := shop.OpenLedger(path)
	if err != nil {
		return nil, err
	}
	s, err := sqlitestore.New(db, nil)
	if err != nil {
		return nil, err
	}
	return &sqliteTill{path, db, s}, nil
}

func (t *sqliteTill) store() dedupe.Store { return t.s }

// charge has nothing slow in its transaction: while it is open nobody else writes to the file.
func (t *sqliteTill) charge(ctx context.Context, j *onceq.Job, o shop.Order, itemCents int64, worker string) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := shop.InsertCharge(ctx, tx, o, itemCents, worker); err != nil {
		return err
	}
	if err := t.s.CompleteTx(ctx, tx, j, nil); err != nil {
		return err
	}
	return tx.Commit()
}

func (t *sqliteTill) make(ctx context.Context, fresh bool) error {
	return shop.MakeLedger(ctx, t.path, fresh)
}

func (t *sqliteTill) audit(ctx context.Context, rows []shop.Row, letters map[string]string) (*shop.Audit, error) {
	return shop.AuditLedger(ctx, t.path, rows, letters)
}

func (t *sqliteTill) where() string { return t.path }

func (t *sqliteTill) close() {
	_ = t.s.Close()
	_ = t.db.Close()
}
