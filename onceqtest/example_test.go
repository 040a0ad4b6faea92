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
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

// A worker dies after the handler and before the job's end is recorded; another takes over. The handler sees the
// same EffectKey both times, so a payment API that honours it charges once.
func ExampleRig() {
	var keys []string
	pay := onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
		keys = append(keys, j.EffectKey("charge"))
		return nil
	})
	test := func(t *testing.T) {
		rig := onceqtest.New(t, onceq.Config{ProcessorConfig: onceq.ProcessorConfig{Handler: pay}})
		rig.CrashAt(onceqtest.BeforeSettle)
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

// run is what a test function does by itself; an example has no *testing.T. The flags -v, -count and -cpu are for the
// tests themselves: here they would show in the example's output.
func run(test func(t *testing.T)) {
	verbose := flag.Lookup("test.v").Value
	defer func(was string) { _ = verbose.Set(was) }(verbose.String())
	_ = verbose.Set("false")
	var once sync.Once
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "example", F: func(t *testing.T) { once.Do(func() { synctest.Test(t, test) }) },
	}})
}
