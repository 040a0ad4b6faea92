package sqlitewriter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// session is the writer's connection with its prepared statements. Its calls take no context,
// because a statement that is interrupted would fail the entries of everybody in the transaction.
type session struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

func connect(ctx context.Context, db *sql.DB) (*session, error) {
	if err := CheckPool(db); err != nil {
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

// CheckPool finds a pool in which the writer's own connection would leave none for anybody else.
func CheckPool(db *sql.DB) error {
	if db.Stats().MaxOpenConnections == 1 {
		return errors.New("the pool is limited to one connection; the store keeps one for its writes, " +
			"so reads and transactions would wait for ever: SetMaxOpenConns(2) or more")
	}
	return nil
}
