package sqlitestore_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/onceqtest"
	_ "modernc.org/sqlite"
)

// How to test a handler that completes its job in its own transaction: the worker dies after the
// handler's commit and before its own word on the job. The next delivery finds the job done, and
// the charge is there once.
func ExampleStore_CompleteTx_crash() {
	run(func(t *testing.T) {
		// Within the bubble: the pool's goroutines belong to it.
		db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "orders.db")))
		if err != nil {
			t.Fatal(err)
		}
		// Before onceqtest.New, because cleanups run last to first, and workers need the pool.
		t.Cleanup(func() { db.Close() })
		store, err := sqlitestore.New(db, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "CREATE TABLE charges (order_id TEXT, cents INTEGER)"); err != nil {
			t.Fatal(err)
		}

		rig := onceqtest.New(t, onceq.ProcessorConfig{
			Store: store,
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				return chargeOrder(ctx, db, store, j)
			}),
		}, nil)
		rig.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore})
		rig.Send(broker.Outgoing{Body: []byte("order-1")})
		fmt.Println(rig.Deliver().Outcome)
		rig.Advance(time.Minute) // the dead worker's message is visible again
		fmt.Println(rig.Deliver().Outcome)

		var charges int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM charges").Scan(&charges); err != nil {
			t.Fatal(err)
		}
		fmt.Println("charges:", charges)
	})
	// Output:
	// crashed
	// already-done
	// charges: 1
}

// chargeOrder is the handler: the charge and the job's record are one transaction.
func chargeOrder(ctx context.Context, db *sql.DB, store *sqlitestore.Store, j *onceq.Job) error {
	tx, err := db.BeginTx(ctx, nil) // IMMEDIATE, as DSN says
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES ('order-1', 995)"); err != nil {
		return err
	}
	if err := store.CompleteTx(ctx, tx, j, map[string]int{"cents": 995}); err != nil {
		return err
	}
	return tx.Commit()
}

// run is what a test function does by itself; an example has no *testing.T. The flags -v, -count
// and -cpu are for the tests themselves: here they would show in the example's output.
func run(test func(t *testing.T)) {
	verbose := flag.Lookup("test.v").Value
	defer func(was string) { _ = verbose.Set(was) }(verbose.String())
	_ = verbose.Set("false")
	var once sync.Once
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "example", F: func(t *testing.T) { once.Do(func() { synctest.Test(t, test) }) },
	}})
}
