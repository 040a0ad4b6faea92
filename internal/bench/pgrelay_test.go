package bench

import (
	"context"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/pgbroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/testserver/testpg"
	"github.com/onceq/onceq/sqsfake"
)

// arrivals notes when the destination has taken a message.
type arrivals struct {
	broker.Sender
	mu sync.Mutex
	at map[string]chan time.Time
}

func (a *arrivals) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	ids, err := a.Sender.Send(ctx, ms)
	now := time.Now()
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		for i := range ms {
			if c := a.at[ms[i].Meta.Key]; c != nil {
				c <- now
			}
		}
	}
	return ids, err
}

// BenchmarkCommitToSQS is the time from a COMMIT until SQS has taken the order's message. The relay
// has its defaults, with and without Wake. Orders come one by one, in uneven moments, and the
// outbox is empty in between.
func BenchmarkCommitToSQS(b *testing.B) {
	b.Run("poll", func(b *testing.B) { commitToSQS(b, false) })
	b.Run("wake", func(b *testing.B) { commitToSQS(b, true) })
}

func commitToSQS(b *testing.B, wake bool) {
	pool := openPool(b, testpg.NewDurable(b).URL)
	outbox := openPGQueue(b, pool, "outbox")
	b.Cleanup(func() { outbox.Close() })
	to := &arrivals{Sender: nearSQS(b), at: map[string]chan time.Time{}}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: onceq.Forward(to), Store: onceq.NoStore, Scope: "outbox"})
	if err != nil {
		b.Fatal(err)
	}
	w, err := p.Worker(outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 100})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	const orders = 200
	took := make([]time.Duration, 0, orders)
	for i := range orders + 5 {
		at := order(b, pool, outbox, to, wake)
		if i >= 5 { // the first ones open connections
			took = append(took, at)
		}
		<-time.After(time.Duration(37+i*53%211) * time.Millisecond)
	}
	stop()
	running.Wait()
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(p50(took))/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100])/1e6, "p95-ms")
}

// nearSQS is a queue on a server that answers at once.
func nearSQS(b *testing.B) broker.Sender {
	b.Helper()
	fake := sqsfake.New(&sqsfake.Options{LogSize: -1})
	b.Cleanup(fake.Close)
	server := httptest.NewServer(fake)
	b.Cleanup(server.Close)
	fake.URL = server.URL
	url, err := fake.CreateQueue("ship", nil)
	if err != nil {
		b.Fatal(err)
	}
	c := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	q, err := awssqs.New(c, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	return q
}

// order commits one, and answers how long its message took.
func order(b *testing.B, pool interface {
	Begin(context.Context) (pgx.Tx, error)
}, outbox *pgbroker.Queue, to *arrivals, wake bool,
) time.Duration {
	b.Helper()
	ms := outgoing(1)
	came := make(chan time.Time, 1)
	to.mu.Lock()
	to.at[ms[0].Meta.Key] = came
	to.mu.Unlock()
	tx, err := pool.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := onceq.Send(b.Context(), outbox.Tx(tx), ms); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	from := time.Now()
	if wake {
		outbox.Wake()
	}
	return (<-came).Sub(from)
}
