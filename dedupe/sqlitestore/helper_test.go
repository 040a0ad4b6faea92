package sqlitestore

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/storetest"
	_ "modernc.org/sqlite"
)

// What the tests of all stores say.
type job = storetest.Job

var (
	newToken = storetest.Token
	claim    = storetest.Claim
	get      = storetest.Get
	settle   = storetest.End
)

// openFile opens a pool on the file at path.
func openFile(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db := must.Get(sql.Open("sqlite", DSN(path)))
	tb.Cleanup(func() { db.Close() })
	return db
}

// newStore makes a store with its tables in the file at path, which may hold them already.
func newStore(tb testing.TB, path string, o *Options) (*Store, *sql.DB) {
	tb.Helper()
	db := openFile(tb, path)
	s := must.Get(New(db, o))
	tb.Cleanup(func() { s.Close() })
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s, db
}

func tempFile(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "test.db")
}

// request asks for a key for half a minute.
func request(key string) dedupe.ClaimRequest {
	q := storetest.Request(key)
	q.TTL = 30 * time.Second
	return q
}

// pass lets time go by in a bubble.
func pass(d time.Duration) {
	retry.Rest(context.Background(), d)
}
