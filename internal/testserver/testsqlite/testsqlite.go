// Package testsqlite gives a test a store in a file of SQLite.
package testsqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/must"
)

// Path is where a file of the test's own may stand.
func Path(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "jobs.db")
}

// Open opens the file at path, as another process would, and makes the store's tables where they
// are not there yet. Both end with the test, which registers a driver as "sqlite".
func Open(tb testing.TB, path string, o *sqlitestore.Options) (*sql.DB, *sqlitestore.Store) {
	tb.Helper()
	db := must.Get(sql.Open("sqlite", sqlitestore.DSN(path)))
	store := must.Get(sqlitestore.New(db, o))
	tb.Cleanup(func() {
		_ = store.Close()
		_ = db.Close()
	})
	if err := store.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return db, store
}
