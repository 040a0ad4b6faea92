// Command fleet is onceq's demo: worker processes on a queue and one SQLite file charge 2,000
// orders, are killed with kill -9 at random moments and started again, and the ledger is asked
// whether each order was charged once.
//
// Some orders are poison and become dead letters. These are mended and replayed, and the replay is
// killed, too.
//
//	go run ./examples/fleet              the library keeps its promise
//	go run ./examples/fleet              again: no new charge
//	go run ./examples/fleet -no-onceq    the same without the library
//	make demo STORE=dynamodb             charges and keys in DynamoDB Local
//	make demo STORE=firestore QUEUE=pubsub    the same on Google Cloud's services
//	make demo QUEUE=pubsub               through Google Pub/Sub instead of SQS
//	make demo QUEUE=sqlite               queue, charges and keys in one SQLite file
//	make drill FAULT=bank                a fault that you mend by docs/runbook.md
//	make demo QUEUE=postgres             the queue in PostgreSQL; STORE=postgres: all in PostgreSQL
//
// worker.go, sqlite.go, postgres.go, dynamodb.go, firestore.go and replay.go hold what a user of
// the library writes, naive.go what many write without it. The rest is the demo's own machinery:
// workers that are this program once more (seat.go), and a server of the queue in this process
// (sqs.go, pubsub.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/onceq/onceq/examples/internal/shop"
)

func main() {
	if len(os.Args) == 3 && roles[os.Args[1]] != nil {
		if err := play(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintf(os.Stderr, "fleet: %s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	if isAWS() {
		if err := awsCommand(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "aws:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command runs the demo and answers its exit status: 1 when the proof fails or the demo cannot run,
// 2 for wrong flags.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	o := shop.Settings{Bank: shop.Bank{Usual: 60 * time.Millisecond}, Restart: 500 * time.Millisecond}
	var queue, drills string
	var keep bool
	var store storeOptions
	code, ok := o.Parse("fleet", "", args, errs, func(f *flag.FlagSet) {
		f.BoolVar(&keep, "keep", false, "keep the queues and the ledger at the end, for the command onceq, until an interrupt")
		drillFlag(f, &drills)
		f.StringVar(&queue, "queue", "sqs", "what the orders come through: sqs or pubsub, whose server is in this process; sqlite, which is the ledger's file; "+
			"or postgres, at the URL in "+variables["postgres"])
		f.StringVar(&store.Name, "store", "sqlite", "where the charges and the keys are: sqlite, postgres at the URL in "+variables["postgres"]+
			", dynamodb at the endpoint in "+variables["dynamodb"]+", or firestore at the address in "+variables["firestore"])
	})
	if !ok {
		return code
	}
	if drills != "" {
		if o.Naive || queue != "sqs" || store.Name != "sqlite" {
			fmt.Fprintln(errs, "fleet: -drill is for sqs and sqlite, without -no-onceq")
			return 2
		}
		if err := drill(ctx, &o, drills, out, errs, func(*demo) {}); err != nil {
			fmt.Fprintln(errs, "fleet:", err)
			return 1
		}
		return 0
	}
	on, err := pick(queue)
	if err == nil {
		err = store.find(o.Naive)
	}
	if err == nil && keep {
		err = on.kept(ctx, &o, queue, store.Name)
	}
	if err != nil {
		fmt.Fprintln(errs, "fleet:", err)
		return 2
	}
	o.Visibility, o.Bank.Slow = on.visibility, on.slow
	told := context.AfterFunc(ctx, func() { // at once: the processes take a moment to end
		fmt.Fprintln(errs, "\nfleet: stopping")
	})
	defer told()
	d, r, err := run(ctx, &o, on, store, shop.NewScreen(out), errs)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(errs, "fleet: stopped. Run it again: what was charged stays charged, the rest follows.")
		return 1
	case err != nil:
		fmt.Fprintln(errs, "fleet:", err)
		return 1
	}
	r.Print(out)
	switch {
	case keep:
		d.directions(out)
		<-ctx.Done()
	case !o.Naive:
		fmt.Fprintln(out, "To look at it with the command onceq: make demo ARGS=-keep")
	}
	if o.Naive || r.After.Holds() {
		return 0
	}
	return 1
}
