package visibility_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/visibility"
)

// A holder keeps a lease for as long as it works, and gives it back quietly.
func Example() {
	renewed := make(chan struct{})
	var once sync.Once
	renew := func(_ context.Context, keys []string) error {
		once.Do(func() {
			fmt.Println("renewed:", keys)
			close(renewed)
		})
		return nil // every lease has Timeout more, counted from before this call
	}
	m, err := visibility.New(renew, visibility.Options[string]{
		Timeout:  30 * time.Second,
		Interval: 10 * time.Millisecond, // for the example's sake; a third of Timeout is right
	})
	if err != nil {
		log.Fatal(err)
	}
	h := &visibility.Held[string]{Lease: "order-7", Deadline: time.Now().Add(30 * time.Second)}
	m.Hold(h)
	<-renewed // the work goes on

	if err := m.Quiesce(context.Background(), h); err != nil { // no renewal comes after this
		log.Fatal(err)
	}
	fmt.Println("held:", m.Len())
	// Output:
	// renewed: [order-7]
	// held: 0
}

// A lease that is lost ends its holder's context, with the reason as the cause.
func ExampleOptions_onLost() {
	type job struct {
		receipt string
		cancel  context.CancelCauseFunc
	}
	extend := func(_ context.Context, jobs []*job) error {
		errs := make([]error, len(jobs))
		for i, j := range jobs {
			if j.receipt == "stale" {
				errs[i] = broker.ErrReceiptExpired
			}
		}
		return broker.JoinEntries(errs) // each entry is answered alone
	}
	m, err := visibility.New(extend, visibility.Options[*job]{
		Timeout:  30 * time.Second,
		Interval: 10 * time.Millisecond,
		OnLost:   func(j *job, err error) { j.cancel(err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	m.Hold(&visibility.Held[*job]{
		Lease:    &job{receipt: "stale", cancel: cancel},
		Deadline: time.Now().Add(30 * time.Second),
	})
	<-ctx.Done()
	fmt.Println(errors.Is(context.Cause(ctx), broker.ErrReceiptExpired), m.Len())
	// Output: true 0
}

// A job's own time stands on the same heap: no timer and no context of its own is needed.
func ExampleManager_SetTimeout() {
	over := make(chan string)
	extend := func(context.Context, []string) error { return nil }
	m, err := visibility.New(extend, visibility.Options[string]{
		Timeout:   30 * time.Second,
		OnTimeout: func(key string) { over <- key },
	})
	if err != nil {
		log.Fatal(err)
	}
	h := &visibility.Held[string]{Lease: "order-7", Deadline: time.Now().Add(30 * time.Second)}
	m.Hold(h)
	m.SetTimeout(h, time.Now().Add(10*time.Millisecond))
	fmt.Println(<-over, "took too long")
	m.Release(h)
	// Output: order-7 took too long
}
