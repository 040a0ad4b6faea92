package sqlitewriter

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/onceq/onceq/internal/must"
)

// newWriter makes a writer on a file with an empty table, notes. Its connections have the settings.
func newWriter(tb testing.TB, settings ...string) *Writer {
	tb.Helper()
	db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(tb.TempDir(), "test.db")+"?_journal_mode=WAL&_synchronous=OFF&_txlock=immediate"+strings.Join(settings, "")))
	tb.Cleanup(func() { db.Close() })
	if _, err := db.ExecContext(tb.Context(), "CREATE TABLE notes (line TEXT)"); err != nil {
		tb.Fatal(err)
	}
	w := New(db, time.Second)
	tb.Cleanup(w.Close)
	return w
}

// note is a call that writes a line.
func note(line string) *Call {
	return &Call{Wait: time.Minute, Entries: 1, Apply: func(t *Txn) error {
		_, err := t.Exec("INSERT INTO notes (line) VALUES (?)", line)
		return err
	}}
}

func lines(tb testing.TB, w *Writer) string {
	tb.Helper()
	var all sql.NullString
	if err := w.DB().QueryRowContext(tb.Context(), "SELECT group_concat(line, ' ' ORDER BY rowid) FROM notes").Scan(&all); err != nil {
		tb.Fatal(err)
	}
	return all.String
}

// together runs the calls in one transaction, in their order, and answers what each was told.
func together(t *testing.T, w *Writer, calls ...*Call) []error {
	t.Helper()
	tx, err := w.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() { errs[i] = w.Do(t.Context(), c) })
		synctest.Wait()
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	return errs
}

func TestBatchesAreBounded(t *testing.T) {
	w := New(nil, 0)
	for _, n := range []int{200, 56, 1, MostEntries + 5, 3} {
		w.queue = append(w.queue, &call{Call: &Call{Entries: n}})
	}
	for _, want := range []int{2, 1, 1, 1, 0} {
		if got := len(w.take()); got != want {
			t.Errorf("a batch of %d calls, want %d", got, want)
		}
	}
}

// TestAFailureIsItsOwn: a call that fails in a transaction takes no other with it, and leaves
// nothing behind.
func TestAFailureIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		boom := errors.New("boom")
		runs := 0
		bad := &Call{Wait: time.Minute, Apply: func(x *Txn) error {
			runs++
			_, err := x.Exec("INSERT INTO notes (line) VALUES ('bad')")
			return errors.Join(err, boom)
		}}
		missing := &Call{Wait: time.Minute, Apply: func(x *Txn) error {
			_, err := x.Exec("INSERT INTO nowhere VALUES (1)")
			return err
		}}
		errs := together(t, w, note("first"), bad, note("second"), missing, note("third"))
		for i, err := range errs {
			if i%2 == 0 && err != nil {
				t.Errorf("the call %d beside one that fails got %v", i, err)
			}
		}
		if !errors.Is(errs[1], boom) || runs != 1 {
			t.Errorf("the call that failed got %v after %d runs", errs[1], runs)
		}
		if errs[3] == nil || !strings.Contains(errs[3].Error(), "has Migrate been run?") {
			t.Errorf("the call without its table got %v", errs[3])
		}
		if got := lines(t, w); got != "first second third" {
			t.Errorf("the file has %q", got)
		}
	})
}

// TestParts: an owner's calls share one part of a transaction, which ends before the commit.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		made := 0
		var parts []Part
		use := func(owner string) *Call {
			return &Call{Wait: time.Minute, Entries: 1, Apply: func(x *Txn) error {
				parts = append(parts, x.Part(owner, func() Part { made++; return &testPart{x, owner} }))
				return nil
			}}
		}
		for _, err := range together(t, w, use("a"), use("b"), use("a")) {
			if err != nil {
				t.Error(err)
			}
		}
		if made != 2 || parts[0] != parts[2] || parts[0] == parts[1] {
			t.Errorf("%d parts were made: %v", made, parts)
		}
		if got := lines(t, w); got != "a b" {
			t.Errorf("the ends wrote %q", got)
		}
		err := w.Do(t.Context(), use("bad"))
		if err == nil || !strings.Contains(err.Error(), "nothing was written") || lines(t, w) != "a b" {
			t.Errorf("a part that fails: %v, %q", err, lines(t, w))
		}
	})
}

type testPart struct {
	x    *Txn
	name string
}

func (p *testPart) End() error {
	_, err := p.x.Exec("INSERT INTO notes (line) VALUES (?)", p.name)
	if p.name == "bad" {
		return errors.Join(err, errors.New("bad"))
	}
	return err
}

// TestGrace: a caller whose context ends in the transaction waits for it as long as it has asked
// to.
func TestGrace(t *testing.T) {
	for _, c := range []struct {
		grace, takes time.Duration
		known        bool
	}{{0, time.Second, false}, {3 * time.Second, time.Second, true}, {3 * time.Second, 4 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWriter(t)
			ctx, cancel := context.WithCancel(t.Context())
			err := w.Do(ctx, &Call{Wait: time.Minute, Grace: c.grace, Apply: func(*Txn) error {
				cancel()
				<-time.After(c.takes)
				return nil
			}})
			switch {
			case c.known && err != nil:
				t.Errorf("grace %v, %v long: %v", c.grace, c.takes, err)
			case !c.known && (!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "unknown")):
				t.Errorf("grace %v, %v long: %v, want one that says unknown", c.grace, c.takes, err)
			}
		})
	}
}

// TestBusyIsNotWritten: a call whose time is over while it is in a transaction is not told that
// nothing was written.
func TestBusyIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		begun := time.Now()
		err := w.Do(t.Context(), &Call{Wait: 10 * time.Millisecond, Apply: func(x *Txn) error {
			<-time.After(time.Second)
			_, err := x.Exec("INSERT INTO notes (line) VALUES ('written')")
			return err
		}})
		if err != nil || time.Since(begun) < time.Second || lines(t, w) != "written" {
			t.Errorf("answered %v after %v: %q", err, time.Since(begun), lines(t, w))
		}
	})
}

// TestLostConnection: the writer's connection has gone bad while it was idle.
func TestLostConnection(t *testing.T) {
	w := newWriter(t)
	for _, line := range []string{"1", "2"} {
		if err := w.Do(t.Context(), note(line)); err != nil {
			t.Fatal(err)
		}
		w.server.session.close()
	}
	if got := lines(t, w); got != "1 2" {
		t.Errorf("the file has %q", got)
	}
}

// TestClosedPool: the user has closed the pool before the writer.
func TestClosedPool(t *testing.T) {
	w := newWriter(t)
	if err := w.Do(t.Context(), note("1")); err != nil {
		t.Fatal(err)
	}
	w.DB().Close()
	w.server.session.close()
	if err := w.Do(t.Context(), note("2")); err == nil {
		t.Error("a call in a closed pool got no error")
	}
}

func TestShared(t *testing.T) {
	w := New(nil, 0)
	one := func() any { return new(int) }
	if a := w.Shared("a", one); a != w.Shared("a", one) || a == w.Shared("b", one) {
		t.Error("a name has one value, and another name another one")
	}
}
