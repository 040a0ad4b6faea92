package pgstore

import (
	"cmp"
	"fmt"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns the store's construction: it gathers the statements, each of which stands beside
// the call that sends it. So no call knows New, and New knows them all.

// New returns a store in the database of db, a pool. It does no I/O: call [Store.Migrate] before
// the first use.
func New(db DB, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := pgkit.CheckPool(db); err != nil {
		return nil, fmt.Errorf("pgstore: New: %w: %w", dedupe.ErrBadRequest, err)
	}
	schema, table, err := pgkit.SplitTable("pgstore", cmp.Or(o.Table, defaultTable))
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, schema: schema, table: table, insertWait: insertWait}
	s.st.Store(newStatements(schema, table))
	return s, nil
}

func newStatements(schema, table string) *statements {
	st := &statements{name: pgkit.Shown(schema, table), table: pgkit.Quote(schema, table), fence: pgkit.Quote(schema, table+"_fence")}
	fill := st.fill
	st.insert = fill(insertFresh)
	st.read = fill(readGiven)
	st.readState = fill(readState)
	st.change = fill(changeRead)
	st.renew = fill(renewOwn)
	st.lock = fill(lockRow)
	st.settle = fill(settleOwn)
	st.word = fill(settleWord)
	st.note = fill(noteLate)
	st.remove = fill(removeRead)
	st.sweep = fill(sweepRows)
	finish, commit := fill(finishOwn), fill(commitOwn)
	for n := range st.finish {
		st.finish[n] = fmt.Sprintf("%s /* plan %d */", finish, n)
		st.commit[n] = fmt.Sprintf("%s /* plan %d */", commit, n)
	}
	return st
}
