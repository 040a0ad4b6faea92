package sqlitestore

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// txn is what the store's calls share in a transaction of the writer's.
type txn struct {
	*sqlitewriter.Txn
	sql *statements

	fence    int64 // the last one given out; 0 = not read yet
	raised   bool
	fenceErr error
}

// read is the record under k. It is the zero Record if there is none.
func (t *txn) read(k dedupe.Key) (dedupe.Record, error) {
	var r dedupe.Record
	err := t.Scan(t.sql.read, []any{k.Scope, k.Key}, columnTargets(&r)...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return dedupe.Record{}, nil
	case err != nil:
		return dedupe.Record{}, nameRow(t.sql.table, k, err)
	}
	return r, nil
}

func (t *txn) write(r *dedupe.Record) error {
	if t.fenceErr != nil {
		return t.fenceErr
	}
	_, err := t.Exec(t.sql.write, columnValues(r)...)
	return err
}

func (t *txn) remove(k dedupe.Key) error {
	_, err := t.Exec(t.sql.remove, k.Scope, k.Key)
	return err
}

// nextFence gives out the next number. The lock keeps every other process from doing so, and the
// number is stored with the claims that carry it, or not at all.
func (t *txn) nextFence() uint64 {
	if t.fence == 0 && t.fenceErr == nil {
		if err := t.Scan(t.sql.readFence, nil, &t.fence); err != nil {
			t.fenceErr = fmt.Errorf("reading the fence in %s: %w (has Migrate been run?)", t.sql.fenceTable, err)
		}
	}
	t.fence++
	t.raised = true
	return uint64(t.fence)
}

// End writes the fence that was given out last.
func (t *txn) End() error {
	if !t.raised {
		return nil
	}
	_, err := t.Exec(t.sql.writeFence, t.fence)
	return err
}
