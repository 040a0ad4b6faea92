package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/onceq/onceq/examples/internal/shop"
)

// kept has the server of the queues live as long as ctx, and not only as long as the run. The
// command onceq is another process, so what is kept must be where that can reach it.
func (k *kind) kept(ctx context.Context, o *shop.Settings, queue, store string) error {
	if queue != "sqs" || store != "sqlite" || o.Naive {
		return errors.New("-keep is for SQS with SQLite, without -no-onceq")
	}
	serve := k.serve
	k.serve = func(context.Context) (service, error) { return serve(ctx) }
	return nil
}

// directions tell what to try with the command onceq.
func (d *demo) directions(out io.Writer) {
	ledger, err := filepath.Abs(d.o.Ledger)
	if err != nil {
		ledger = d.o.Ledger
	}
	row := d.rows[0]
	for _, r := range d.rows {
		if r.Kind == "poison" { // it has failed, and was mended: its time line is longer
			row = r
			break
		}
	}
	fmt.Fprintf(out, `The queues and the ledger stay until you press ctrl-C. In another terminal, in this folder:

  export ONCEQ_STORE=sqlite://%s
  export ONCEQ_QUEUE=sqs+%s ONCEQ_DEAD=sqs+%s
  go run ./cmd/onceq queue ls
  go run ./cmd/onceq key show %s %s
  go run ./cmd/onceq dlq group %s
  go run ./cmd/onceq top
`, filepath.ToSlash(ledger), d.a.Queue, d.a.Dead, "charge", row.ID, queueName)
}
