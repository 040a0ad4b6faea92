package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

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
	api := client(a.Endpoint)
	var hands sync.WaitGroup
	for range onceq.DefaultConcurrency {
		hands.Go(func() {
			for ctx.Err() == nil {
				got, err := api.ReceiveMessage(context.WithoutCancel(ctx), &sqs.ReceiveMessageInput{
					QueueUrl: &a.Queue, VisibilityTimeout: int32(a.Visibility / time.Second), WaitTimeSeconds: 1,
				})
				if err != nil {
					_ = shop.Rest(ctx, a.Visibility/10) // the loop asks ctx itself
					continue
				}
				for _, m := range got.Messages {
					child.Tell(lineStarted)
					err := a.chargeNaive(context.WithoutCancel(ctx), db, []byte(*m.Body))
					child.Tell(lineReturned)
					if err != nil {
						continue // it comes back when its visibility timeout is over
					}
					_, _ = api.DeleteMessage(context.WithoutCancel(ctx), &sqs.DeleteMessageInput{QueueUrl: &a.Queue, ReceiptHandle: m.ReceiptHandle})
					child.Tell(lineEnded + " done 0")
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
