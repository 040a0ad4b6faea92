package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/testserver/testpg"
)

// latency is what the server waits before it applies a call; SQS itself takes about three times as
// long.
const latency = 5 * time.Millisecond

// sqsQueue is a queue on a server in a process of its own. Each run has another one: a poll that
// was cut off may still take a message.
type sqsQueue struct{ addr, name, url string }

func openQueue(tb testing.TB, addr string) *sqsQueue {
	tb.Helper()
	q := &sqsQueue{addr: addr, name: fmt.Sprintf("bench-%d", serial.Add(1))}
	out, err := q.client(nil).CreateQueue(tb.Context(), &sqs.CreateQueueInput{QueueName: &q.name})
	if err != nil {
		tb.Fatal(err)
	}
	q.url = *out.QueueUrl
	return q
}

func (q *sqsQueue) client(o func(*sqs.Options)) *sqs.Client {
	c := sqs.Options{}
	q.options(&c)
	if o != nil {
		o(&c)
	}
	return sqs.New(c)
}

// options are those of every variant's client: as many connections stay open as callers are at
// once.
func (q *sqsQueue) options(o *sqs.Options) {
	o.Region, o.BaseEndpoint, o.Credentials = "us-east-1", &q.addr, aws.CredentialsProviderFunc(credentials)
	o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 256 })
}

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}

// sqsWork is work on a queue. Its clients' middleware sees the deletes.
type sqsWork struct {
	*work
	q *sqsQueue
}

// options let the client's deletes be counted.
func (w sqsWork) options(o *sqs.Options) {
	w.q.options(o)
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc("benchDeleted",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				out, meta, err := next.HandleInitialize(ctx, in)
				switch r := out.Result.(type) {
				case *sqs.DeleteMessageBatchOutput:
					w.acked(len(r.Successful))
				case *sqs.DeleteMessageOutput:
					w.acked(1)
				}
				return out, meta, err
			}), middleware.After)
	})
}

// fill sends n messages of half a kilobyte.
func (q *sqsQueue) fill(ctx context.Context, tb testing.TB, n int) {
	tb.Helper()
	s := q.broker(tb, q.client(nil))
	body := make([]byte, 500)
	for i := range body {
		body[i] = 'x'
	}
	if err := share(n, 32, 100, func(n int) error {
		ms := make([]broker.Outgoing, n)
		for i := range ms {
			ms[i] = broker.Outgoing{Body: body, Meta: &broker.Meta{Type: "bench", Key: newKey()}}
		}
		return onceq.Send(ctx, s, ms)
	}); err != nil {
		tb.Fatal(err)
	}
}

// trickle sends n messages one by one, at random, so many a second on average.
func (q *sqsQueue) trickle(ctx context.Context, tb testing.TB, n, perSecond int) {
	tb.Helper()
	s := q.broker(tb, q.client(nil))
	var sends sync.WaitGroup
	at := time.Now()
	for range n {
		at = at.Add(time.Duration(rand.ExpFloat64() * float64(time.Second) / float64(perSecond)))
		<-time.After(time.Until(at))
		sends.Go(func() {
			m := []broker.Outgoing{{Body: strconv.AppendInt(nil, time.Now().UnixNano(), 10), Meta: &broker.Meta{Type: "bench", Key: newKey()}}}
			if err := onceq.Send(ctx, s, m); err != nil {
				tb.Error(err)
			}
		})
	}
	sends.Wait()
}

func (q *sqsQueue) broker(tb testing.TB, c *sqs.Client) *awssqs.Broker {
	tb.Helper()
	s, err := awssqs.New(c, q.url, &awssqs.Options{ReceiveGrace: -1})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// BenchmarkSQS empties a queue of messages whose handler does nothing, with so many receives at
// once. The variants:
//
//	raw        a loop over the SDK in each of so many goroutines: receive ten, handle them, delete them in one request
//	onceq      a Worker with its heartbeat, without a store, that holds as many messages as the loops do
//	lean       the same on awssqs.TransportLean
//	gocloud    gocloud.dev/pubsub/awssnssqs
//	watermill  watermill-aws, so many subscriptions that receive ten
func BenchmarkSQS(b *testing.B) {
	addr := start(b, "sqs")
	for _, c := range []struct{ pollers, jobs int }{{16, 8000}, {64, 48_000}} {
		b.Run(fmt.Sprintf("pollers=%d", c.pollers), func(b *testing.B) {
			vs := []variant{
				{"raw", filled(addr, raw(c.pollers))},
				{"onceq", filled(addr, worker(onceq.WorkerConfig{
					Pollers: c.pollers, Concurrency: 4 * c.pollers, Prefetch: 6 * c.pollers,
				}))},
				{"lean", filled(addr, leanWorker(onceq.WorkerConfig{
					Pollers: c.pollers, Concurrency: 4 * c.pollers, Prefetch: 6 * c.pollers,
				}))},
				{"gocloud", filled(addr, gocloud(c.pollers))},
				{"watermill", filled(addr, watermills(c.pollers))},
			}
			b.ResetTimer()
			cs := compare(b, rounds, c.jobs, vs, func() int64 { return requestsOf(b, addr) })
			b.ReportMetric(0, "ns/op")
			for i, v := range vs {
				b.ReportMetric(1e9/cs[i].wall, v.name+"-jobs/s")
				b.ReportMetric(cs[i].allocs, v.name+"-allocs/job")
				b.ReportMetric(cs[i].requests, v.name+"-requests/job")
				if i > 0 {
					b.ReportMetric(cs[0].wall/cs[i].wall, v.name+"-x-raw")
					b.ReportMetric(cs[i].cpu/cs[0].cpu, v.name+"-cpu-x-raw")
				}
			}
		})
	}
}

// filled is a variant that empties a queue of n messages on the server.
func filled(addr string, start func(tb testing.TB, w sqsWork) (stop func())) func(context.Context, testing.TB, int) (run, after func()) {
	return func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
		tb.Helper()
		q := openQueue(tb, addr)
		q.fill(ctx, tb, n)
		w := sqsWork{newWork(n), q}
		var stop func()
		return func() {
			stop = start(tb, w)
			<-w.gone
		}, func() { stop() }
	}
}

// BenchmarkSQSWithPostgres empties a queue on SQS with the keys in PostgreSQL, on a server that
// waits for the disk. It is what the performance ledger (docs/performance.md) goes by.
func BenchmarkSQSWithPostgres(b *testing.B) {
	addr, db := start(b, "sqs"), testpg.NewDurable(b)
	st := openStore(b, openPool(b, db.URL), "bench_sqs")
	for _, concurrency := range []int{64, 256} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			cfg := onceq.WorkerConfig{Pollers: concurrency / 4, Concurrency: concurrency}
			vs := []variant{
				{"raw", filled(addr, raw(cfg.Pollers))},
				{"onceq", filled(addr, workerOn(st, cfg))},
			}
			b.ResetTimer()
			cs := compare(b, rounds, 100*concurrency, vs, func() int64 { return requestsOf(b, addr) })
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(1e9/cs[1].wall, "jobs/s")
			b.ReportMetric(cs[1].cpu/1e3, "cpu-µs/job")
			b.ReportMetric(cs[1].allocs, "allocs/job")
			b.ReportMetric(cs[1].cpu/cs[0].cpu, "cpu-x-raw")
		})
	}
}

// BenchmarkSQSAtLowLoad sends a hundred messages a second, one by one, to each variant, and counts
// requests and the time from a message's send to its handler. All have 16 pollers, if that many are
// needed.
func BenchmarkSQSAtLowLoad(b *testing.B) {
	const pollers, perSecond, jobs = 16, 100, 400
	addr := start(b, "sqs")
	var names []string
	var waits [][]cost
	trickled := func(name string, start func(tb testing.TB, w sqsWork) (stop func())) variant {
		k := len(names)
		names, waits = append(names, name), append(waits, nil)
		return variant{name, func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
			q := openQueue(tb, addr)
			w := sqsWork{newWork(n), q}
			w.waits = make([]int64, n)
			var stop func()
			return func() {
					stop = start(tb, w)
					q.trickle(ctx, tb, n, perSecond)
					<-w.gone
				}, func() {
					stop()
					all := int64(0)
					for _, wait := range w.waits {
						all += wait
					}
					waits[k] = append(waits[k], cost{wall: float64(all) / float64(n)})
				}
		}}
	}
	vs := []variant{
		trickled("raw", raw(pollers)),
		trickled("onceq", worker(onceq.WorkerConfig{
			Pollers: pollers, Concurrency: 4 * pollers, Prefetch: 6 * pollers,
		})),
		trickled("onceq-pause", worker(onceq.WorkerConfig{
			Pollers: pollers, Concurrency: 4 * pollers, Prefetch: 6 * pollers, PollPause: 500 * time.Millisecond,
		})),
		trickled("gocloud", gocloud(pollers)),
		trickled("watermill", watermills(pollers)),
	}
	b.ResetTimer()
	cs := compare(b, rounds, jobs, vs, func() int64 { return requestsOf(b, addr) })
	b.ReportMetric(0, "ns/op")
	for i, name := range names {
		wait := median(waits[i][1:], func(c cost) float64 { return c.wall })
		b.Logf("%-24s %6.3f requests/job, %6.1f ms from send to handler", name, cs[i].requests, wait/1e6)
		b.ReportMetric(cs[i].requests, name+"-requests/job")
		b.ReportMetric(wait/1e6, name+"-wait-ms")
	}
}
