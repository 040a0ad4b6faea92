package onceq_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// Where an effect can neither be repeated nor looked up, a job that was interrupted after its start is parked: it
// is never run again by itself. A person finds out what happened, and resolves the dead letter.
func ExampleJobOptions_interrupted() {
	queue, dead, store := inMemory()
	send(queue, "wire-7", "1,000,000")
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				fmt.Println("telex: wire", string(j.Message.Body))
				return onceq.Unknown(errors.New("paper jam")) // sent, or not?
			}),
			Store: store, Scope: "wires", DeadLetter: dead,
			Defaults: onceq.JobOptions{Interrupted: dedupe.Park},
		},
		Broker: queue,
	}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	_, status, err := onceq.Result[string](context.Background(), store, dedupe.Key{Scope: "wires", Key: "wire-7"})
	fmt.Println(status, err)
	fmt.Println("dead letters:", len(letters(dead)))
	// Output:
	// telex: wire 1,000,000
	// parked interrupted
	// parked <nil>
	// dead letters: 1
}

// A plain error is the handler's word that nothing has happened, under Park as well: the job is tried again.
func ExampleJobOptions_interruptedRetry() {
	queue, dead, store := inMemory()
	send(queue, "wire-7", "1,000,000")
	for _, r := range work(onceq.Config{
		ProcessorConfig: onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				if j.Attempt == 1 {
					return onceq.RetryAfter(0, errors.New("no dial tone"))
				}
				fmt.Println("telex: wire", string(j.Message.Body))
				return nil
			}),
			Store: store, Scope: "wires", DeadLetter: dead,
			Defaults: onceq.JobOptions{Interrupted: dedupe.Park},
		},
		Broker: queue,
	}, 2) {
		fmt.Println(r.Outcome, r.Err)
	}
	// Output:
	// telex: wire 1,000,000
	// retried no dial tone
	// done
}
