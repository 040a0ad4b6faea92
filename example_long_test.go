package onceq_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
)

// A job may take much longer than the visibility timeout: the heartbeat keeps its message hidden and its key claimed,
// without any configuration. Here the ten minutes are virtual.
func Example_longJob() {
	inBubble(func() {
		queue, dead, store := inMemory()
		send(queue, "video-7", "")
		for _, r := range work(onceq.Config{
			ProcessorConfig: onceq.ProcessorConfig{
				Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
					<-time.After(10 * time.Minute) // transcoding
					return ctx.Err()
				}),
				Store: store, Scope: "videos", DeadLetter: dead,
			},
			Broker: queue,
		}, 1) {
			fmt.Println(r.Outcome, "after", r.Process, "with a timeout of", r.Visibility)
			fmt.Println("deliveries:", r.Receives)
			fmt.Println("heartbeat:", r.Beats > 20)
		}
	})
	// Output:
	// done after 10m0s with a timeout of 30s
	// deliveries: 1
	// heartbeat: true
}

// inBubble runs f in virtual time. A test does that by synctest.Test alone; an example has no *testing.T. The flags -v,
// -count and -cpu are for the tests themselves: here they would show in the example's output.
func inBubble(f func()) {
	verbose := flag.Lookup("test.v").Value
	defer func(was string) { _ = verbose.Set(was) }(verbose.String())
	_ = verbose.Set("false")
	var once sync.Once
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "example", F: func(t *testing.T) {
			t.Helper()
			once.Do(func() { synctest.Test(t, func(*testing.T) { f() }) })
		},
	}})
}
