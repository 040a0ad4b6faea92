package main

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/ops"
)

// The doctor finds nothing to mend in the worker as it ships, while it works and before. When the
// queue is given a redrive policy that is too short, it finds that.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.send("order-hold", "order-1", "order-2")
	file := w.file()
	p := start(t, w.env(file))
	p.working()
	until(t, p, "two orders are charged", func() bool { return w.charged() == 2 })

	db, err := sql.Open("sqlite", sqlitestore.DSN(strings.TrimPrefix(file, "DATABASE_FILE=")))
	require.NoError(t, err)
	defer db.Close()
	store, err := sqlitestore.New(db, nil)
	require.NoError(t, err)
	defer store.Close()
	queue, err := awssqs.New(w.client, w.queue, nil)
	require.NoError(t, err)
	dead, err := awssqs.New(w.client, w.letter, nil)
	require.NoError(t, err)
	o, err := ops.New([]ops.Target{{Name: "orders", Queue: queue, DeadLetters: dead, Store: store}}, nil)
	require.NoError(t, err)
	options := ops.DoctorOptions{Letters: true, Write: true, Services: []ops.ServiceCheck{{Check: "sqs", Ask: func(ctx context.Context) (fs []dedupe.Fault, err error) {
		_, texts, err := queue.Check(ctx, awssqs.CheckOptions{})
		for _, text := range texts {
			fs = append(fs, dedupe.Fault{Text: text})
		}
		return fs, err
	}}}}
	found := func() (found []ops.Checkup) {
		for c, err := range o.Doctor(t.Context(), "orders", &options) {
			require.NoError(t, err)
			require.NoError(t, c.Err, c.Check)
			if c.State == ops.CheckFound {
				found = append(found, c)
			}
		}
		return found
	}
	until(t, p, "its card is there", func() bool {
		seats, err := o.Workers(t.Context(), "orders")
		return err == nil && len(seats) == 1 && seats[0].Status != nil && seats[0].Status.MaxAttempts > 0
	})
	require.Empty(t, found())
	seats, err := o.Workers(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, 23*time.Second, seats[0].Status.DrainTimeout)
	options.Card = seats[0].Status
	require.Empty(t, found(), "as the deployment that it is")
	options.Card = nil

	_, err = w.client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &w.queue, Attributes: map[string]string{
		"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:orders-dead","maxReceiveCount":"5"}`,
	}})
	require.NoError(t, err)
	bad := found()
	require.Len(t, bad, 2, "%v", bad)
	require.Equal(t, []string{"receives", "sqs"}, []string{bad[0].Check, bad[1].Check})
	close(w.hold)
	p.signal()
	require.Equal(t, 0, p.exit(), "%s", p.log())
}
