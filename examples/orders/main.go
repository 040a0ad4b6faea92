// Command orders is onceq's demo: workers that are killed at random charge 2,000 orders, and the ledger is asked
// whether each was charged once.
//
// Some orders are poison and become dead letters. These are mended and replayed, and the replay is killed, too.
//
//	go run ./examples/orders              the library keeps its promise
//	go run ./examples/orders              again: no new charge
//	go run ./examples/orders -no-onceq    the same without the library
//
// worker.go and mend.go hold what a user of the library writes. crash.go and mortal.go are the demo's own machinery.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command runs the demo and answers its exit status: 1 when the proof fails or the demo cannot run, 2 for wrong flags.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	o := options{
		visibility: time.Second, bank: 60 * time.Millisecond, slowBank: 2500 * time.Millisecond, restart: 500 * time.Millisecond,
	}
	f := flag.NewFlagSet("orders", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&o.orders, "orders", "", "CSV `file` of the orders (default: examples/orders/orders.csv, built in)")
	f.StringVar(&o.corrections, "corrections", "", "CSV `file` of what to mend mistyped orders with (default: for the built-in orders, one that is built in)")
	f.StringVar(&o.ledger, "ledger", "", "SQLite `file` of the charges (default: .demo/ledger.db, with -no-onceq .demo/naive.db)")
	f.BoolVar(&o.fresh, "fresh", false, "begin with a new ledger: the file of the old one is deleted")
	f.Uint64Var(&o.seed, "seed", 0, "`number` that decides the crashes and the order of the messages (default: random)")
	f.IntVar(&o.crashes, "crashes", 12, "how often a worker is killed")
	f.IntVar(&o.workers, "workers", 3, "how many workers there are")
	f.BoolVar(&o.naive, "no-onceq", false, "do the same without the library; its failures do not count as an error")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case f.NArg() > 0 || o.crashes < 0 || o.workers < 1:
		fmt.Fprintln(errs, "orders: want no arguments, 0 or more crashes, and 1 worker or more")
		return 2
	}
	for o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	if o.ledger == "" {
		o.ledger = filepath.Join(".demo", "ledger.db")
		if o.naive {
			o.ledger = filepath.Join(".demo", "naive.db")
		}
	}
	r, err := run(ctx, o, &screen{out: out, terminal: isTerminal(out)})
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(errs, "orders: stopped. Run it again: what was charged stays charged, the rest follows.")
		return 1
	case err != nil:
		fmt.Fprintln(errs, "orders:", err)
		return 1
	}
	r.print(out)
	if !o.naive && !r.after.holds() {
		return 1
	}
	return 0
}
