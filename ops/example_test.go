package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

func sure[V any](v V, err error) V {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// after is what an outage leaves, as a worker would: two orders that failed, each with its letter,
// one that was done, and a worker that goes on.
func after(ctx context.Context) *ops.Ops {
	store := sure(memstore.New(nil))
	dead := sure(membroker.New(&membroker.Options{Name: "orders-dead"}))
	orders := sure(membroker.New(&membroker.Options{Name: "orders"}))
	for i, k := range []string{"order-1", "order-2", "order-3"} {
		key := dedupe.Key{Scope: "shop:charge", Key: k}
		c := sure(store.Claim(ctx, []dedupe.ClaimRequest{{Key: key, Token: dedupe.Token{1, byte(i)}, TTL: time.Minute, Owner: "w-1/1"}}))[0]
		end := dedupe.Settlement{Key: key, Token: c.Lease.Token, To: dedupe.Failed, ErrClass: "timeout", ErrText: "the bank did not answer"}
		if k == "order-3" {
			end = dedupe.Settlement{Key: key, Token: c.Lease.Token, To: dedupe.Done}
		} else {
			sure(dead.Send(ctx, []broker.Outgoing{{Body: []byte(`{"cents":900}`), Meta: &broker.Meta{
				ID: "job-" + k, Type: "charge", Key: k,
				Dead: &broker.Letter{
					Fence: c.Lease.Fence, Class: "timeout", LastErr: "the bank did not answer", Attempts: 10,
					Source: "orders", Scope: key.Scope, Key: k, At: time.Now(),
				},
			}}}))
		}
		sure(store.Settle(ctx, []dedupe.Settlement{end}))
	}
	seat := sure(controlstore.NewSeat(store, controlstore.SeatOptions{Queue: "orders", Owner: "w-1/1"}))
	card := control.WorkerStatus{At: time.Now(), State: "running", Scope: "shop", Types: []string{"charge"}, Slots: 100, Busy: 80}
	if err := seat.Beat(ctx, &card); err != nil {
		log.Fatal(err)
	}
	// Wait: what is in memory is there at once. A real service needs a longer one, and has it by
	// default: leave Letters out then.
	letters := sure(dlq.New(dead, &dlq.Options{Wait: 10 * time.Millisecond}))
	return sure(ops.New([]ops.Target{{Name: "orders", Queue: orders, DeadLetters: dead, Letters: letters, Store: store}}, &ops.Options{By: "ana"}))
}

// At night: what waits, who works, what has died and why. Then the letters are sent back, each
// once, and the audit says who did it.
func Example() {
	ctx := context.Background()
	o := after(ctx)

	for _, q := range sure(o.Overview(ctx)) {
		if err := q.Err(); err != nil {
			log.Fatal(err) // of a part; the other parts are known all the same
		}
		w := q.Totals()
		fmt.Printf("%s: %d visible, %d letters, %d worker (%d/%d)\n", q.Queue, q.Depth.Visible, *q.Letters, w.Live, w.Busy, w.Slots)
	}
	for _, g := range sure(o.Groups(ctx, "orders", dlq.Filter{})) {
		fmt.Printf("%d × %s: %s\n", g.Count, g.Class, g.Error)
	}

	plan := sure(o.PlanReplay(ctx, ops.ReplaySpec{Queue: "orders", Reason: "the bank is back", ReplayOptions: dlq.ReplayOptions{PerSecond: 1000}}))
	fmt.Printf("%d reopen their failure, %d are done already\n", plan.Reopen, plan.Done)
	report, _, err := o.Replay(ctx, plan)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Replayed, "sent")

	for e, err := range o.Audit(ctx, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s of %s, %s sent: %s\n", e.By, e.Act, e.Queue, e.Result["sent"], e.Reason)
	}
	// Output:
	// orders: 0 visible, 2 letters, 1 worker (80/100)
	// 2 × timeout: the bank did not answer
	// 2 reopen their failure, 0 are done already
	// 2 sent
	// ana: replay of orders, 2 sent: the bank is back
}

// Workers of a queue stop receiving for an hour. Here nobody waits until each of them has followed.
func ExampleOps_Pause() {
	ctx := context.Background()
	o := after(ctx)
	rule := control.Rule{Queue: "orders", Until: time.Now().Add(time.Hour), Reason: "the bank is down, INC-311"}
	made := sure(o.Pause(ctx, rule, &ops.RuleOptions{Follow: -1}))
	fmt.Println(len(made.Rules), "rule made, version", made.Version)

	q := sure(o.Overview(ctx, "orders"))[0]
	fmt.Printf("paused by %s: %s\n", q.Paused.By, q.Paused.Reason)

	ended := sure(o.Resume(ctx, ops.ResumeSpec{Queue: "orders", Reason: "the bank is back"}, &ops.RuleOptions{Follow: -1}))
	fmt.Println(len(ended.Rules), "rule ended")
	// Output:
	// 1 rule made, version 1
	// paused by ana: the bank is down, INC-311
	// 1 rule ended
}

// What became of a job, and an operator's look for what failed.
func ExampleOps_Key() {
	ctx := context.Background()
	o := after(ctx)
	for r, err := range o.Keys(ctx, "orders", ops.KeysQuery{Query: dedupe.Query{Status: dedupe.Failed}}) {
		if err != nil {
			log.Fatal(err)
		}
		line := sure(o.Key(ctx, "orders", r.Key, ops.KeyOptions{}))
		fmt.Print(r.Key.Key, ":")
		for _, step := range line.Steps {
			fmt.Print(" ", step.What)
		}
		fmt.Println(",", r.ErrClass)
	}
	// Output:
	// order-1: claimed failed, timeout
	// order-2: claimed failed, timeout
}

// In the morning: four orders should have been charged. One was, two died, and one never ran. What
// has neither a key nor an effect is sent again.
func ExampleOps_Reconcile() {
	ctx := context.Background()
	o := after(ctx)
	orders := func(yield func(ops.Expected, error) bool) {
		for n := range 4 {
			k := dedupe.Key{Scope: "shop:charge", Key: fmt.Sprint("order-", n+1)}
			body := &broker.Outgoing{Body: []byte(`{"cents":900}`), Meta: &broker.Meta{Type: "charge"}}
			if !yield(ops.Expected{Key: k, Due: time.Now().Add(-10 * time.Minute), Send: body}, nil) {
				return
			}
		}
	}
	e := sure(o.Reconcile(ctx, ops.ReconcileOptions{Queue: "orders", Expected: orders, Letters: true, Grace: 5 * time.Minute}))
	for _, f := range e.Findings {
		fmt.Println(f.Key.Key, f.Kind)
	}
	sent, _, err := o.Resend(ctx, ops.ResendSpec{Evidence: e, PerSecond: 50, Reason: "the nightly look"})
	fmt.Println(sent.Sent, err)
	// Output:
	// order-1 failed
	// order-2 failed
	// order-3 late
	// order-4 missing
	// 1 <nil>
}

// Many look at a page, and the queues are asked once for all of them. The letters are counted when
// somebody asks for it, once for all as well.
func ExampleBoard() {
	ctx := context.Background()
	board := sure(ops.NewBoard(after(ctx), nil))
	defer board.Close(ctx)

	seen := sure(board.Look(ctx))
	again := sure(board.Look(ctx)) // somebody else
	q := seen.Queue("orders")
	fmt.Println(*q.Letters, "letters,", q.Sum.Live, "worker, the same look:", seen == again)

	for began := false; ; {
		changed := board.Changed()
		if !began {
			began = sure(board.Pass("orders"))
		}
		if l := sure(board.Letters("orders")); l != nil && !l.Ended.IsZero() {
			fmt.Printf("%d of %d counted: %d × %s, such as %s\n", l.Seen, l.About, l.Groups[0].Count, l.Groups[0].Class, l.Groups[0].Letters[0].Ref())
			break
		}
		<-changed
	}
	// Output:
	// 2 letters, 1 worker, the same look: true
	// 2 of 2 counted: 2 × timeout, such as charge order-1 [timeout]
}

// A replay goes on when the request that began it has ended, and is stopped in order.
func ExampleRunning() {
	ctx := context.Background()
	o := after(ctx)
	acts := sure(ops.NewRunning(nil))
	defer acts.Close(ctx)

	plan := sure(o.PlanReplay(ctx, ops.ReplaySpec{Queue: "orders", Reason: "the bank is back", ReplayOptions: dlq.ReplayOptions{PerSecond: 0.1}}))
	id := sure(acts.Replay(ctx, o.As("ben"), plan))
	for stopped := false; ; {
		changed := acts.Changed()
		a, _ := acts.Act(id)
		if !a.Ended.IsZero() {
			fmt.Printf("%s sent %d of %d: %v\n", a.By, a.Sent, a.Letters, a.Err)
			break
		}
		if a.Sent == 1 && !stopped {
			stopped = true
			if err := acts.Stop(id, "eva"); err != nil {
				log.Fatal(err)
			}
		}
		<-changed
	}
	_, err := acts.Replay(ctx, o.As("ben"), plan)
	fmt.Println(err)
	// Output:
	// ben sent 1 of 2: dlq: stopped in order by eva
	// ops: the plan has been used already: make another one
}

// A list goes on behind the last key of the page before.
func ExampleOps_Keys() {
	ctx := context.Background()
	o := after(ctx)
	q := ops.KeysQuery{Query: dedupe.Query{Status: dedupe.Failed, Limit: 1}}
	for n := 1; ; n++ {
		page := 0
		for r, err := range o.Keys(ctx, "orders", q) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("page %d: %s\n", n, r.Key.Key)
			page, q.After = page+1, r.Key
		}
		if page < q.Limit {
			break
		}
	}
	// Output:
	// page 1: order-1
	// page 2: order-2
}

// A job that is not to run: its message, when it comes, is acked without a letter.
func ExampleOps_Cancel() {
	ctx := context.Background()
	o := after(ctx)
	k := dedupe.Key{Scope: "shop:charge", Key: "order-9"} // not delivered yet
	_, err := o.Cancel(ctx, ops.CancelSpec{Queue: "orders", Key: k, Reason: "the customer has withdrawn"})
	line := sure(o.Key(ctx, "orders", k, ops.KeyOptions{}))
	fmt.Println(err, line.Record.Status, line.Record.ErrClass+":", line.Record.LastErr)

	k.Key = "order-3" // was charged
	_, err = o.Cancel(ctx, ops.CancelSpec{Queue: "orders", Key: k, Reason: "the customer has withdrawn"})
	fmt.Println(errors.Is(err, ops.ErrRefused))
	// Output:
	// <nil> failed cancelled: cancelled by ana: the customer has withdrawn
	// true
}
