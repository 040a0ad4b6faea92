// Command longjob prints reports, which takes longer than the queue hides a message.
//
// The trap: the queue hides a message for its visibility timeout, then delivers it again, to a
// second worker, while the first is still at it. A timeout of hours instead means that after a
// crash nobody takes over for hours. And a deploy in the middle throws away what was done, or
// counts as a failure.
//
// The answer: nothing to do. The heartbeat keeps the message hidden and its key claimed for as long
// as the handler runs, with a short timeout. At a deploy the handler runs on for DrainTimeout; then
// its context ends, it returns, and the job is handed back, not counted as an attempt. The handler
// here keeps a bookmark, so that the next worker goes on where it stopped.
//
//	go run ./examples/longjob
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// The job takes three times as long as the visibility timeout. In earnest: 30 s, the default, and
// hours.
const (
	visibility = 300 * time.Millisecond
	pages      = 12
	pageTime   = 75 * time.Millisecond
)

// print is the handler: it prints page after page, and stops when ctx ends.
func (p *press) print(ctx context.Context, j *onceq.Job) error {
	id := j.EffectKey("pages") // the bookmark's name: equal over all attempts
	for page := p.bookmark(id) + 1; page <= pages; page++ {
		select {
		case <-time.After(pageTime):
			p.add(id, page)
		case <-ctx.Done():
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, onceq.ErrDraining):
				p.say("  the worker stops: bookmark before page %d", page)
			case errors.Is(cause, onceq.ErrLeaseLost):
				p.say("  somebody else may have the job now: stop at page %d", page)
			}
			return ctx.Err()
		}
	}
	return nil
}

// jobs and worker are the whole of what a long job needs.
func (p *press) jobs(store dedupe.Store) onceq.ProcessorConfig {
	return onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(p.print), Store: store, Scope: "reports", Lease: visibility, Logger: slog.New(slog.DiscardHandler), Observer: p,
	}
}

func worker(jobs onceq.ProcessorConfig, queue broker.Receiver, dead broker.Sender) (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(jobs)
	if err != nil {
		return nil, err
	}
	return p.Worker(queue, onceq.WorkerConfig{
		DeadLetter: dead, Visibility: visibility, DrainTimeout: 2*pageTime + pageTime/2,
	})
}

// heartbeat prints one report. Under a deploy the worker is stopped in the middle, and another goes
// on.
func heartbeat(ctx context.Context, p *press, deployAt int) {
	queue, dead, store := must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
	check(onceq.SendOne(ctx, queue, &broker.Outgoing{Meta: &broker.Meta{Key: "report-7"}}))
	for p.left = 1; p.left > 0; deployAt = 0 {
		deploy, stop := context.WithCancel(ctx)
		p.stop = stop
		p.onPage = func(page int) {
			if page == deployAt {
				p.say("  deploy: the worker is told to stop after page %d", page)
				stop()
			}
		}
		check(must(worker(p.jobs(store), queue, dead)).Run(deploy))
		stop()
	}
}

// naive is a worker with two hands, as many are written: receive, work, delete.
func naive(ctx context.Context, p *press) {
	queue := must(membroker.New(&membroker.Options{Visibility: visibility}))
	must(queue.Send(ctx, []broker.Outgoing{{Body: []byte("report-7")}}))
	done := make(chan struct{})
	for hand := range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			ms, err := queue.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: pages * pageTime})
			check(err)
			for _, m := range ms {
				p.say("  hand %d receives the report, delivery %d", hand+1, m.Attempt)
				for page := 1; page <= pages; page++ {
					<-time.After(pageTime)
					p.add(fmt.Sprint("hand ", hand), page)
				}
				if err := queue.Ack(ctx, []broker.Receipt{m.Receipt}); errors.Is(err, broker.ErrReceiptExpired) {
					p.say("  hand %d is too late to delete it: it will come again", hand+1)
				}
			}
		}()
	}
	<-done
	<-done
}

// run shows the three, and gives the presses for the test to look at.
func run(ctx context.Context, out io.Writer) (without, with, deployed *press) {
	fmt.Fprintf(out, "a report of %d pages takes %v, the visibility timeout is %v\n\n", pages, pages*pageTime, visibility)
	without, with, deployed = newPress(out), newPress(out), newPress(out)
	without.say("without a heartbeat")
	naive(ctx, without)
	without.report()
	with.say("\nwith onceq")
	heartbeat(ctx, with, 0)
	with.report()
	with.say("\nwith onceq, and a deploy in the middle")
	heartbeat(ctx, deployed, 5)
	deployed.report()
	return without, with, deployed
}

func main() { run(context.Background(), os.Stdout) }

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
