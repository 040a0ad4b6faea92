package control_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe/memstore"
)

// An operator pauses the queue "mails" for two hours. Each of its workers obeys within 15 seconds.
func ExampleChange() {
	ctx := context.Background()
	store, _ := memstore.New(nil) // in earnest, the workers' store
	_, err := control.Change(ctx, store, func(r *control.Rules) error {
		r.Rules = append(r.Rules, control.Rule{
			Do: control.Pause, Queue: "mails", Until: time.Now().Add(2 * time.Hour), By: "ana", Reason: "SMTP migration",
		})
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rules, _ := control.Read(ctx, store)
	v, paused := rules.For("mails", "", "", time.Now())
	fmt.Println(paused, v.By, v.Reason)

	// Work goes on when the rule is over, or when somebody removes it.
	_, _ = control.Change(ctx, store, func(r *control.Rules) error {
		r.Remove(v.Rule)
		return nil
	})
	rules, _ = control.Read(ctx, store)
	_, paused = rules.For("mails", "", "", time.Now())
	fmt.Println(paused)
	// Output:
	// true ana SMTP migration
	// false
}

// A worker sits down and shows its card. Workers do so by themselves.
func ExampleSeats() {
	ctx := context.Background()
	store, _ := memstore.New(nil)
	seat, _ := control.NewSeat(store, control.SeatOptions{Queue: "orders", Owner: "w-1/1"})
	_ = seat.Beat(ctx, &control.Card{At: time.Now(), State: "running", Slots: 10, Busy: 3})

	seats, _ := control.Seats(ctx, store, "orders")
	for _, s := range seats {
		fmt.Println(s.Owner, s.Card.State, s.Card.Busy, "of", s.Card.Slots)
	}
	// Output:
	// w-1/1 running 3 of 10
}

// Who acts says what he is about to do, and what came of it.
func ExampleBegin() {
	ctx := context.Background()
	store, _ := memstore.New(nil)
	begin := time.Now().Add(-time.Second)
	act, err := control.Begin(ctx, store, control.Entry{Act: "purge", By: "ana", Reason: "obsolete since INC-311", Queue: "orders-dead"})
	if err != nil {
		fmt.Println(err) // and nothing is purged
		return
	}
	_ = act.End(ctx, map[string]string{"letters": "22"}, nil)

	for e, err := range control.Acts(ctx, store, begin, time.Now()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.By, e.Act, e.Queue, e.Reason, e.Result["letters"])
	}
	// Output:
	// ana purge orders-dead obsolete since INC-311 22
}

// Two processes make the report of the day, and one of them does.
func ExampleOnce() {
	store, _ := memstore.New(nil)
	for range 2 {
		ran, err := control.Once(context.Background(), store, "report/2026-11-22", 0, func(context.Context) error { return nil })
		fmt.Println(ran, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}

// While one operator acts on the letters of a queue, another one is told.
func ExampleAlone() {
	store, _ := memstore.New(nil)
	err := control.Alone(context.Background(), store, "letters/orders", func(ctx context.Context) error {
		err := control.Alone(ctx, store, "letters/orders", func(context.Context) error { return nil })
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
func ExamplePrice() {
	p := control.Price{For: 24 * time.Hour, MaxReceives: 40, MaxAttempts: 10, Queue: "orders", Target: "orders-dead"}
	fmt.Println(p.Receives())
	fmt.Println(strings.ReplaceAll(p.Check().Error(), "; ", ";\n"))
	// Output:
	// 100
	// orders moves a message to orders-dead after 40 receives;
	// a pause of 24h costs about 100. Pause the queue, or raise maxReceiveCount
}

func ExampleParseFor() {
	fmt.Println(control.ParseFor("1h30m"))
	_, err := control.ParseFor("10")
	fmt.Println(err)
	// Output:
	// 1h30m0s <nil>
	// control: not valid: 10 has no unit; want 10m, 1h
}
