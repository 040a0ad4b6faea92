package sqlitestore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	_ "modernc.org/sqlite"
)

// openFile opens a pool on the file at path.
func openFile(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", DSN(path))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// newStore makes a store with its tables in the file at path, which may hold them already.
func newStore(tb testing.TB, path string, o *Options) (*Store, *sql.DB) {
	tb.Helper()
	db := openFile(tb, path)
	s, err := New(db, o)
	if err != nil {
		tb.Fatal(err)
	}
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

func newToken() (t dedupe.Token) {
	rand.Read(t[:])
	return t
}

func request(key string) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{
		Key: dedupe.Key{Scope: "orders", Key: key}, Token: newToken(), TTL: 30 * time.Second,
		Owner: "worker-1", MessageID: "m-" + key,
	}
}

// claim wins the key or fails the test.
func claim(tb testing.TB, s *Store, q dedupe.ClaimRequest) dedupe.Lease {
	tb.Helper()
	cs, err := s.Claim(tb.Context(), []dedupe.ClaimRequest{q})
	if err := errors.Join(err, firstErr(cs)); err != nil {
		tb.Fatal(err)
	}
	if cs[0].Outcome != dedupe.Won {
		tb.Fatalf("claim of %v: %v, want won", q.Key, cs[0].Outcome)
	}
	return cs[0].Lease
}

func firstErr(cs []dedupe.Claim) error {
	for _, c := range cs {
		if c.Err != nil {
			return c.Err
		}
	}
	return nil
}

// get reads the record, which must be there.
func get(tb testing.TB, s *Store, k dedupe.Key) *dedupe.Record {
	tb.Helper()
	rs, err := s.Get(tb.Context(), []dedupe.Key{k})
	if err != nil {
		tb.Fatal(err)
	}
	if rs[0] == nil {
		tb.Fatalf("no record under %v", k)
	}
	return rs[0]
}

func settle(tb testing.TB, s *Store, l dedupe.Lease, to dedupe.Status) {
	tb.Helper()
	as, err := s.Settle(tb.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: to, Result: []byte(`"ok"`)}})
	if err != nil || as[0].Err != nil || as[0].Status != to {
		tb.Fatalf("settle %v to %v: %+v, %v", l.Key, to, as, err)
	}
}

// pass lets time go by in a bubble.
func pass(d time.Duration) {
	retry.Rest(context.Background(), d)
}
