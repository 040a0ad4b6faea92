package sqlitestore

import (
	"context"
	"database/sql"
	"testing"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/dedupetest"
)

// TestConformance runs in virtual time: the file's locks are waited for with Go's timers, and
// nothing else in the store or the driver outlives a call.
func TestConformance(t *testing.T) {
	dedupetest.Run(t, dedupetest.Harness{
		Virtual: true,
		Open:    func(t testing.TB) dedupetest.Subject { return openSubject(t, tempFile(t)) },
	})
}

func openSubject(t testing.TB, path string) dedupetest.Subject {
	s, db := newStore(t, path, nil)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE ledger (line TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return dedupetest.Subject{
		Store: s,
		Second: func(t testing.TB) dedupe.Store {
			second, _ := newStore(t, path, nil)
			return second
		},
		Begin: func(t testing.TB) dedupetest.Tx { return begin(t, s, db) },
		Rows:  func(t testing.TB) []string { return ledger(t, db) },
		Close: s.Close,
	}
}

// begin begins the transaction of a user who keeps a ledger beside the records.
func begin(t testing.TB, s *Store, db *sql.DB) dedupetest.Tx {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return dedupetest.Tx{
		Insert: func(row string) error {
			_, err := tx.ExecContext(t.Context(), "INSERT INTO ledger (line) VALUES (?)", row)
			return err
		},
		Complete: func(ctx context.Context, job dedupe.Owned, result []byte) error {
			return s.CompleteTx(ctx, tx, job, result)
		},
		Commit:   tx.Commit,
		Rollback: tx.Rollback,
	}
}

func ledger(t testing.TB, db *sql.DB) []string {
	rows, err := db.QueryContext(t.Context(), "SELECT line FROM ledger ORDER BY line")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
