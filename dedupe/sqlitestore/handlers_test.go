package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testsqlite"
	"github.com/onceq/onceq/onceqtest"
)

// TestWorkerDies runs a whole worker on a file: wherever it dies around the commit, the charge is
// there once.
func TestWorkerDies(t *testing.T) {
	for _, c := range []struct {
		name    string
		at      *onceqtest.Fault
		kill    bool // before the commit
		charges int  // after the first delivery
		status  dedupe.Status
		outcome onceq.Outcome // of the second
		runs    int
	}{
		{"before the commit", nil, true, 0, dedupe.Claimed, "done", 2},
		{"before the settlement", &onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore}, false, 1, dedupe.Done, "already-done", 1},
		{"before the ack", &onceqtest.Fault{Op: onceqtest.Ack, Kind: onceqtest.CrashBefore}, false, 1, dedupe.Done, "already-done", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, store := open(t)
				var rig *onceqtest.Rig
				runs := 0
				rig = onceqtest.New(t, onceq.ProcessorConfig{
					Store: store,
					Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						if runs++; runs == 1 && c.kill {
							return dieBeforeCommit(ctx, db, store, j, rig)
						}
						return charge(ctx, db, store, j)
					}),
				}, nil)
				if c.at != nil {
					rig.At(*c.at)
				}
				rig.Send(broker.Outgoing{Body: []byte("order-1")})
				got := rig.Deliver()
				if !got.Crashed || got.Stored == nil || got.Stored.Status != c.status || charges(t, db) != c.charges {
					t.Errorf("first delivery: %+v with %d charges; stored %+v", got, charges(t, db), got.Stored)
				}
				rig.Advance(time.Minute)
				got = rig.Deliver()
				if got.Outcome != c.outcome || runs != c.runs || charges(t, db) != 1 {
					t.Errorf("second delivery: %q after %d runs with %d charges, want %q after %d with 1",
						got.Outcome, runs, charges(t, db), c.outcome, c.runs)
				}
			})
		})
	}
}

// declined is an error of a bank's.
type declined struct{}

func (declined) Error() string { return "the card is declined" }
func (declined) Code() int     { return 5 } // SQLITE_BUSY is 5 as well

// TestBusyHandler: a handler's own transaction that SQLite refuses costs no attempt. Twice in a row
// it does, so that a handler that locks itself out comes to an end.
func TestBusyHandler(t *testing.T) {
	begin := func(ctx context.Context, hasty *sql.DB, store *sqlitestore.Store, j *onceq.Job) error {
		return charge(ctx, hasty, store, j)
	}
	for name, c := range map[string]struct {
		do   func(ctx context.Context, hasty *sql.DB, store *sqlitestore.Store, j *onceq.Job) error
		as   func(error) error
		want []string // the outcomes of runs whose transaction is refused, and of the last
		at   int
	}{
		"CompleteTx": {func(ctx context.Context, hasty *sql.DB, store *sqlitestore.Store, j *onceq.Job) error {
			c, err := hasty.Conn(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := c.ExecContext(ctx, "BEGIN DEFERRED"); err != nil {
				return err
			}
			defer c.ExecContext(ctx, "ROLLBACK")
			return store.CompleteTx(ctx, c, j, nil)
		}, nil, []string{"postponed", "done"}, 1},
		"Commit": {func(ctx context.Context, _ *sql.DB, store *sqlitestore.Store, j *onceq.Job) error {
			return store.Commit(ctx, j, func(*sql.Tx) (any, error) { return nil, nil })
		}, nil, []string{"postponed", "done"}, 1},
		"once":        {begin, nil, []string{"postponed", "done"}, 1},
		"in a row":    {begin, nil, []string{"postponed", "retried", "postponed", "done"}, 2},
		"for ever":    {begin, nil, []string{"postponed", "retried", "postponed", "retried", "postponed", "failed"}, 3},
		"another":     {begin, func(error) error { return errors.New("no such card") }, []string{"retried", "done"}, 2},
		"a code of 5": {begin, func(error) error { return declined{} }, []string{"retried", "done"}, 2},
		"permanent":   {begin, onceq.Permanent, []string{"failed"}, 1},
		"asked time":  {begin, func(err error) error { return onceq.RetryAfter(time.Second, err) }, []string{"retried", "done"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, store := open(t)
				if !store.IsBusy(fmt.Errorf("no connection: %w", dedupe.ErrBusy)) || store.IsBusy(nil) || store.IsBusy(dedupe.ErrLeaseLost) {
					t.Error("IsBusy does not know the store's own errors")
				}
				var path string
				if err := db.QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path); err != nil {
					t.Fatal(err)
				}
				hasty := must.Get(sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(1)"))
				defer hasty.Close()
				runs := 0
				rig := onceqtest.New(t, onceq.ProcessorConfig{
					Store: store, Defaults: onceq.JobOptions{MaxAttempts: 3},
					Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						if runs++; c.want[runs-1] == "done" {
							return charge(ctx, db, store, j)
						}
						held, err := db.BeginTx(ctx, nil)
						if err != nil {
							return err
						}
						defer held.Rollback()
						err = c.do(ctx, hasty, store, j)
						if c.as != nil {
							err = c.as(err)
						}
						return err
					}),
				}, nil)
				rig.Send(broker.Outgoing{Body: []byte("order-1")})
				for i, want := range c.want {
					got := rig.Deliver()
					if string(got.Outcome) != want || i == len(c.want)-1 && got.Stored.Attempt != c.at {
						t.Fatalf("delivery %d: %q, attempt %d, want %q, at the end %d: %v", i+1, got.Outcome, got.Stored.Attempt, want, c.at, got.Stored.LastErr)
					}
					rig.Advance(time.Hour)
				}
				if n := charges(t, db); n > 1 || (n == 1) != (c.want[len(c.want)-1] == "done") {
					t.Errorf("%d charges", n)
				}
			})
		})
	}
}

func dieBeforeCommit(ctx context.Context, db *sql.DB, store *sqlitestore.Store, j *onceq.Job, rig *onceqtest.Rig) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES ('order-1', 995)"); err != nil {
		return err
	}
	if err := store.CompleteTx(ctx, tx, j, nil); err != nil {
		return err
	}
	rig.Kill()
	return nil
}

// open opens a file with the store's tables and one of the user's.
func open(t *testing.T) (*sql.DB, *sqlitestore.Store) {
	t.Helper()
	db, store := testsqlite.Open(t, testsqlite.Path(t), nil)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE charges (order_id TEXT, cents INTEGER)"); err != nil {
		t.Fatal(err)
	}
	return db, store
}

func charges(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM charges").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
