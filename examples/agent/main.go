// Command agent answers questions by three paid calls of a language model each. Its workers are
// processes that are killed with kill -9 every second, and each call is paid once.
//
// The trap: a job that dies after two of its calls makes all three again. The answers that were
// paid are lost, and with them the money.
//
// The answer: each call is a Step. What the model answered is saved before the next call begins, so
// a later attempt does not ask again. One window is left: a worker that dies after the model has
// billed the call, and before the answer is saved. Then the call is repeated under the same
// EffectKey. A provider that takes an idempotency key answers it from its memory, unpaid.
// The bill at the end shows both: steps that were found saved, and calls that came again.
//
//	go run ./examples/agent              each call is paid once
//	go run ./examples/agent -no-key      the model takes no key: the window costs money
//	go run ./examples/agent -no-steps    no steps and no key: each kill costs all calls of its jobs
//	make demo-agent STORE=postgres       keys and steps in PostgreSQL; STORE=dynamodb
//
// agent.go holds what a user of the library writes. model.go is the provider, a server in this
// process. The queue is SQS, in the memory of this process too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/onceq/onceq/examples/internal/scene"
)

func main() { scene.Main("agent", play, direct) }

var errUnpaid = errors.New("the bill is wrong")

func direct(ctx context.Context) error {
	o := settings{Think: 300 * time.Millisecond, Most: 11, Lease: 2 * time.Second}
	f := flag.NewFlagSet("agent", flag.ExitOnError)
	f.IntVar(&o.Jobs, "jobs", 100, "how many questions")
	f.IntVar(&o.Workers, "workers", 3, "how many worker processes")
	f.Uint64Var(&o.Seed, "seed", rand.Uint64N(1_000_000), "draws who is killed, and when")
	f.DurationVar(&o.Every, "every", time.Second, "kill a worker so often; 0 = never")
	f.StringVar(&o.Store, "store", "sqlite", "where keys and steps are: sqlite, a file; postgres at the URL in "+variables["postgres"]+
		"; or dynamodb at the endpoint in "+variables["dynamodb"])
	f.BoolVar(&o.NoKey, "no-key", false, "the model takes no idempotency key")
	f.BoolVar(&o.NoSteps, "no-steps", false, "nothing is saved between the calls, and they have no key")
	_ = f.Parse(os.Args[1:]) // it exits
	if f.NArg() > 0 || o.Jobs < 1 || o.Workers < 1 || o.Every < 0 {
		fmt.Fprintln(os.Stderr, "agent: -jobs and -workers are 1 or more, -every is not negative, and there are no other words")
		os.Exit(2)
	}
	o.NoKey = o.NoKey || o.NoSteps
	t, err := run(ctx, &o, os.Stdout, os.Stderr)
	if err != nil {
		return err
	}
	t.print(os.Stdout, o.way)
	if !t.Holds() && o.way == (way{}) {
		return errUnpaid
	}
	return nil
}

// print shows the ledger.
func (t *tally) print(out io.Writer, w way) {
	line := func(n int, what, remark string, args ...any) {
		fmt.Fprintf(out, "  %-38s %6d   %s\n", what, n, fmt.Sprintf(remark, args...))
	}
	need := len(stages) * t.Jobs
	again := "a worker died between the call and its save; the key was the same"
	if w.NoKey {
		again = "the model takes no keys"
	}
	fmt.Fprintln(out, "\nthe ledger")
	line(t.Jobs, "jobs", "%d done", t.Done)
	line(need, "calls that they need", "")
	line(t.Sum, "calls that were paid", "%d too many", t.Sum-need)
	line(t.Repeated, "calls that came again, unpaid", "%s", again)
	line(t.Kept, "steps that an attempt found saved", "not called again")
	line(t.Refused, "calls refused with 429 or 409", "Postpone: given back, and no attempt used")
	line(t.Kills, "kill -9", "of %d processes, in %.0f s", t.Processes, t.Took.Seconds())
	if t.Holds() {
		fmt.Fprintf(out, "\nEach of the %d calls was paid once.\n", need)
		return
	}
	fmt.Fprintf(out, "\n%d of the %d calls were NOT paid once.\n", t.Wrong, need)
}
