package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/onceq/onceq/dedupe"
)

// session is the writer's connection with its prepared statements. Its calls take no context,
// because a statement that is interrupted would fail the entries of everybody in the transaction.
type session struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

func connect(ctx context.Context, db *sql.DB) (*session, error) {
	if err := checkPool(db); err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, prepared: make(map[string]*sql.Stmt)}
	if _, err := conn.ExecContext(context.Background(), "PRAGMA busy_timeout = 0"); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close closes the connection for good, which rolls back. The pool must not hand it on with the
// writer's settings, nor with a transaction that is still open. The statements go first, because
// database/sql does not know those of a [sql.Conn]. As long as one is left, SQLite keeps the
// connection and its locks.
func (s *session) close() {
	for _, st := range s.prepared {
		_ = st.Close()
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

func (s *session) prepare(query string) (*sql.Stmt, error) {
	st := s.prepared[query]
	if st == nil {
		var err error
		if st, err = s.conn.PrepareContext(context.Background(), query); err != nil {
			return nil, err
		}
		s.prepared[query] = st
	}
	return st, nil
}

func (s *session) exec(query string, args ...any) (sql.Result, error) {
	st, err := s.prepare(query) //nolint:sqlclosecheck // it is kept; session.close closes it
	if err != nil {
		return nil, err
	}
	return st.ExecContext(context.Background(), args...)
}

func (s *session) scan(query string, args []any, dest ...any) error {
	st, err := s.prepare(query) //nolint:sqlclosecheck // it is kept; session.close closes it
	if err != nil {
		return err
	}
	return st.QueryRowContext(context.Background(), args...).Scan(dest...)
}

// The primary result codes of SQLite that mean: somebody else holds a lock.
const (
	codeBusy   = 5
	codeLocked = 6 // the same between connections that share a cache
)

// isBusy knows a refused lock without knowing the driver: by the code, where the error tells
// it (modernc.org/sqlite), else by SQLite's own text.
func isBusy(err error) bool {
	if err == nil {
		return false
	}
	if c := interface{ Code() int }(nil); errors.As(err, &c) {
		primary := c.Code() & 0xff
		return primary == codeBusy || primary == codeLocked
	}
	text := err.Error()
	return strings.Contains(text, "database is locked") || strings.Contains(text, "SQLITE_BUSY") ||
		strings.Contains(text, "database table is locked")
}

// explain says what was being done, in a form that errors.Is sees through.
func explain(what string, err error) error {
	switch {
	case isBusy(err):
		return fmt.Errorf("sqlitestore: %s: %w: %w", what, dedupe.ErrBusy, err)
	case strings.Contains(err.Error(), "no such table"):
		return fmt.Errorf("sqlitestore: %s: %w (has Migrate been run?)", what, err)
	case strings.Contains(err.Error(), "no such column"), strings.Contains(err.Error(), "has no column named"), strings.Contains(err.Error(), "no such index"):
		return fmt.Errorf("sqlitestore: %s: %w (is something missing, or the table of an older version? Run this version's Migrate on the file)", what, err)
	}
	return fmt.Errorf("sqlitestore: %s: %w", what, err)
}
