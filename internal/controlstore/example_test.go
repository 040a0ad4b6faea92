package controlstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/controlstore"
)

// An operator pauses the queue "mails" for two hours. Each of its workers obeys within 15 seconds.
func ExampleChange() {
	ctx := context.Background()
	store, _ := memstore.New(nil) // in earnest, the workers' store
	_, err := controlstore.Change(ctx, store, func(r *controlstore.Rules) error {
		r.Rules = append(r.Rules, control.Rule{
			Do: control.Pause, Queue: "mails", Until: time.Now().Add(2 * time.Hour), By: "ana", Reason: "SMTP migration",
		})
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rules, _ := controlstore.Read(ctx, store)
	v, paused := rules.For("mails", "", "", time.Now())
	fmt.Println(paused, v.By, v.Reason)

	// Work goes on when the rule is over, or when somebody removes it.
	_, _ = controlstore.Change(ctx, store, func(r *controlstore.Rules) error {
		r.Remove(v.Rule)
		return nil
	})
	rules, _ = controlstore.Read(ctx, store)
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
	seat, _ := controlstore.NewSeat(store, controlstore.SeatOptions{Queue: "orders", Owner: "w-1/1"})
	_ = seat.Beat(ctx, &control.WorkerStatus{At: time.Now(), State: "running", Slots: 10, Busy: 3})

	seats, _ := controlstore.Seats(ctx, store, "orders")
	for _, s := range seats {
		fmt.Println(s.Owner, s.Status.State, s.Status.Busy, "of", s.Status.Slots)
	}
	// Output:
	// w-1/1 running 3 of 10
}

// Who acts says what he is about to do, and what came of it.
func ExampleBegin() {
	ctx := context.Background()
	store, _ := memstore.New(nil)
	begin := time.Now().Add(-time.Second)
	act, err := controlstore.Begin(ctx, store, control.AuditEntry{Act: "purge", By: "ana", Reason: "obsolete since INC-311", Queue: "orders-dead"})
	if err != nil {
		fmt.Println(err) // and nothing is purged
		return
	}
	_ = act.End(ctx, map[string]string{"letters": "22"}, nil)

	for e, err := range controlstore.Acts(ctx, store, begin, time.Now()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.By, e.Act, e.Queue, e.Reason, e.Result["letters"])
	}
	// Output:
	// ana purge orders-dead obsolete since INC-311 22
}

func ExampleParseFor() {
	fmt.Println(controlstore.ParseFor("1h30m"))
	_, err := controlstore.ParseFor("10")
	fmt.Println(err)
	// Output:
	// 1h30m0s <nil>
	// control: not valid: 10 has no unit; want 10m, 1h
}
