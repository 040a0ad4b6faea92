package snippets

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/schedule"
)

// Invoice is the payload, as JobArgs or a task's payload was.
type Invoice struct {
	ID    string
	Cents int
}

// Invoices is the kind of job: what Kind() and the task's type were.
var Invoices = onceq.Kind[Invoice]{
	Type:    "invoice",
	Key:     func(i Invoice) string { return i.ID },
	Options: onceq.JobOptions{MaxAttempts: 25, Timeout: time.Minute},
}

// invoiceTx sends the job in the transaction of its row.
func invoiceTx(ctx context.Context, tx pgx.Tx, queue *pgbroker.Queue, i Invoice) error {
	if _, err := tx.Exec(ctx, "INSERT INTO invoices (id, cents) VALUES ($1, $2)", i.ID, i.Cents); err != nil {
		return err
	}
	return Invoices.Send(ctx, queue.Tx(tx), i)
}

// payInvoice is the work: the row and the job's end are one transaction.
func payInvoice(pool *pgxpool.Pool, store *pgstore.Store) func(context.Context, *onceq.Job, Invoice) error {
	return func(ctx context.Context, j *onceq.Job, i Invoice) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE invoices SET paid = true WHERE id = $1", i.ID); err != nil {
				return err
			}
			return store.CompleteTx(ctx, tx, j, nil)
		})
	}
}

// invoiceWorker is the client, or the server, that works.
func invoiceWorker(store dedupe.Store, queue broker.Receiver, dead broker.Sender, work func(context.Context, *onceq.Job, Invoice) error) (*onceq.Worker, error) {
	mux := new(onceq.Mux)
	Invoices.On(mux, work)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop"})
	if err != nil {
		return nil, err
	}
	return p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 100, DrainTimeout: 20 * time.Second})
}

// ending is how a handler says what is to become of its job.
func ending(status int, wait time.Duration) error {
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusTooManyRequests:
		return onceq.Postpone(wait, errors.New("busy")) // no attempt
	case http.StatusNotFound:
		return onceq.Permanent(errors.New("no such customer")) // never again
	}
	return errors.New("no answer") // again, after the backoff
}

// later sends a job that is due in a week, and which may be sent again as often as one likes.
func later(ctx context.Context, queue broker.Sender, i Invoice) error {
	return Invoices.SendAt(ctx, queue, time.Now().Add(7*24*time.Hour), i)
}

// unlessSent asks the store first, and says whether the job was sent.
func unlessSent(ctx context.Context, store dedupe.Store, queue broker.Sender, i Invoice) (sent bool, err error) {
	m, err := Invoices.Message(i)
	if err != nil {
		return false, err
	}
	have, err := onceq.SendOnce(ctx, store, queue, dedupe.Key{Scope: "shop:invoice", Key: i.ID}, &m)
	return have == nil && err == nil, err
}

// inSteps goes on where the attempt before has stopped.
func inSteps(charge, mail func(context.Context, string) (string, error)) func(context.Context, *onceq.Job, Invoice) error {
	return func(ctx context.Context, j *onceq.Job, i Invoice) error {
		_, err := onceq.Step(ctx, j, "charge", func(ctx context.Context) (string, error) { return charge(ctx, j.EffectKey("charge")) })
		if err != nil {
			return err
		}
		_, err = onceq.Step(ctx, j, "mail", func(ctx context.Context) (string, error) { return mail(ctx, i.ID) })
		return err
	}
}

// nightly sends a job each night, from as many processes as one likes.
func nightly(ctx context.Context, store dedupe.Store, queue broker.Sender) error {
	at, err := schedule.Cron("30 2 * * *", "Europe/Berlin")
	if err != nil {
		return err
	}
	entries := []schedule.Entry{{
		Name: "report", Schedule: at, To: queue, CatchUp: 12 * time.Hour, Latest: true,
		Message: func(time.Time) (broker.Outgoing, error) { return onceq.Message("report", "", nil), nil },
	}}
	return schedule.Run(ctx, store, func(context.Context) ([]schedule.Entry, error) { return entries, nil }, nil)
}

// operate is what the client's, or the inspector's, calls do.
func operate(ctx context.Context, o *ops.Ops, queue, id string) error {
	key := dedupe.Key{Scope: "shop:invoice", Key: id}
	if _, err := o.Cancel(ctx, ops.CancelSpec{Queue: queue, Key: key, Reason: "withdrawn"}); err != nil {
		return err
	}
	rule := control.Rule{Queue: queue, Until: time.Now().Add(time.Hour), Reason: "the bank is down"}
	_, err := o.Pause(ctx, rule, nil)
	return err
}
