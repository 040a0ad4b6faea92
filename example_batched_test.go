package onceq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A statement that cannot tell which row is bad fails for all of them. With Divide the function is
// called again with halves, so that the bad row fails alone.
func ExampleBatched_divide() {
	queue, dead := mustBatched(membroker.New(nil)), mustBatched(membroker.New(nil))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var ms []broker.Outgoing
	for _, row := range []string{"1", "2", "?", "4", "5", "6", "7", "8"} {
		ms = append(ms, onceq.Message("", "row-"+row, []byte(row)))
	}
	if err := onceq.Send(ctx, queue, ms); err != nil {
		log.Fatal(err)
	}
	stored := 0
	store := func(_ context.Context, js []*onceq.Job) []error {
		errs := make([]error, len(js))
		for _, j := range js {
			if bytes.Equal(j.Message.Body, []byte("?")) {
				for i := range errs {
					errs[i] = errors.New("invalid input syntax for type integer")
				}
				return errs
			}
		}
		stored += len(js)
		if stored == 7 {
			stop()
		}
		return errs
	}
	p := mustBatched(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Batched(onceq.BatchedOptions{Max: 8, Linger: 10 * time.Second, Divide: true}, store),
		Store:   mustBatched(memstore.New(nil)), Scope: "rows",
		Defaults: onceq.JobOptions{MaxAttempts: 1},
	}))
	w := mustBatched(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 16}))
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	d, err := dead.Depth(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored, "rows stored,", d.Visible, "dead letter")
	// Output:
	// 7 rows stored, 1 dead letter
}

func mustBatched[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
