// Command accounts moves money by an SQS FIFO queue, one message group for each account.
//
// The trap: the transfers of an account must be done in their order, the deposit before the
// withdrawal that it covers. One worker with one hand keeps the order, and all customers wait for
// the slowest. Many hands mix it up. A message that fails, and is tried again later, is overtaken
// by the next.
//
// The answer: the group is the account. One transfer of it runs at a time, in order, and accounts
// run beside each other. A transfer that has to wait (RetryAfter) holds its own account and no
// other. If a transfer cannot be done, you have a choice: it becomes a dead letter and its account
// goes on, or with HoldGroup its account stands still.
//
//	go run ./examples/accounts
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns the transfers and the two scenes; bank.go has the accounts. main and the tests
// call a scene. The worker calls the bank from many goroutines, and the bank has the only lock.

type transfer struct {
	Account string
	No      int // within the account
	Cents   int // < 0 = a withdrawal
}

func (t transfer) key() string { return fmt.Sprintf("%s-%d", t.Account, t.No) }

// Of each account the same five: a withdrawal that overtakes its deposit finds too little.
var accounts = []string{"alice", "bob", "carol", "dave"}

var cents = []int{10000, -8000, 5000, -6000, 500}

const rest = 10000 - 8000 + 5000 - 6000 + 500 // of each account, in the end

func transfers() (ms []broker.Outgoing) {
	for i, c := range cents {
		for _, a := range accounts {
			t := transfer{Account: a, No: i + 1, Cents: c}
			ms = append(ms, broker.Outgoing{
				Body: must(json.Marshal(t)), Group: t.Account,
				// SQS drops what it has seen within five minutes. The key holds for longer. Without
				// a DedupID, Send takes the key.
				DedupID: t.key(), Meta: &broker.Meta{Key: t.key()},
			})
		}
	}
	return ms
}

// city is a server of SQS in memory, with the two queues.
type city struct {
	*sqsfake.Server
	queue, dead *awssqs.Broker
	store       dedupe.Store
}

func newCity() *city {
	c := &city{Server: sqsfake.New(nil), store: must(memstore.New(nil))}
	client := sqs.New(sqs.Options{
		BaseEndpoint: &c.URL, HTTPClient: c.Client(), Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	o := &awssqs.Options{LongPoll: time.Second} // so that the demonstration ends soon
	c.queue = must(awssqs.New(client, must(c.CreateQueue("transfers.fifo", nil)), o))
	c.dead = must(awssqs.New(client, must(c.CreateQueue("transfers-dead.fifo", nil)), o))
	return c
}

// work runs a worker until so many transfers are done, or cannot be done.
func (c *city) work(ctx context.Context, b *bank, ends int, holdGroup bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(b.move), Store: c.store, Scope: "transfers",
		Logger: slog.New(slog.DiscardHandler), Observer: newScreen(b, ends, stop),
	}))
	w := must(p.Worker(c.queue, onceq.WorkerConfig{DeadLetter: c.dead, HoldGroup: holdGroup}))
	check(w.Run(ctx))
}

// letters is the scene with dead letters: carol's account is closed at first.
func letters(ctx context.Context, out io.Writer) *bank {
	c, b := newCity(), newBank(out)
	defer c.Close()
	b.down["bob-2"] = 2 // calls for which the bank is not there
	b.closed["carol-1"] = true
	check(onceq.Send(ctx, c.queue, transfers()))
	c.work(ctx, b, len(accounts)*len(cents), false)
	b.report()

	b.say("carol's account is opened, and her letters are replayed, in their order")
	b.closed["carol-1"] = false
	report := must(must(dlq.New(c.dead, nil)).Replay(ctx, dlq.ReplayOptions{To: c.queue}))
	c.work(ctx, b, report.Replayed, false)
	b.report()
	return b
}

// held is the scene with HoldGroup. What stands at the head of its group comes again after an hour.
func held(ctx context.Context, out io.Writer) (c *city, b *bank) {
	c, b = newCity(), newBank(out)
	b.closed["carol-1"] = true
	check(onceq.Send(ctx, c.queue, transfers()))
	c.work(ctx, b, (len(accounts)-1)*len(cents)+1, true)
	b.report()
	return c, b
}

func main() {
	ctx := context.Background()
	fmt.Printf("%d accounts, %d transfers each, of %v\n\nwhat cannot be done becomes a dead letter\n", len(accounts), len(cents), moveTime)
	letters(ctx, os.Stdout)
	fmt.Println("\nHoldGroup: what cannot be done holds its account")
	c, _ := held(ctx, os.Stdout)
	c.Close()
}

// inOrder reports whether the numbers rise.
func inOrder(ns []int) bool {
	for i := 1; i < len(ns); i++ {
		if ns[i] < ns[i-1] {
			return false
		}
	}
	return true
}

func numbers(ns []int) string {
	if len(ns) == 0 {
		return "nothing"
	}
	return strings.Trim(fmt.Sprint(ns), "[]")
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
