package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	_ "modernc.org/sqlite"
)

// running stands for the *onceq.Job that a handler is given.
type running struct{ lease dedupe.Lease }

func (r running) Lease() dedupe.Lease   { return r.lease }
func (r running) Retain() time.Duration { return dedupe.DefaultRetention }
func (r running) Join()                 {}

// An order is charged in the transaction that completes its job: both are committed, or neither.
func ExampleStore_CompleteTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(dir, "orders.db")))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE charges (order_id TEXT, cents INTEGER)"); err != nil {
		log.Fatal(err)
	}

	// what the worker does for each message; the second is a duplicate
	for n := range 2 {
		claims, err := store.Claim(ctx, []dedupe.ClaimRequest{{
			Key:   dedupe.Key{Scope: "orders", Key: "order-1"},
			Token: dedupe.Token{byte(n + 1)}, // in earnest: drawn at random
			TTL:   30 * time.Second,
		}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("claim:", claims[0].Outcome)
		if claims[0].Outcome != dedupe.Won {
			continue
		}
		if err := charge(ctx, db, store, running{claims[0].Lease}); err != nil {
			log.Fatal(err)
		}
	}

	var charges int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM charges").Scan(&charges); err != nil {
		log.Fatal(err)
	}
	fmt.Println("charges:", charges)
	// Output:
	// claim: won
	// claim: already-done
	// charges: 1
}

// charge is the handler.
func charge(ctx context.Context, db *sql.DB, store *sqlitestore.Store, job dedupe.Owned) error {
	tx, err := db.BeginTx(ctx, nil) // IMMEDIATE, as DSN says
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES ('order-1', 995)"); err != nil {
		return err
	}
	if err := store.CompleteTx(ctx, tx, job, map[string]int{"cents": 995}); err != nil {
		return err
	}
	return tx.Commit()
}

// A handler's effect and its job's completion are one transaction, which takes its turn with the
// store's own writes. A producer without a job does the same by Write.
func ExampleStore_Commit() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(dir, "orders.db")))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	err = store.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE charges (order_id TEXT, cents INTEGER)")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	claims, err := store.Claim(ctx, []dedupe.ClaimRequest{{
		Key:   dedupe.Key{Scope: "orders", Key: "order-1"},
		Token: dedupe.Token{1}, // in earnest: drawn at random
		TTL:   30 * time.Second,
	}})
	if err != nil {
		log.Fatal(err)
	}
	job := running{claims[0].Lease} // the *onceq.Job of the handler
	err = store.Commit(ctx, job, func(tx *sql.Tx) (any, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO charges VALUES (?, ?)", "order-1", 4200)
		return map[string]int{"cents": 4200}, err
	})
	if err != nil {
		log.Fatal(err)
	}
	rs, err := store.Get(ctx, []dedupe.Key{job.lease.Key})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rs[0].Status, string(rs[0].Result))
	// Output: done {"cents":4200}
}
