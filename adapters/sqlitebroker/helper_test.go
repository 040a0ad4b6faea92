package sqlitebroker

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/tablequeue/tabletest"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
	_ "modernc.org/sqlite"
)

// file is a pool on a file, with the store whose writer the queues share.
type file struct {
	testing.TB
	path  string
	db    *sql.DB
	store *sqlitestore.Store
}

func tempFile(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "test.db")
}

// openFile opens the file at path as another process would.
func openFile(tb testing.TB, path string) *file {
	tb.Helper()
	db, store := testsqlite.Open(tb, path, nil)
	return &file{tb, path, db, store}
}

// queue makes a queue with its table, which may be there already.
func (f *file) queue(name string, o *Options) *Queue {
	f.Helper()
	q := must.Get(New(f.store, name, o))
	if err := q.Migrate(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { q.Close() })
	return q
}

func (f *file) exec(query string, args ...any) {
	f.Helper()
	if _, err := f.db.ExecContext(f.Context(), query, args...); err != nil {
		f.Fatal(err)
	}
}

func (f *file) begin() *sql.Tx {
	f.Helper()
	tx, err := f.db.BeginTx(f.Context(), nil)
	if err != nil {
		f.Fatal(err)
	}
	return tx
}

// scan reads one value.
func scan[T any](f *file, query string, args ...any) (v T) {
	f.Helper()
	if err := f.db.QueryRowContext(f.Context(), query, args...).Scan(&v); err != nil {
		f.Fatal(err)
	}
	return v
}

// What the tests of all queues in tables say.
var (
	bodies = tabletest.Bodies
	send   = tabletest.Send
	none   = tabletest.None
	ack    = tabletest.Ack
	take   = tabletest.Receive
)

// one receives the one message that is there.
func one(tb testing.TB, r broker.Receiver) *broker.Message {
	tb.Helper()
	ms := take(tb, r, 10)
	if len(ms) != 1 {
		tb.Fatalf("%d messages are there, want 1", len(ms))
	}
	return ms[0]
}

// pass lets time go by in a bubble.
func pass(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
