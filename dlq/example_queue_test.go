package dlq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// failures puts the letters of three orders into a dead-letter queue, as a worker would: two were
// refused, one of them twice in the queue, and one was too slow.
func failures() (letters *dlq.Queue, dead, orders *membroker.Broker) {
	dead, orders = must(membroker.New(nil)), must(membroker.New(nil))
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, l := range []struct{ key, class, err, body string }{
		{"order-1", "bad-amount", "order-1 is over -500 cents", `{"cents":-500}`},
		{"order-2", "timeout", "the bank did not answer", `{"cents":900}`},
		{"order-3", "bad-amount", "order-3 is over -70 cents", `{"cents":-70}`},
		{"order-1", "bad-amount", "order-1 is over -500 cents", `{"cents":-500}`},
	} {
		letter := broker.Outgoing{Body: []byte(l.body), Meta: &broker.Meta{
			ID: "job-" + l.key, Type: "charge", Key: l.key,
			Dead: &broker.Letter{
				Fence: uint64(40 + i%3), Class: l.class, FirstErr: l.err, LastErr: l.err, Attempts: 1, Source: "payments",
				At: at.Add(time.Duration(i%3) * time.Minute),
			},
		}}
		must(dead.Send(context.Background(), []broker.Outgoing{letter}))
	}
	// Wait: what is in memory is there at once. A real service needs a longer one, and has it by
	// default.
	return must(dlq.New(dead, &dlq.Options{Wait: 10 * time.Millisecond})), dead, orders
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Each failure is listed once, with its copies; afterwards the letters are all still there.
func ExampleQueue_List() {
	letters, dead, _ := failures()
	for e, err := range letters.List(context.Background(), dlq.Filter{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e)
	}
	fmt.Println(must(dead.Depth(context.Background())).Visible, "letters in the queue")
	// Output:
	// 2026-03-01 12:00:00Z  charge order-1 [bad-amount]: order-1 is over -500 cents (and 1 more of it)
	// 2026-03-01 12:01:00Z  charge order-2 [timeout]: the bank did not answer
	// 2026-03-01 12:02:00Z  charge order-3 [bad-amount]: order-3 is over -70 cents
	// 4 letters in the queue
}

// One letter, by its key or its job's id, with all that is known of it.
func ExampleQueue_Get() {
	letters, _, _ := failures()
	for _, e := range must(letters.Get(context.Background(), "order-2")) {
		e.Message.ID = "m-1" // the broker's own, another one each time
		if err := e.Show(os.Stdout); err != nil {
			log.Fatal(err)
		}
	}
	_, err := letters.Get(context.Background(), "order-9")
	fmt.Println(errors.Is(err, dlq.ErrNoLetter))
	// Output:
	// key          order-2
	// type         charge
	// class        timeout
	// group        1ccf0fed
	// failed       2026-03-01 12:01:00Z
	// attempts     1
	// last error   the bank did not answer
	// source       payments
	// fence        41
	// job          job-order-2
	// message      m-1
	// body         {"cents":900}
	// true
}

// What kinds of failures there are: the first thing to ask in an outage.
func ExampleQueue_Group() {
	letters, _, _ := failures()
	groups := must(letters.Group(context.Background(), dlq.Filter{Since: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}))
	for _, g := range groups { // fmt.Print(groups) prints a table
		fmt.Println(g.Group, g.Class, g.Count, "since", g.Oldest.UTC().Format(time.TimeOnly), g.Error)
	}
	// Output:
	// 82f3032e bad-amount 2 since 12:00:00 order-# is over -# cents
	// 1ccf0fed timeout 1 since 12:01:00 the bank did not answer
}

// What differs from job to job does not count, so an outage is one group, however many jobs it
// stopped.
func ExampleFingerprint() {
	for _, text := range []string{
		`Post "https://bank/charges/881": context deadline exceeded`,
		`Post "https://bank/charges/0b1c?at=17": context deadline exceeded`,
		`the bank refuses: 402 card expired at 2026-11-22`,
		`the bank refuses: 409 charged already at 2026-11-22`,
	} {
		fmt.Println(dlq.Fingerprint("timeout", text), dlq.Normalize(text))
	}
	// Output:
	// 9f9ddd6c Post #: context deadline exceeded
	// 9f9ddd6c Post #: context deadline exceeded
	// 617b0229 the bank refuses: 402 card expired at #
	// 25fb2828 the bank refuses: 409 charged already at #
}

// Somebody reads a plan's numbers, and says yes. In the meantime the group has grown: the new letter
// stays.
func ExampleQueue_PlanReplay() {
	ctx := context.Background()
	_, dead, orders := failures()
	letters := must(dlq.New(dead, &dlq.Options{Name: "orders-dead", Wait: 10 * time.Millisecond}))
	group := must(letters.Group(ctx, dlq.Filter{Class: "bad-amount"}))[0].Group

	plan := must(letters.PlanReplay(ctx, dlq.ReplayOptions{To: orders, Filter: dlq.Filter{Group: group}}))
	file := must(json.Marshal(plan)) // for whoever says yes
	fmt.Println("planned:", plan.Count(dlq.Take), "letters for", plan.Queue)

	must(dead.Send(ctx, []broker.Outgoing{{Meta: &broker.Meta{Key: "order-4", Dead: &broker.Letter{
		Fence: 99, Class: "bad-amount", LastErr: "order-4 is over -1 cents", At: time.Now(),
	}}}}))
	var back dlq.Plan
	if err := json.Unmarshal(file, &back); err != nil {
		log.Fatal(err)
	}
	report := must(letters.Replay(ctx, dlq.ReplayOptions{To: orders, Plan: &back}))
	fmt.Println("replayed:", report.Replayed)
	fmt.Println("left:", must(dead.Depth(ctx)).Visible)

	edited := bytes.Replace(file, []byte(`"k":"order-1"`), []byte(`"k":"order-4"`), 1)
	fmt.Println(errors.Is(json.Unmarshal(edited, &back), dlq.ErrPlan))
	// Output:
	// planned: 2 letters for orders-dead
	// replayed: 2
	// left: 2
	// true
}

// A ramp sends 10 letters, 50, 250 and so on, and watches each batch. Here one of the first ten
// comes back, so the others stay.
func ExampleQueue_Replay_ramp() {
	ctx := context.Background()
	dead, orders := must(membroker.New(nil)), must(membroker.New(nil))
	for i := range 40 {
		letter := broker.Outgoing{Meta: &broker.Meta{Key: fmt.Sprint("order-", i), Dead: &broker.Letter{
			Fence: uint64(i + 1), Class: "timeout", LastErr: "no answer", At: time.Now().Add(-time.Minute),
		}}}
		must(dead.Send(ctx, []broker.Outgoing{letter}))
	}
	letters := must(dlq.New(dead, &dlq.Options{Wait: 10 * time.Millisecond}))
	sent := 0
	report, err := letters.Replay(ctx, dlq.ReplayOptions{
		To: orders, Ramp: true, CanaryWait: 200 * time.Millisecond,
		Each: func(dlq.Step) {
			if sent++; sent == 10 { // the worker's part: the job fails again
				again := broker.Letter{Fence: 900, Class: "timeout", LastErr: "no answer", At: time.Now()}
				must(dead.Send(ctx, []broker.Outgoing{{Meta: &broker.Meta{Key: "order-7", Dead: &again}}}))
			}
		},
	})
	fmt.Println(err)
	fmt.Println(report.Replayed, "sent,", must(dead.Depth(ctx)).Visible, "left")
	// Output:
	// dlq: of 10 letters sent 1 came back: order-7 [timeout]
	// 10 sent, 31 left
}

// The bank answers again, so what had timed out goes back. Without DryRun the same call sends; its
// letter is removed only after that.
func ExampleQueue_Replay() {
	letters, _, orders := failures()
	for _, dry := range []bool{true, false} {
		report, err := letters.Replay(context.Background(), dlq.ReplayOptions{
			Filter: dlq.Filter{Class: "timeout"}, To: orders, PerSecond: 20, DryRun: dry,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(report)
		fmt.Println(must(orders.Depth(context.Background())).Visible, "orders in the queue")
	}
	// Output:
	// 4 seen, 1 would be replayed, 3 not chosen
	// 0 orders in the queue
	// 4 seen, 1 replayed, 3 not chosen
	// 1 orders in the queue
}

// A form had let through amounts with a minus sign. They are mended on their way; what cannot be
// mended stays, with the reason.
func ExampleQueue_Replay_edit() {
	letters, _, orders := failures()
	report, err := letters.Replay(context.Background(), dlq.ReplayOptions{
		Filter: dlq.Filter{Class: "bad-amount"}, To: orders,
		Edit: func(o *broker.Outgoing) error {
			if o.Meta.Key == "order-3" {
				return errors.New("the customer has cancelled")
			}
			o.Body = []byte(strings.ReplaceAll(string(o.Body), "-", ""))
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report)
	for _, m := range must(orders.Receive(context.Background(), broker.ReceiveOptions{Max: 10})) {
		fmt.Printf("%s %s, reopens failure %d\n", m.Meta.Key, m.Body, m.Meta.Dead.Fence)
	}
	// Output:
	// 4 seen, 1 replayed, 1 copy dropped, 1 skipped, 1 not chosen
	// 1 skipped: the customer has cancelled
	// order-1 {"cents":500}, reopens failure 40
}

// One letter is sent first. It comes back, so the others are not sent.
func ExampleQueue_Replay_canary() {
	letters, dead, orders := failures()
	go func() { // a worker that is still broken
		for {
			ms, err := orders.Receive(context.Background(), broker.ReceiveOptions{Max: 1, Wait: -1})
			if err != nil {
				return
			}
			for _, m := range ms {
				d := broker.Letter{Fence: m.Meta.Dead.Fence + 100, Class: "timeout", LastErr: "still no answer", Source: "payments", At: time.Now()}
				m.Meta.Dead = &d // a worker does so, and sends the message to the dead-letter queue
				must(dead.Send(context.Background(), []broker.Outgoing{{Body: m.Body, Meta: m.Meta}}))
			}
		}
	}()
	defer orders.Close()
	report, err := letters.Replay(context.Background(), dlq.ReplayOptions{To: orders, Canary: 1, CanaryWait: 10 * time.Second})
	fmt.Println(err)
	fmt.Println(report.Replayed, "sent")
	var back *dlq.CanaryError
	fmt.Println(errors.As(err, &back))
	// Output:
	// dlq: of 1 letters sent 1 came back: charge order-1 [timeout]
	// 1 sent
	// true
}

// Letters are written down before they are removed.
func ExampleQueue_Purge() {
	letters, dead, _ := failures()
	export := dlq.ExportJSON(os.Stdout)
	report, err := letters.Purge(context.Background(), dlq.PurgeOptions{
		Filter: dlq.Filter{Class: "timeout"},
		Export: func(e dlq.Entry) error {
			e.Message.ID, e.Message.Published = "m-1", time.Time{} // other ones each time
			return export(e)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report)
	fmt.Println(must(dead.Depth(context.Background())).Visible, "letters in the queue")
	// Output:
	// {"message":"m-1","body":"{\"cents\":900}","onceq":{"v":1,"id":"job-order-2","t":"charge","k":"order-2","dead":{"f":41,"c":"timeout","fe":"the bank did not answer","le":"the bank did not answer","a":1,"s":"payments","at":1772366460000}}}
	// 4 seen, 1 purged, 3 not chosen
	// 3 letters in the queue
}

// What a purge wrote is put back as it was: with the same id, key and fence.
func ExampleImportJSON() {
	file := strings.NewReader(`{"message":"m-1","body":"{\"cents\":500}","onceq":{"v":1,"id":"j-1","t":"charge","k":"order-1","dead":{"f":40}}}` + "\n")
	var letters []broker.Outgoing
	for m, err := range dlq.ImportJSON(file) {
		if err != nil { // a torn line; the others go on
			fmt.Println(err)
			continue
		}
		letters = append(letters, m)
	}
	m := letters[0]
	fmt.Println(len(letters), m.Meta.Type, m.Meta.Key, m.Meta.Dead.Fence, string(m.Body))
	// Output: 1 charge order-1 40 {"cents":500}
}
