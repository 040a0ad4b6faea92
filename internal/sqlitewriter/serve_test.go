package sqlitewriter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestManyFailures: half of a batch fails, in its calls or in their parts, and costs the other half
// one more run, whatever their number.
func TestManyFailures(t *testing.T) {
	const n = 200
	for name, fail := range map[string]func(x *Txn, i int) error{
		"a call": func(*Txn, int) error { return errors.New("boom") },
		"a part": func(x *Txn, i int) error {
			x.Part(i, func() Part { return &testPart{x, "bad"} })
			return nil
		},
		"a part that all share": func(x *Txn, _ int) error {
			x.Part("shared", func() Part { return &testPart{x, "shared"} }).(*testPart).name = "bad"
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(t)
				runs := 0
				calls := make([]*Call, n)
				for i := range calls {
					calls[i] = &Call{Wait: time.Minute, Entries: 1, Apply: func(x *Txn) error {
						runs++
						if _, err := x.Exec("INSERT INTO notes (line) VALUES (?)", i); err != nil {
							return err
						}
						if i%2 == 1 {
							return fail(x, i)
						}
						return nil
					}}
				}
				for i, err := range together(t, w, calls...) {
					if (err != nil) != (i%2 == 1) {
						t.Errorf("call %d was told: %v", i, err)
					}
				}
				if runs > 2*n {
					t.Errorf("%d runs of %d calls", runs, n)
				}
				var want strings.Builder
				for i := 0; i < n; i += 2 {
					fmt.Fprintf(&want, "%d ", i)
				}
				if got := lines(t, w); got != strings.TrimSpace(want.String()) {
					t.Errorf("the file has %q", got)
				}
			})
		})
	}
}

// TestTransactionGivenUp: a failure that makes SQLite give up the whole transaction, as a full disk
// does, is still its own call's.
func TestTransactionGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		_, err := w.DB().ExecContext(t.Context(), `CREATE TRIGGER poison BEFORE INSERT ON notes WHEN new.line = 'poison'
			BEGIN SELECT RAISE(ROLLBACK, 'poisoned'); END`)
		if err != nil {
			t.Fatal(err)
		}
		errs := together(t, w, note("1"), note("poison"), note("2"), note("poison"), note("3"), note("poison"), note("4"))
		for i, err := range errs {
			if i%2 == 0 && err != nil || i%2 == 1 && (err == nil || !strings.Contains(err.Error(), "poisoned")) {
				t.Errorf("call %d was told: %v", i, err)
			}
		}
		if got := lines(t, w); got != "1 2 3 4" {
			t.Errorf("the file has %q", got)
		}
	})
}

// TestLockedOnce: a lock that one call meets is met by all of its transaction, which do not try it
// one by one.
func TestLockedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		runs := 0
		locked := &Call{Wait: time.Minute, Entries: 1, Apply: func(*Txn) error {
			runs++
			return &codeError{codeBusy, "database is locked"}
		}}
		for i, err := range together(t, w, note("1"), locked, locked, note("2")) {
			if !errors.Is(err, ErrLocked) {
				t.Errorf("call %d was told: %v", i, err)
			}
		}
		if got := lines(t, w); got != "" || runs != 1 {
			t.Errorf("the file has %q after %d runs", got, runs)
		}
	})
}

// TestCommitFails: what SQLite judges at the commit alone is told to everybody whose writes it has
// undone, behind savepoints, too.
func TestCommitFails(t *testing.T) {
	for name, bad := range map[string][]*Call{
		"at once":           nil,
		"behind savepoints": {{Wait: time.Minute, Entries: 1, Apply: func(*Txn) error { return errors.New("boom") }}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(t, "&_pragma=foreign_keys(1)")
				_, err := w.DB().ExecContext(t.Context(), `CREATE TABLE parents (id INTEGER PRIMARY KEY);
					CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
					CREATE TRIGGER child AFTER INSERT ON notes WHEN new.line = 'orphan' BEGIN INSERT INTO children VALUES (1); END`)
				if err != nil {
					t.Fatal(err)
				}
				for i, err := range together(t, w, append(bad, note("1"), note("orphan"), note("2"))...) {
					if err == nil {
						t.Errorf("call %d was told of no error", i)
					}
				}
				if got := lines(t, w); got != "" {
					t.Errorf("the file has %q", got)
				}
			})
		})
	}
}

// TestLockedAmongSavepoints: where the lock is lost to another connection, nobody is told that
// anything was written.
func TestLockedAmongSavepoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		runs := 0
		locked := &Call{Wait: time.Minute, Entries: 1, Apply: func(*Txn) error {
			if runs++; runs > 1 {
				return &codeError{codeBusy, "database is locked"}
			}
			return nil
		}}
		bad := &Call{Wait: time.Minute, Entries: 1, Apply: func(*Txn) error { return errors.New("boom") }}
		errs := together(t, w, note("1"), locked, bad, note("2"))
		for i, err := range errs {
			if i != 2 && !errors.Is(err, ErrLocked) {
				t.Errorf("call %d was told: %v", i, err)
			}
		}
		if got := lines(t, w); got != "" {
			t.Errorf("the file has %q", got)
		}
	})
}
