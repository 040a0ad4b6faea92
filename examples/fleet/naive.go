package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/internal/child"
)

// workNaive is a worker process without the library, as many are written: receive, charge, delete.
// It has as many hands as work, and the same ledger and bank.
func workNaive(ctx context.Context, a assignment) error {
	db, err := shop.OpenLedger(a.Ledger)
	if err != nil {
		return err
	}
	defer db.Close()
	take, err := kinds[a.Service].naive(ctx, a.place, a.Visibility)
	if err != nil {
		return err
	}
	charge := func(body []byte) error {
		child.Tell(lineStarted)
		defer child.Tell(lineReturned)
		return a.chargeNaive(context.WithoutCancel(ctx), db, body)
	}
	var hands sync.WaitGroup
	for range onceq.DefaultConcurrency {
		hands.Go(func() {
			for ctx.Err() == nil {
				deleted, err := take(context.WithoutCancel(ctx), charge)
				for range deleted {
					child.Tell(lineEnded + " done 0")
				}
				if err != nil {
					_ = shop.Rest(ctx, a.Visibility/10) // the loop asks ctx itself
				}
			}
		})
	}
	hands.Wait()
	return nil
}

func (a assignment) chargeNaive(ctx context.Context, db *sql.DB, body []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	var o shop.Order
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	if err := a.Bank.Ask(ctx, o); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := shop.InsertCharge(ctx, tx, o, o.ItemCents(false), a.Name); err != nil {
		return err
	}
	return tx.Commit()
}
