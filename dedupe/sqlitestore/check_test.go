package sqlitestore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/sqlitewriter"
)

// TestCheck: each thing that the table lacks is a fault with what mends it, and a whole table has
// none.
func TestCheck(t *testing.T) {
	s, db := newStore(t, tempFile(t), nil)
	if fs, err := s.Check(t.Context()); err != nil || len(fs) != 0 {
		t.Fatal(fs, err)
	}
	tab := s.sql.table
	old := fmt.Sprint(sqlitewriter.TimeText(time.Now().Add(-2 * time.Hour)))
	for _, c := range []struct{ change, undo, want string }{
		{`INSERT INTO ` + tab + ` (scope, key, status, fence, token, attempt, started, policy, owner, message_id, error_class, first_error, last_error, created, claimed_at, updated, expires)
			VALUES ('a', 'b', 'done', 1, x'00', 1, 0, 'rerun', '', '', '', '', '', '` + old + `', '` + old + `', '` + old + `', '` + old + `')`, `DELETE FROM ` + tab, "1 records or more ended"},
		{`DROP INDEX ` + tab + `_expires`, "", "not both of its indexes"},
		{`ALTER TABLE ` + tab + ` DROP COLUMN past`, "", "no column past"},
		{`DROP TABLE ` + tab + `_fence`, "", "no table of the store"},
	} {
		if _, err := db.ExecContext(t.Context(), c.change); err != nil {
			t.Fatal(err)
		}
		fs, err := s.Check(t.Context())
		if err != nil || len(fs) != 1 && c.undo != "" || len(fs) == 0 || fs[0].Mend == "" || !strings.Contains(fs[len(fs)-1].Text, c.want) {
			t.Errorf("%s: %v, %v", c.want, fs, err)
		}
		if c.undo != "" {
			if _, err := db.ExecContext(t.Context(), c.undo); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); err == nil {
		t.Error("a closed store is checked")
	}
}
