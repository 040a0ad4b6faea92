package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
)

// This file owns the drills: the fleet at work, with one fault that an operator finds and mends by
// the commands of docs/runbook.md, until onceq reconcile finds nothing. The drill's goroutine has
// the demo's fields; the seats run beside it until the operator ends the drill.

// fault is what is wrong in a drill.
type fault struct {
	// told is what the operator is told of it, as a colleague would.
	told string
	// receives is the queue's maxReceiveCount, and shaky how often the bank refuses each order.
	receives, shaky int
	// outage is how long the bank answers 500 after the harm is done.
	outage time.Duration
	// copies is how often the producer sends each order; then once with another amount.
	copies int
	// shows reports whether the fault has done its harm, by what lies in the two queues.
	shows func(queue, dead broker.Depth) bool
}

const (
	drillOrders = 30
	// enoughReceives is more than twice the attempts of a job.
	enoughReceives = 40
)

var faults = map[string]fault{
	"bank": {
		told:     "Customers say that they are not charged. The bank's status page is red.",
		receives: enoughReceives, outage: time.Minute, copies: 1,
		shows: func(_, dead broker.Depth) bool { return dead.Visible == drillOrders },
	},
	"receives": {
		told:     "Somebody has tidied the queues up this afternoon. Some customers are not charged, and nothing has failed.",
		receives: 3, shaky: 5, copies: 1,
		shows: func(_, dead broker.Depth) bool { return dead.Visible == drillOrders },
	},
	"producer": {
		told:     "The shop was deployed. Since then the dead-letter alarm rings, though every customer was charged.",
		receives: enoughReceives, copies: 5,
		shows: func(queue, dead broker.Depth) bool {
			return dead.Visible == drillOrders && queue.Visible+queue.InFlight == 0
		},
	},
}

// drillFlag reads the name of a fault.
func drillFlag(f *flag.FlagSet, name *string) {
	f.StringVar(name, "drill", "", "play a fault that you mend by docs/runbook.md: "+strings.Join(slices.Sorted(maps.Keys(faults)), ", "))
}

// drill runs the fleet with a fault until ctx ends. It calls ready when there is something to mend.
func drill(ctx context.Context, o *shop.Settings, name string, out, errs io.Writer, ready func(*demo)) error {
	f, ok := faults[name]
	if !ok {
		return fmt.Errorf("-drill is %q, want one of %s", name, strings.Join(slices.Sorted(maps.Keys(faults)), ", "))
	}
	dir := filepath.Join(filepath.Dir(o.Ledger), "drill")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	all, err := shop.LoadOrders("")
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r shop.Row) bool { return r.Kind != shop.Good })
	o.Ledger, o.Fresh, o.Crashes = filepath.Join(dir, "ledger.db"), true, 0
	d := &demo{o: o, errs: errs, rows: all[:drillOrders], began: time.Now()}
	server, err := serveSQS(ctx)
	if err != nil {
		return err
	}
	if d.till, err = openTill(o.Ledger, d.a.Store); err != nil {
		return err
	}
	defer d.till.close()
	if err := d.till.make(ctx, true); err != nil {
		return err
	}
	if err := d.makeQueues(ctx, server); err != nil {
		return err
	}
	d.a.Drill = drilled{Red: filepath.Join(dir, "the-bank-is-red"), Shaky: f.shaky}
	if err := d.begin(ctx, &f); err != nil {
		return err
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for n := range o.Workers {
		beside.Go(func() {
			if err := d.keep(working, &seat{n: n + 1}); err != nil {
				stop(err)
			}
		})
	}
	beside.Go(func() { d.keepBooks(working, dir) })
	if err := d.harm(working, &f); err != nil {
		if ctx.Err() != nil {
			return nil // the operator has ended it
		}
		return errors.Join(err, context.Cause(working))
	}
	if f.outage > 0 {
		green := time.AfterFunc(f.outage, func() { _ = os.Remove(d.a.Drill.Red) })
		defer green.Stop()
	}
	if exe, err := os.Executable(); err == nil {
		_ = os.Remove(filepath.Join(dir, "aws"))
		_ = os.Symlink(exe, filepath.Join(dir, "aws")) // without links he needs Amazon's own
	}
	d.drillDirections(out, dir, &f)
	ready(d)
	<-working.Done()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(working)
}

// begin sets the queues up, and the fault with them.
func (d *demo) begin(ctx context.Context, f *fault) error {
	_ = os.Remove(d.a.Drill.Red)
	if f.outage > 0 {
		if err := os.WriteFile(d.a.Drill.Red, nil, 0o600); err != nil {
			return err
		}
	}
	policy := fmt.Sprintf(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:%s-dead","maxReceiveCount":%d}`, queueName, f.receives)
	if err := setAttributes(ctx, d.a.Queue, map[string]string{"RedrivePolicy": policy}); err != nil {
		return err
	}
	return setAttributes(ctx, d.a.Dead, map[string]string{"MessageRetentionPeriod": "1209600"}) // 14 days
}

// harm sends the orders, and waits until the fault shows.
func (d *demo) harm(ctx context.Context, f *fault) error {
	send := func(times int, change func(*shop.Row)) error {
		var ms []broker.Outgoing
		for _, r := range d.rows {
			change(&r)
			body, err := r.Body()
			if err != nil {
				return err
			}
			for range times {
				ms = append(ms, broker.Outgoing{Body: body, Meta: &broker.Meta{Type: "charge", Key: r.ID}})
			}
		}
		return onceq.Send(ctx, d.queue, ms)
	}
	if err := send(max(1, f.copies-1), func(*shop.Row) {}); err != nil {
		return err
	}
	if f.copies > 1 {
		if err := d.await(ctx, func(queue, _ broker.Depth) bool { return queue.Visible+queue.InFlight+queue.Delayed == 0 }); err != nil {
			return err
		}
		if err := send(1, func(r *shop.Row) { r.Cents = "1" }); err != nil {
			return err
		}
	}
	return d.await(ctx, f.shows)
}

// await waits for a state of the queues.
func (d *demo) await(ctx context.Context, holds func(queue, dead broker.Depth) bool) error {
	for {
		queue, err := d.queue.Depth(ctx)
		if err != nil {
			return err
		}
		dead, err := d.dead.Depth(ctx)
		if err != nil || holds(queue, dead) {
			return err
		}
		if err := shop.Rest(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// keepBooks writes what should have run, and each second what the ledger has, until ctx ends.
func (d *demo) keepBooks(ctx context.Context, dir string) {
	for ctx.Err() == nil {
		if err := d.writeBooks(ctx, dir); err != nil && ctx.Err() == nil {
			fmt.Fprintln(d.errs, "fleet:", err)
		}
		_ = shop.Rest(ctx, time.Second) // the loop asks ctx itself
	}
}

func (d *demo) writeBooks(ctx context.Context, dir string) error {
	orders, ledger := "key\n", "key,id,at\n"
	for _, r := range d.rows {
		orders += r.ID + "\n"
	}
	db, err := shop.OpenLedger(d.o.Ledger)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT order_id, rowid, at FROM charges")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var order, id, at string
		if err := rows.Scan(&order, &id, &at); err != nil {
			return err
		}
		ledger += order + "," + id + "," + at + "\n"
	}
	return errors.Join(rows.Err(), replaceFile(filepath.Join(dir, "orders.csv"), orders), replaceFile(filepath.Join(dir, "ledger.csv"), ledger))
}

// replaceFile replaces a file as a whole: somebody may be about to read it.
func replaceFile(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// judges end with 0 when all is mended.
var judges = []string{"onceq reconcile orders --expect orders.csv --effects ledger.csv", "onceq doctor orders --letters"}

// drillDirections tell the operator what is known, and where he works.
func (d *demo) drillDirections(out io.Writer, dir string, f *fault) {
	fmt.Fprintf(out, `%s

The fleet works until you press ctrl-C. In another terminal, in this folder:

  go build -o %s ./cmd/onceq && cd %s
  export PATH="$PWD:$PATH"
%s
  onceq queue ls

The commands that you need are in docs/runbook.md. orders.csv is what should have run, ledger.csv
what was charged. You are done when both of these end with exit code 0:

  %s
`, f.told, filepath.ToSlash(dir)+"/", filepath.ToSlash(dir), "  export "+strings.Join(d.drillEnv(), "\n  export "), strings.Join(judges, "\n  "))
}

// drillEnv is the operator's environment.
func (d *demo) drillEnv() []string {
	ledger, err := filepath.Abs(d.o.Ledger)
	if err != nil {
		ledger = d.o.Ledger
	}
	return []string{
		"ONCEQ_STORE=sqlite://" + filepath.ToSlash(ledger), "ONCEQ_QUEUE=" + d.a.commandURL(d.a.Queue, ""),
		"ONCEQ_DEAD=" + d.a.commandURL(d.a.Dead, ""), "QUEUE_URL=" + d.a.Queue,
	}
}

// isAWS reports whether this process was called as aws.
func isAWS() bool { return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "aws" }

// awsCommand is what the runbook needs of Amazon's own command, for machines without it: this
// program under the name aws.
func awsCommand(ctx context.Context, args []string) error {
	if len(args) != 6 || strings.Join(args[:3], " ") != "sqs set-queue-attributes --queue-url" || args[4] != "--attributes" {
		return errors.New("want sqs set-queue-attributes --queue-url URL --attributes file://FILE, or the JSON")
	}
	text := []byte(args[5])
	if file, ok := strings.CutPrefix(args[5], "file://"); ok {
		var err error
		if text, err = os.ReadFile(file); err != nil { //nolint:gosec // the operator's own
			return err
		}
	}
	var attributes map[string]string
	if err := json.Unmarshal(text, &attributes); err != nil {
		return fmt.Errorf("--attributes: %w", err)
	}
	return setAttributes(ctx, args[3], attributes)
}

func setAttributes(ctx context.Context, queueURL string, attributes map[string]string) error {
	at, err := url.Parse(queueURL)
	if err != nil {
		return err
	}
	_, err = client(at.Scheme+"://"+at.Host).SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &queueURL, Attributes: attributes})
	return err
}
