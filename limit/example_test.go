package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/limit"
)

// work has a worker run handler for the jobs, until f has returned.
func work(handler onceq.Handler, jobs int, watch func(*onceq.Worker), f func()) {
	queue, _ := membroker.New(nil)
	letters, _ := membroker.New(nil)
	store, _ := memstore.New(nil)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: handler, Store: store, Scope: "s", Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return 10 * time.Millisecond }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: letters})
	if err != nil {
		fmt.Println(err)
		return
	}
	watch(w)
	for range jobs {
		_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Body: []byte("x"), Attributes: map[string]string{"tenant": "ada"}})
	}
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.Run(ctx) })
	f()
	stop()
	ended.Wait()
}

// Each tenant begins at most five jobs in a tenth of a second. The others of its jobs wait for
// their turn.
func ExampleMiddleware() {
	perTenant, err := limit.Rate(5, 100*time.Millisecond)
	if err != nil {
		fmt.Println(err)
		return
	}
	began := make(chan time.Time, 6)
	handler := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
		began <- time.Now()
		return nil
	})
	mw := limit.Middleware(perTenant, func(j *onceq.Job) string { return j.Message.Attributes["tenant"] })
	work(onceq.Chain(handler, mw), 6, func(*onceq.Worker) {}, func() {
		first := <-began
		for range 4 {
			<-began
		}
		fmt.Println("the sixth waited for its turn:", (<-began).Sub(first) > 50*time.Millisecond)
	})
	// Output: the sixth waited for its turn: true
}

// The provider is away, so the breaker pauses the worker; after a probe all goes on.
func ExampleBreaker() {
	b, err := limit.NewBreaker(&limit.BreakerOptions{Name: "bank", Runs: 3, OpenFor: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	var mu sync.Mutex
	calls := 0
	done := make(chan struct{}, 3)
	charge := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls <= 3 {
			return errors.New("503 Service Unavailable")
		}
		done <- struct{}{}
		return nil
	})
	work(onceq.Chain(charge, b.Middleware()), 3, func(w *onceq.Worker) { b.Watch(w) }, func() {
		for range 3 {
			<-done
		}
	})
	mu.Lock()
	defer mu.Unlock()
	fmt.Println("calls:", calls)
	// Output: calls: 6
}

// Two processes share what an API allows: two calls a minute. The third waits, whoever makes it.
func ExampleShared() {
	store, _ := memstore.New(nil)
	one, err := limit.Shared(store, "bank", 2, time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	other, _ := limit.Shared(store, "bank", 2, time.Minute)
	for _, process := range []limit.Limiter{one, other, one, other} {
		wait, err := process.Reserve(context.Background(), limit.Ask{})
		fmt.Println(wait == 0, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
	// false <nil>
}

// A database takes one import at a time, from all processes.
func ExampleSlots() {
	store, _ := memstore.New(nil)
	places, err := limit.Slots(store, "imports", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	var running peak.Gauge
	done := make(chan struct{}, 3)
	handler := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
		running.In()
		defer running.Out()
		<-time.After(time.Millisecond)
		done <- struct{}{}
		return nil
	})
	work(onceq.Chain(handler, places), 3, func(*onceq.Worker) {}, func() {
		for range 3 {
			<-done
		}
	})
	fmt.Println("at once:", running.Top())
	// Output: at once: 1
}

// The program itself bounds a worker, here because its database is busy.
func Example_workerLimit() {
	began := make(chan *onceq.Worker, 1)
	var w *onceq.Worker
	handler := onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
		began <- w
		return nil
	})
	work(handler, 1, func(made *onceq.Worker) {
		w = made
		w.Limit(3)
	}, func() {
		w := <-began
		fmt.Println(w.Stats().Slots)
		w.Limit(0)
		fmt.Println(w.Stats().Slots)
	})
	// Output:
	// 3
	// 10
}
