package control_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe/memstore"
)

// Two processes make the report of the day, and one of them does.
func ExampleRunOnce() {
	store, _ := memstore.New(nil)
	for range 2 {
		ran, err := control.RunOnce(context.Background(), store, "report/2026-11-22", 0, func(context.Context) error { return nil })
		fmt.Println(ran, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}

// While one operator acts on the letters of a queue, another one is told.
func ExampleWithLock() {
	store, _ := memstore.New(nil)
	err := control.WithLock(context.Background(), store, "letters/orders", func(ctx context.Context) error {
		err := control.WithLock(ctx, store, "letters/orders", func(context.Context) error { return nil })
		fmt.Println(err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// control: another process holds "letters/orders"
	// <nil>
}

// A pause of one type of job makes its messages come again and again. Where the queue counts
// receives, that may move them away.
func ExampleCost() {
	p := control.Cost{For: 24 * time.Hour, MaxReceives: 40, MaxAttempts: 10, Queue: "orders", Target: "orders-dead"}
	fmt.Println(p.Receives())
	fmt.Println(strings.ReplaceAll(p.Check().Error(), "; ", ";\n"))
	// Output:
	// 100
	// orders moves a message to orders-dead after 40 receives;
	// a pause of 24h costs about 100. Pause the queue, or raise maxReceiveCount
}
