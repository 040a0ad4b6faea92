package sqstest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dedupe/pgstore"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/sqsfake"
)

// 1. The handler alone: a rig gives it one delivery at a time, and lets its worker die where the
//    test says.

func TestNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCarrier()
		rig := onceqtest.New(t, Jobs(c, nil), nil)
		rig.Send(message(Order{ID: "order-1"}))
		got := rig.Deliver()
		require.Equal(t, onceq.OutcomeFailed, got.Outcome)
		require.Equal(t, ErrNoAddress.Error(), got.Letters[0].Meta.Dead.LastErr)
		require.Empty(t, c.parcels())
	})
}

// The worker dies after the parcel has left, and before that is recorded: the next one asks with
// the same key.
func TestWorkerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCarrier()
		rig := onceqtest.New(t, Jobs(c, nil), nil)
		rig.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore})
		rig.Send(message(Order{ID: "order-1", Address: "Oak Street 1"}))
		require.True(t, rig.Deliver().Crashed)
		rig.Advance(time.Minute) // its leases run out
		require.Equal(t, onceq.OutcomeDone, rig.Deliver().Outcome)
		require.Equal(t, []string{"order-1"}, c.parcels())
		require.Equal(t, 2, c.calls)
	})
}

// 2. The worker on SQS, in virtual time: the server is in this process, a bubble has no network,
//    and minutes take no time. Each
// fault is one that SQS or the way to it really has.

func TestOnSQS(t *testing.T) {
	for name, fault := range map[string]sqsfake.Fault{
		"all is well":                    {Action: "ListQueues"},
		"sent, and the reply is lost":    {Action: "SendMessageBatch", Count: 1, Reset: true, Applied: true},
		"received, and the reply lost":   {Action: "ReceiveMessage", Count: 1, Reset: true, Applied: true},
		"deleted, and the reply is lost": {Action: "DeleteMessageBatch", Count: 2, Reset: true, Applied: true},
		"throttled, one call in two":     {Rate: 0.5, For: 2 * time.Minute, Code: "RequestThrottled"},
		"silent for 20 s":                {For: 20 * time.Second, Silence: true},
		"delivered twice":                {Action: "ReceiveMessage", Count: 1, Duplicate: true},
		"extensions fail, leases expire": {Action: "ChangeMessageVisibilityBatch", For: 3 * time.Minute, Code: "ServiceUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := sqsfake.New(&sqsfake.Options{StrandCancelled: true})
				defer srv.Close()
				client := sqs.New(sqs.Options{
					BaseEndpoint: &srv.URL, HTTPClient: srv.Client(), Region: "us-east-1",
					Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
						return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
					}),
				})
				create := func(name string) string {
					url, err := srv.CreateQueue(name, nil)
					require.NoError(t, err)
					return url
				}
				store, err := memstore.New(nil)
				require.NoError(t, err)
				w := newWorld(t, client, create("parcels"), create("parcels-dead"), store)
				w.carrier.takes = 2 * time.Minute // four visibility timeouts
				srv.SetFaults(fault)
				w.everyOrderOnce(t)
			})
		})
	}
}

// 3. The same on LocalStack and PostgreSQL: what an address in the environment, installed programs
//    or Docker give.

func TestIntegration(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: without servers")
	}
	pool, err := pgxpool.New(t.Context(), localstack.Postgres(t).URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := pgstore.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	s := localstack.SQS(t)
	w := newWorld(t, s.Client(t), s.Queue(t, "parcels", nil), s.Queue(t, "parcels-dead", nil), store)
	w.carrier.takes = 50 * time.Millisecond
	w.everyOrderOnce(t)
}
