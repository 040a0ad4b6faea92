package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/onceq/onceq/examples/internal/shop"
)

// kept has the server of the queues live as long as ctx, and not only as long as the run. The
// command onceq is another process, so what is kept must be where that can reach it.
func (k *kind) kept(ctx context.Context, o *shop.Settings, queue, store string) error {
	if queue == "pubsub" || store == "dynamodb" || store == "firestore" || o.Naive {
		return errors.New("-keep is for sqs, sqlite and postgres, without -no-onceq")
	}
	if o.Orders == "" && o.Corrections == "" {
		if err := unmended(o); err != nil {
			return err
		}
	}
	serve := k.serve
	k.serve = func(context.Context) (service, error) { return serve(ctx) }
	return nil
}

// unmended has the demo not know in which currency some orders were meant, so that dead letters are
// left to look at.
func unmended(o *shop.Settings) error {
	rows, err := shop.LoadOrders("")
	if err != nil {
		return err
	}
	all, err := shop.LoadCorrections("", true)
	if err != nil {
		return err
	}
	lines := []string{"id,cents,currency"}
	for _, r := range rows {
		if c, ok := all[r.ID]; ok && r.Currency == c.Currency {
			lines = append(lines, r.ID+","+c.Cents+","+c.Currency)
		}
	}
	dir := filepath.Dir(o.Ledger)
	// Of a run before, the ledger has charges of the orders that nobody mends now.
	o.Ledger, o.Fresh = filepath.Join(dir, "kept.db"), true
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	o.Corrections = filepath.Join(dir, "corrections-of-keep.csv")
	return os.WriteFile(o.Corrections, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// directions tell what to try with the command onceq.
func (d *demo) directions(out io.Writer) {
	ledger, err := filepath.Abs(d.o.Ledger)
	if err != nil {
		ledger = d.o.Ledger
	}
	ledger = filepath.ToSlash(ledger)
	store := "sqlite://" + ledger
	if d.a.Store.Name == "postgres" {
		store = withTable(d.a.Store.Endpoint, postgresSchema+".onceq_dedupe")
	}
	row := d.rows[0]
	for _, r := range d.rows {
		if r.Kind == shop.Poison && d.corrections[r.ID].Cents != "" {
			// It has failed, and was mended: its time line is longer.
			row = r
			break
		}
	}
	fmt.Fprintf(out, `The queues and the ledger stay until you press ctrl-C. In another terminal, in this folder:

  export ONCEQ_STORE='%s'
  export ONCEQ_QUEUE='%s' ONCEQ_DEAD='%s'
  go run ./cmd/onceq queue ls
  go run ./cmd/onceq key show %s %s
  go run ./cmd/onceq dlq group %s
  go run ./cmd/onceq top
  go run ./cmd/onceq web          # the same in a browser, at the address that it prints
`, store, d.a.commandURL(d.a.Queue, ledger), d.a.commandURL(d.a.Dead, ledger), "charge", row.ID, queueName)
}
