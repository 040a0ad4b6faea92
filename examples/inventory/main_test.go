package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "warehouse.db"))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// The program: the late update spoils the naive books, and not the fenced ones.
func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		afterNaive, afterFenced := run(t.Context(), &out, func(string) *sql.DB { return open(t) })
		require.Equal(t, 5, afterNaive, "the trap is gone: %s", &out)
		require.Equal(t, 3, afterFenced, "%s", &out)
	})
}

// shelf is a rig that counts a shelf in a database of its own.
type shelf struct {
	*onceqtest.Rig
	db     *sql.DB
	books  *books
	pieces int
	onLook func()
}

func newShelf(t *testing.T, update string) *shelf {
	t.Helper()
	s := &shelf{db: open(t), onLook: func() {}}
	s.books = &books{db: s.db}
	for _, q := range []string{schema, `INSERT INTO shelves (sku, pieces) VALUES ('bolt', 9)`} {
		_, err := s.db.ExecContext(t.Context(), q)
		require.NoError(t, err)
	}
	c := &counter{books: s.books, update: update, out: io.Discard, look: func(string) int { s.onLook(); return s.pieces }}
	s.Rig = onceqtest.New(t, onceq.ProcessorConfig{Handler: onceq.JSON(c.count)}, nil)
	return s
}

func (s *shelf) send(t *testing.T, n count) {
	t.Helper()
	body, err := json.Marshal(n)
	require.NoError(t, err)
	s.Send(broker.Outgoing{Body: body, Meta: &broker.Meta{Key: n.key()}})
}

func (s *shelf) inBooks(t *testing.T) (pieces int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT pieces FROM shelves WHERE sku = 'bolt'`).Scan(&pieces))
	return pieces
}

// updates are both ways, and whether the books are right in the end.
var updates = []struct {
	name, update string
	right        bool
}{{"naive", naive, false}, {"fenced", fenced, true}}

// A worker dies with its update on the way; another takes over when the lease has run out. Then the
// update arrives.
func TestLateWriteOfADeadWorker(t *testing.T) {
	for _, u := range updates {
		t.Run(u.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t, u.update)
				late := s.books.holdNext()
				s.pieces, s.onLook = 5, func() { s.Kill() }
				s.send(t, count{"bolt", 1})
				require.True(t, s.Deliver().Crashed)
				synctest.Wait() // until the dead worker's update is on its way
				s.Advance(time.Minute)
				s.pieces, s.onLook = 3, func() {}
				require.Equal(t, onceq.OutcomeDone, s.Deliver().Outcome)
				require.Equal(t, 3, s.inBooks(t))
				late.arrive()
				require.Equal(t, u.right, s.inBooks(t) == 3)
			})
		})
	}
}

// The update of a count that timed out arrives after the next count is done, under another key.
func TestLateWriteOfAnEarlierCount(t *testing.T) {
	for _, u := range updates {
		t.Run(u.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t, u.update)
				late := s.books.holdNext()
				s.pieces, s.onLook = 5, func() { s.Kill() }
				s.send(t, count{"bolt", 1})
				require.True(t, s.Deliver().Crashed)
				synctest.Wait() // until the dead worker's update is on its way
				s.pieces, s.onLook = 3, func() {}
				s.send(t, count{"bolt", 2})
				require.Equal(t, onceq.OutcomeDone, s.Deliver().Outcome)
				late.arrive()
				require.Equal(t, u.right, s.inBooks(t) == 3)
			})
		})
	}
}

// What the condition lets by, and what not.
func TestCondition(t *testing.T) {
	s := &books{db: open(t)}
	for _, q := range []string{schema, `INSERT INTO shelves (sku, pieces) VALUES ('bolt', 9)`} {
		_, err := s.db.ExecContext(t.Context(), q)
		require.NoError(t, err)
	}
	for _, step := range []struct {
		version int
		fence   uint64
		want    int64
		why     string
	}{
		{2, 10, 1, "the first count that is seen"},
		{2, 10, 1, "the same claim again: its answer was lost"},
		{2, 12, 1, "the next claim of the same count"},
		{2, 10, 0, "an older claim"},
		{1, 99, 0, "an older count, although its claim is newer"},
		{3, 1, 1, "a newer count, although its fence is lower: fences of two keys do not compare"},
	} {
		got, err := s.exec(t.Context(), fenced, "bolt", 1, step.version, step.fence)
		require.NoError(t, err)
		require.Equal(t, step.want, got, step.why)
	}
}

// Crashes and duplicates leave the books right, and the last word counts.
func TestCrash(t *testing.T) {
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashBefore},
	} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t, fenced)
				s.pieces = 5
				s.At(at)
				s.send(t, count{"bolt", 1})
				require.True(t, s.Deliver().Crashed)
				s.Advance(time.Minute)
				s.pieces = 3
				ended := s.Deliver().Outcome
				want := 3
				if ended == "already-done" { // it died after its word was stored
					want = 5
				}
				require.Equal(t, onceq.OutcomeAlreadyDone, s.Redeliver().Outcome)
				require.Equal(t, want, s.inBooks(t))
			})
		})
	}
}

// A worker that lives, and whose write is refused because a newer count is there, is done: nothing
// is left to do.
func TestOvertakenIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, fenced)
		s.pieces = 5
		s.onLook = func() {
			_, err := s.books.exec(context.Background(), fenced, "bolt", 3, 2, 1)
			require.NoError(t, err)
		}
		s.send(t, count{"bolt", 1})
		require.Equal(t, onceq.OutcomeDone, s.Deliver().Outcome)
		require.Equal(t, 3, s.inBooks(t))
	})
}
