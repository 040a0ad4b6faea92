package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
)

// serveNaive is a worker without the library, as many are written: receive, charge, delete. It has as many
// hands as serve, and the same ledger, bank and crashes.
func (d *demo) serveNaive(ctx context.Context, p *process) error {
	db, err := shop.OpenLedger(d.o.Ledger)
	if err != nil {
		return err
	}
	defer db.Close()
	queue := mortalQueue{d.queue, p, &d.counts}
	var hands sync.WaitGroup
	for range onceq.DefaultConcurrency {
		hands.Go(func() {
			for ctx.Err() == nil {
				ms, err := queue.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: d.o.Visibility})
				if err != nil {
					continue
				}
				for _, m := range ms {
					if err := d.handleNaive(p.life, p, db, m); err != nil {
						continue // it comes back when its visibility timeout is over
					}
					_ = queue.Ack(p.life, []broker.Receipt{m.Receipt})
				}
			}
		})
	}
	hands.Wait()
	return nil
}

func (d *demo) handleNaive(ctx context.Context, p *process, db *sql.DB, m *broker.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	d.counts.attempts.Add(1)
	var o shop.Order
	if err := json.Unmarshal(m.Body, &o); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	if err := d.o.Bank.Ask(ctx, o); err != nil {
		return err
	}
	p.pass(afterBank)

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	p.pass(beforeInsert)
	if err := shop.InsertCharge(ctx, tx, o, o.ItemCents(false), p.name); err != nil {
		return err
	}
	p.pass(afterInsert)
	p.pass(beforeCommit)
	if err := tx.Commit(); err != nil {
		return err
	}
	p.pass(afterCommit)
	return nil
}
