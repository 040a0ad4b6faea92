package sqlitewriter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Txn is one transaction of the writer's. A call's Apply has it while it runs.
type Txn struct {
	// Now is the time after the lock was won, so that waiting costs no lease.
	Now time.Time

	session *session
	parts   []ownedPart
}

// Part is what the calls of one owner share in a transaction.
type Part interface {
	// End writes what is left to write, before the commit.
	End() error
}

type ownedPart struct {
	owner any
	part  Part
}

// Part is the owner's part of this transaction, which begin makes for the owner's first call.
func (t *Txn) Part(owner any, begin func() Part) Part {
	for _, p := range t.parts {
		if p.owner == owner {
			return p.part
		}
	}
	p := begin()
	t.parts = append(t.parts, ownedPart{owner, p})
	return p
}

// end ends all parts.
func (t *Txn) end() error {
	for _, p := range t.parts {
		if err := p.part.End(); err != nil {
			return err
		}
	}
	return nil
}

// Exec runs a statement, which stays prepared.
func (t *Txn) Exec(query string, args ...any) (sql.Result, error) {
	return t.session.exec(query, args...)
}

// Scan reads the first row.
func (t *Txn) Scan(query string, args []any, dest ...any) error {
	return t.session.scan(query, args, dest...)
}

// Each calls read for each row, which scans it. No other statement may run meanwhile.
func (t *Txn) Each(query string, args []any, read func(*sql.Rows) error) error {
	st, err := t.session.prepare(query) //nolint:sqlclosecheck // it is kept; session.close closes it
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// File is the name of the database's file. It refuses a database without one, because no other
// connection shares it. Only the writer would see the tables. Transactions on other connections
// would fail with errors that mislead. A shared database in memory is gone with its last
// connection.
func (t *Txn) File() (string, error) {
	var file string
	if err := t.Scan(FileQuery, nil, &file); err != nil {
		return "", fmt.Errorf("reading the database's file name: %w", err)
	}
	if file == "" {
		return "", errors.New("the database has no file (\":memory:\" or an empty name): each connection of the pool has one of " +
			"its own, in which your transactions would not find the store's tables (a shared one is gone with its last connection); " +
			"name a file, in tests one in t.TempDir()")
	}
	return file, nil
}

// FileQuery reads the name of the file that a connection writes to.
const FileQuery = `SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'`
