package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// Do runs a function once for a key, without a queue: here for a webhook, which its sender repeats
// until it gets an answer. A Processor that is for Do only needs a Store and a Scope.
func ExampleDo() {
	_, _, store := inMemoryDo()
	p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "webhooks"}))
	api := &chargeAPI{seen: make(map[string]string)}

	webhook := func(ctx context.Context, event string, cents int) (string, error) {
		return onceq.Do(ctx, p, dedupe.Key{Key: event}, nil, func(ctx context.Context, j *onceq.Job) (string, error) {
			// The process may die after the charge and before its record. Then the next call
			// charges with the same key, and the API answers as before.
			return api.charge(j.EffectKey("charge"), cents), nil
		})
	}
	fmt.Println(webhook(context.Background(), "event-7", 995))
	fmt.Println(webhook(context.Background(), "event-7", 995))
	fmt.Println(onceq.Result[string](context.Background(), store, dedupe.Key{Scope: "webhooks", Key: "event-7"}))
	// Output:
	// charge-1: 995 cents
	// charge-1 <nil>
	// charge-1 <nil>
	// charge-1 done <nil>
}

// chargeAPI stands for a payment API that takes an idempotency key, as most do.
type chargeAPI struct{ seen map[string]string }

func (a *chargeAPI) charge(key string, cents int) string {
	if id, ok := a.seen[key]; ok {
		return id
	}
	id := fmt.Sprintf("charge-%d", len(a.seen)+1)
	fmt.Printf("%s: %d cents\n", id, cents)
	a.seen[key] = id
	return id
}

// A cron job runs in several processes, so that any of them may be down, and once for each slot of
// its schedule. Its key is its name with the slot's time. A process that was down catches up by
// going through the last slots.
func ExampleDo_cron() {
	_, _, store := inMemoryDo()
	const every = 24 * time.Hour
	night := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

	var processes sync.WaitGroup
	for range 3 {
		p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "cron"}))
		processes.Go(func() {
			for day := range 2 {
				now := night.Add(time.Duration(day)*every + 3*time.Second) // no two clocks are alike
				slot := now.Truncate(every)
				key := dedupe.Key{Key: "report/" + slot.Format(time.RFC3339)}
				_, err := onceq.Do(context.Background(), p, key, &onceq.DoOptions{Wait: time.Minute},
					func(ctx context.Context, j *onceq.Job) (struct{}, error) {
						fmt.Println("report of", slot.Format(time.DateOnly))
						return struct{}{}, nil
					})
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	processes.Wait()
	// Unordered output:
	// report of 2026-03-01
	// report of 2026-03-02
}

// A key that has failed for good stays failed, whoever calls. When the cause is mended, Reopen
// lifts that failure. It takes the failure's fence, which is in the error and in the record.
func ExampleDoOptions() {
	_, _, store := inMemoryDo()
	p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "exports"}))
	ctx, key := context.Background(), dedupe.Key{Key: "export-7"}
	mended := false
	export := func(context.Context, *onceq.Job) (int, error) {
		if !mended {
			return 0, onceq.Permanent(errors.New("no such table"))
		}
		return 42, nil
	}

	_, err := onceq.Do(ctx, p, key, nil, export)
	fmt.Println(err)
	_, err = onceq.Do(ctx, p, key, nil, export)
	fmt.Println(err)

	mended = true
	_, err = onceq.Do(ctx, p, key, nil, export)
	var failed *onceq.FailedError
	if errors.As(err, &failed) {
		fmt.Println("still failed:", failed.Class)
		rows, err := onceq.Do(ctx, p, key, &onceq.DoOptions{Reopen: failed.Fence}, export)
		fmt.Println(rows, err)
	}
	// Output:
	// no such table
	// onceq: exports/export-7 has failed (permanent): no such table
	// still failed: permanent
	// 42 <nil>
}

// A call that finds its key in progress answers when to ask again. With Wait it waits for the
// result.
func ExampleInProgressError() {
	_, _, store := inMemoryDo()
	p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "exports"}))
	ctx, key := context.Background(), dedupe.Key{Key: "export-7"}

	begun, finish := make(chan struct{}), make(chan struct{})
	export := func(context.Context, *onceq.Job) (int, error) {
		close(begun)
		<-finish
		return 42, nil
	}
	go onceq.Do(ctx, p, key, nil, export)
	<-begun

	_, err := onceq.Do(ctx, p, key, nil, export)
	var busy *onceq.InProgressError
	fmt.Println(errors.As(err, &busy), busy.RetryAfter)

	time.AfterFunc(10*time.Millisecond, func() { close(finish) })
	fmt.Println(onceq.Do(ctx, p, key, &onceq.DoOptions{Wait: time.Minute}, export))
	// Output:
	// true 1s
	// 42 <nil>
}

// inMemoryDo makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryDo() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustDo(membroker.New(nil)), mustDo(membroker.New(nil)), mustDo(memstore.New(nil))
}

func mustDo[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
