package onceq_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq"
)

// eventMeter is an Observer that is told of the worker as well.
type eventMeter struct{ meter }

func (m *eventMeter) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	fmt.Printf("%s: %s %q\n", e.Queue, e.Kind, e.Reason)
}

// An Observer with WorkerEvent hears of starts, pauses, outages and drains.
func ExampleWorkerObserver() {
	queue, dead, store := inMemoryObserve()
	p := mustObserve(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler:  onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Observer: &eventMeter{meter{outcomes: make(map[onceq.Outcome]int)}},
		Store:    store, Scope: "mails", Queue: "mails",
	}))
	worker := mustObserve(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	worker.Pause()
	ctx, stop := context.WithCancel(context.Background())
	stop()
	fmt.Println(worker.Run(ctx))
	// Output:
	// mails: started ""
	// mails: paused "local"
	// mails: draining ""
	// mails: drained ""
	// <nil>
}

// Stats counts what is under way. Metrics and pages show it.
func ExampleWorker_Stats() {
	queue, dead, store := inMemoryObserve()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	begun, end := make(chan struct{}), make(chan struct{})
	p := mustObserve(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			close(begun)
			<-end
			return nil
		}),
		Store: store, Scope: "mails",
	}))
	worker := mustObserve(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 4}))
	sendObserve(queue, "mail-7", "")
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	<-begun
	s := worker.Stats()
	fmt.Println(s.Busy, "of", s.Slots, "slots are busy")
	close(end)
	stop()
	fmt.Println(<-ended, worker.Stats().Outcomes)
	// Output:
	// 1 of 4 slots are busy
	// <nil> map[done:1]
}

// Health is for probes. adapters/healthonceq answers them over HTTP.
func ExampleWorker_Health() {
	queue, dead, store := inMemoryObserve()
	p := mustObserve(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   store, Scope: "mails",
	}))
	worker := mustObserve(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	h := worker.Health()
	fmt.Println(h.State)
	fmt.Println("live:", h.Live(nil))
	fmt.Println("ready:", h.Ready(30*time.Second))
	// Output:
	// stopped
	// live: <nil>
	// ready: stopped: Run is not under way
}
