package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
)

// charge is what a handler does: the account's balance, and that the job is done, are one
// transaction.
func charge(ctx context.Context, store *pgstore.Store, job dedupe.Owned, account string, cents int) error {
	return store.Commit(ctx, job, func(tx pgx.Tx) (any, error) {
		tag, err := tx.Exec(ctx, "UPDATE accounts SET cents = cents - $1 WHERE id = $2 AND cents >= $1", cents, account)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("%s: not enough money", account)
		}
		return map[string]int{"charged": cents}, err
	})
}

// A handler whose effects are rows of the store's own database commits them with the end of its
// job. Its *onceq.Job is the job.
func ExampleStore_Commit() {
	db := new(pretend) // a *pgxpool.Pool, which sends the last two statements in one round trip
	store, err := pgstore.New(db, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(charge(context.Background(), store, running{}, "ann", 995))
	fmt.Println()
	fmt.Println(charge(context.Background(), store, running{}, "bob", 995)) // who has nothing
	fmt.Println()
	db.takenOver = true
	err = charge(context.Background(), store, running{}, "ann", 995)
	fmt.Println("lease lost:", errors.Is(err, dedupe.ErrLeaseLost))
	// Output:
	// BEGIN
	// UPDATE accounts
	// UPDATE "onceq_dedupe"
	// COMMIT
	// <nil>
	//
	// BEGIN
	// UPDATE accounts
	// ROLLBACK
	// bob: not enough money
	//
	// BEGIN
	// UPDATE accounts
	// UPDATE "onceq_dedupe"
	// ROLLBACK
	// lease lost: true
}

// running is a job whose key is claimed, as the worker shows it to its handler.
type running struct{}

func (running) Lease() dedupe.Lease {
	return dedupe.Lease{Key: dedupe.Key{Scope: "orders", Key: "order-17"}, Token: dedupe.Token{1}, Fence: 1, Attempt: 1}
}
func (running) Retain() time.Duration { return dedupe.DefaultRetention }
func (running) Join()                 {}

// pretend answers as PostgreSQL does, so that the example needs no server.
type pretend struct {
	pgstore.DB
	takenOver bool
}

func (p *pretend) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) {
	fmt.Println("BEGIN")
	return pretendTx{p: p}, nil
}

type pretendTx struct {
	pgx.Tx
	p *pretend
}

func (t pretendTx) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	words := strings.Fields(sql)
	fmt.Println(words[0], words[1])
	if args[1] == "bob" || t.p.takenOver && words[1] != "accounts" {
		return pgconn.NewCommandTag("UPDATE 0"), nil
	}
	return pgconn.NewCommandTag("UPDATE 1"), nil
}

func (pretendTx) Commit(context.Context) error {
	fmt.Println("COMMIT")
	return nil
}

func (pretendTx) Rollback(context.Context) error {
	fmt.Println("ROLLBACK")
	return nil
}

func (pretendTx) Conn() *pgx.Conn { return nil }
