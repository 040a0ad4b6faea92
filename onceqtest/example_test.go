package onceqtest_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/onceqtest"
)

// A worker dies after the handler and before the job's end is recorded; another takes over. The
// handler sees the same EffectKey both times, so a payment API that honours it charges once.
func ExampleRig() {
	var keys []string
	pay := onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		keys = append(keys, j.EffectKey("charge"))
		return nil
	})
	test := func(t *testing.T) {
		rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: pay}, nil)
		rig.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore})
		rig.Send(broker.Outgoing{Body: []byte("order 1")})
		fmt.Println(rig.Deliver().Outcome)
		rig.Advance(time.Minute)
		fmt.Println(rig.Deliver().Outcome)
		fmt.Println(rig.Redeliver().Outcome)
		fmt.Println(len(keys), "runs, same key:", keys[0] == keys[1])
	}
	run(test)
	// Output:
	// crashed
	// done
	// already-done
	// 2 runs, same key: true
}

// The answer to a claim is lost on its way. The worker repeats the claim with its token, and is not
// refused by itself: the job runs at once, and once.
func ExampleRig_At() {
	runs := 0
	pay := onceq.HandlerFunc(func(context.Context, *onceq.Job) error { runs++; return nil })
	run(func(t *testing.T) {
		rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: pay}, nil)
		rig.At(onceqtest.Fault{Op: onceqtest.Claim, Kind: onceqtest.LoseReply})
		rig.Send(broker.Outgoing{Body: []byte("order 1")})
		fmt.Println(rig.Deliver().Outcome, "after", runs, "run")
		for _, c := range rig.Process().Trace() {
			if c.Op == onceqtest.Claim {
				fmt.Println(c)
			}
		}
	})
	// Output:
	// done after 1 run
	// claim 1, 1 entry: lose-reply: onceqtest: fault: lose-reply of claim 1
	// claim 2, 1 entry: ok
}

// A process that a test makes itself. It has a whole worker, and a call of its own that takes part
// in the faults. A second process takes over when the first has died. The bank honours the key, so
// the order is paid once.
func ExampleProcess() {
	run(func(t *testing.T) {
		queue, _ := membroker.New(nil)
		letters, _ := membroker.New(nil)
		store, _ := memstore.New(nil)
		paid := make(map[string]int) // the bank
		work := func(p *onceqtest.Process) {
			jobs, err := onceq.NewProcessor(onceq.ProcessorConfig{
				Scope: "orders", Store: p.Store(store),
				Handler: p.Handler(onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					return p.Call(ctx, "pay", func(context.Context) error { paid[j.EffectKey("pay")]++; return nil })
				})),
			})
			if err != nil {
				t.Fatal(err)
			}
			worker, err := jobs.Worker(p.Receiver(queue), onceq.WorkerConfig{DeadLetter: p.Sender(letters)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(p.Context(t.Context()), 5*time.Minute)
			defer stop()
			_ = worker.Run(ctx) // what a dead worker returns does not matter
		}
		if err := onceq.Send(t.Context(), queue, []broker.Outgoing{{Body: []byte("order 1")}}); err != nil {
			t.Fatal(err)
		}

		first := new(onceqtest.Process)
		first.At(onceqtest.Fault{Op: "pay", Kind: onceqtest.CrashAfter})
		work(first)
		for _, c := range first.Trace() {
			if c.Fault != 0 {
				fmt.Println(c)
			}
		}
		work(new(onceqtest.Process))
		for _, n := range paid {
			fmt.Println("asked the bank", n, "times,", len(paid), "payment")
		}
	})
	// Output:
	// pay 1: crash-after: no answer
	// asked the bank 2 times, 1 payment
}

// run is what a test function does by itself; an example has no *testing.T. The flags -v, -count
// and -cpu are for the tests themselves: here they would show in the example's output.
func run(test func(t *testing.T)) {
	verbose := flag.Lookup("test.v").Value
	defer func(was string) { _ = verbose.Set(was) }(verbose.String())
	_ = verbose.Set("false")
	var once sync.Once
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "example", F: func(t *testing.T) { once.Do(func() { synctest.Test(t, test) }) },
	}})
}
