package sqlitestore

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// txn is one transaction of the writer's.
type txn struct {
	session *session
	sql     *statements
	now     time.Time // after the lock was won, so that waiting costs no lease

	fence    int64 // the last one given out; 0 = not read yet
	raised   bool
	fenceErr error
}

// read is the record under k. It is the zero Record if there is none.
func (t *txn) read(k dedupe.Key) (dedupe.Record, error) {
	var r dedupe.Record
	err := t.session.scan(t.sql.read, []any{k.Scope, k.Key}, columnTargets(&r)...)
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
	_, err := t.session.exec(t.sql.write, columnValues(r)...)
	return err
}

func (t *txn) remove(k dedupe.Key) error {
	_, err := t.session.exec(t.sql.remove, k.Scope, k.Key)
	return err
}

// nextFence gives out the next number. The lock keeps every other process from doing so, and the
// number is stored with the claims that carry it, or not at all.
func (t *txn) nextFence() uint64 {
	if t.fence == 0 && t.fenceErr == nil {
		if err := t.session.scan(t.sql.readFence, nil, &t.fence); err != nil {
			t.fenceErr = fmt.Errorf("reading the fence in %s: %w (has Migrate been run?)", t.sql.fenceTable, err)
		}
	}
	t.fence++
	t.raised = true
	return uint64(t.fence)
}

func (t *txn) writeFence() error {
	if !t.raised {
		return nil
	}
	_, err := t.session.exec(t.sql.writeFence, t.fence)
	return err
}
