// Command orders is onceq's demo in memory: workers that are killed at named points charge 2,000 orders, and the ledger is asked
// whether each was charged once. See examples/fleet for the one with real processes.
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
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/onceq/onceq/examples/internal/shop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command runs the demo and answers its exit status: 1 when the proof fails or the demo cannot run, 2 for wrong flags.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	o := shop.Settings{
		Visibility: time.Second, Bank: shop.Bank{Usual: 60 * time.Millisecond, Slow: 2500 * time.Millisecond},
		Restart: 500 * time.Millisecond,
	}
	if code, ok := o.Parse("orders", "fast-", args, errs, nil); !ok {
		return code
	}
	_, r, err := run(ctx, &o, shop.NewScreen(out))
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(errs, "orders: stopped. Run it again: what was charged stays charged, the rest follows.")
		return 1
	case err != nil:
		fmt.Fprintln(errs, "orders:", err)
		return 1
	}
	r.Print(out)
	if o.Naive || r.After.Holds() {
		return 0
	}
	return 1
}
