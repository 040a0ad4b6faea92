package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pubsubapi "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe/memstore"
)

// This file owns the comparisons on Pub/Sub, against pubsubfake in a process of its own, behind a
// line with a round trip of 0 or 20 ms. The benchmarks call all of it from their goroutine. The
// interceptors of the clients count from others, with atomics. Nothing is locked.
// pubsubpeers_test.go has the variants.

const pubsubProject = "bench"

// trips are the times of a round trip.
var trips = []time.Duration{0, 20 * time.Millisecond}

// pubsubQueue is a topic and its subscription. Each run has another one.
type pubsubQueue struct {
	addr, name, topic, subscription string
	calls                           atomic.Int64 // unary calls and opened streams of the run's clients
}

func openPubSub(tb testing.TB, addr string) *pubsubQueue {
	tb.Helper()
	q := &pubsubQueue{addr: addr, name: fmt.Sprintf("bench-%d", serial.Add(1))}
	q.topic = fmt.Sprintf("projects/%s/topics/%s", pubsubProject, q.name)
	q.subscription = fmt.Sprintf("projects/%s/subscriptions/%s", pubsubProject, q.name)
	conn := q.dial(tb)
	if _, err := pubsubpb.NewPublisherClient(conn).CreateTopic(tb.Context(), &pubsubpb.Topic{Name: q.topic}); err != nil {
		tb.Fatal(err)
	}
	if _, err := pubsubpb.NewSubscriberClient(conn).CreateSubscription(tb.Context(), &pubsubpb.Subscription{
		Name: q.subscription, Topic: q.topic, AckDeadlineSeconds: int32(onceq.DefaultVisibility / time.Second),
	}); err != nil {
		tb.Fatal(err)
	}
	return q
}

// dial opens a connection that ends with the test.
func (q *pubsubQueue) dial(tb testing.TB, o ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient(q.addr, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}

// pubsubWork is work on a queue. Its connections' interceptors see the acks.
type pubsubWork struct {
	*work
	q *pubsubQueue
}

func (w pubsubWork) conn(tb testing.TB) *grpc.ClientConn {
	tb.Helper()
	return w.q.dial(tb, w.interceptors()...)
}

// counted has a client of Google's dial such connections itself.
func (w pubsubWork) counted() []option.ClientOption {
	all := append(w.interceptors(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	opts := []option.ClientOption{option.WithEndpoint(w.q.addr), option.WithoutAuthentication()}
	for _, o := range all {
		opts = append(opts, option.WithGRPCDialOption(o))
	}
	return opts
}

func (w pubsubWork) interceptors() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
				w.q.calls.Add(1)
				err := call(ctx, method, req, reply, cc, o...)
				if r, ok := req.(interface{ GetAckIds() []string }); ok && err == nil && strings.HasSuffix(method, "/Acknowledge") {
					w.acked(len(r.GetAckIds()))
				}
				return err
			}),
		grpc.WithStreamInterceptor(
			func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
				w.q.calls.Add(1)
				return open(ctx, d, cc, method, o...)
			}),
	}
}

// client is apiv1's, on the connection.
func subscriber(tb testing.TB, conn *grpc.ClientConn) *pubsubapi.SubscriptionAdminClient {
	tb.Helper()
	c, err := pubsubapi.NewSubscriptionAdminClient(tb.Context(), option.WithGRPCConn(conn))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// fill publishes n messages of 256 bytes.
func (q *pubsubQueue) fill(ctx context.Context, tb testing.TB, n int) {
	tb.Helper()
	p := pubsubpb.NewPublisherClient(q.dial(tb))
	body := []byte(strings.Repeat("x", 256))
	if err := share(n, 8, 1000, func(n int) error {
		ms := make([]*pubsubpb.PubsubMessage, n)
		for i := range ms {
			ms[i] = q.message(body)
		}
		_, err := p.Publish(ctx, &pubsubpb.PublishRequest{Topic: q.topic, Messages: ms})
		return err
	}); err != nil {
		tb.Fatal(err)
	}
}

// message is one as onceq sends it.
func (q *pubsubQueue) message(body []byte) *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{Data: body, Attributes: map[string]string{"onceq": `{"v":1,"id":"` + newKey() + `","t":"bench"}`}}
}

// trickle publishes n messages one by one, at random, so many a second on average.
func (q *pubsubQueue) trickle(ctx context.Context, tb testing.TB, n, perSecond int) {
	tb.Helper()
	p := pubsubpb.NewPublisherClient(q.dial(tb))
	var sends sync.WaitGroup
	at := time.Now()
	for range n {
		at = at.Add(time.Duration(rand.ExpFloat64() * float64(time.Second) / float64(perSecond)))
		<-time.After(time.Until(at))
		sends.Go(func() {
			m := q.message(strconv.AppendInt(nil, time.Now().UnixNano(), 10))
			if _, err := p.Publish(ctx, &pubsubpb.PublishRequest{Topic: q.topic, Messages: []*pubsubpb.PubsubMessage{m}}); err != nil {
				tb.Error(err)
			}
		})
	}
	sends.Wait()
}

// pubsubStart starts a variant, and answers how it is ended.
type pubsubStart func(tb testing.TB, w pubsubWork) (stop func())

// BenchmarkPubSub empties a subscription of messages whose handler does nothing. The variants:
//
//	raw       loops over apiv1: pull a thousand, handle them, ack them in one request
//	onceq     a Worker with its heartbeat, without a store: a thousand slots and, beside these, a
//	          thousand messages for each poller
//	memstore  the same with memstore
//	default   a Worker with a thousand slots, which adds pollers as messages come
//	tight     a Worker that holds no more than the loops, a thousand messages for each poller
//	receive   Receive of Google's client, with a thousand messages outstanding for each poller, its
//	          default
//	receive+  the same with as many as the Worker holds
//	gocloud   gocloud.dev/pubsub/gcppubsub
func BenchmarkPubSub(b *testing.B) {
	for _, trip := range trips {
		for _, pollers := range []int{1, 4} {
			b.Run(fmt.Sprintf("trip=%v/pollers=%d", trip, pollers), func(b *testing.B) {
				addr := start(b, "pubsub "+trip.String())
				calls := new(atomic.Int64)
				filled := func(name string, start pubsubStart) variant {
					return variant{name, func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
						q := openPubSub(tb, addr)
						q.fill(ctx, tb, n)
						w := pubsubWork{newWork(n), q}
						var stop func()
						return func() {
							stop = start(tb, w)
							<-w.gone
							calls.Add(q.calls.Load())
						}, func() { stop() }
					}}
				}
				cfg := onceq.WorkerConfig{Pollers: pollers, Concurrency: 1000, Prefetch: 1000 * pollers}
				vs := []variant{
					filled("raw", rawPubSub(pollers)),
					filled("onceq", pubsubWorker(noStore, cfg)),
					filled("memstore", pubsubWorker(memstore.New, cfg)),
					filled("default", pubsubWorker(noStore, onceq.WorkerConfig{Concurrency: 1000})),
					filled("tight", pubsubWorker(noStore, onceq.WorkerConfig{Pollers: pollers, Concurrency: 500 * pollers, Prefetch: 500 * pollers})),
					filled("receive", receivePubSub(1000*pollers)),
					filled("receive+", receivePubSub(cfg.Concurrency+cfg.Prefetch)),
					filled("gocloud", gocloudPubSub(pollers)),
				}
				b.ResetTimer()
				cs := compare(b, rounds, 20_000*pollers, vs, calls.Load)
				b.ReportMetric(0, "ns/op")
				for i, v := range vs {
					b.ReportMetric(1e9/cs[i].wall, v.name+"-jobs/s")
					b.ReportMetric(cs[i].allocs, v.name+"-allocs/job")
					b.ReportMetric(cs[i].requests, v.name+"-requests/job")
					if i > 0 {
						b.ReportMetric(1/cs[i].beside, v.name+"-x-raw")
						b.ReportMetric(cs[i].cpu/cs[0].cpu, v.name+"-cpu-x-raw")
					}
				}
			})
		}
	}
}

// BenchmarkPubSubAtLowLoad publishes a hundred messages a second, one by one, to each variant, and
// tells the time from a message's publish to its handler. The first second of each run does not
// count, in which connections are opened.
func BenchmarkPubSubAtLowLoad(b *testing.B) {
	const pollers, perSecond, jobs, early = 4, 100, 500, 100
	for _, trip := range trips {
		b.Run(fmt.Sprintf("trip=%v", trip), func(b *testing.B) {
			addr := start(b, "pubsub "+trip.String())
			var names []string
			var waits [][]int64
			calls := new(atomic.Int64)
			trickled := func(name string, start pubsubStart) variant {
				k := len(names)
				names, waits = append(names, name), append(waits, nil)
				return variant{name, func(ctx context.Context, tb testing.TB, n int) (run, after func()) {
					q := openPubSub(tb, addr)
					w := pubsubWork{newWork(n), q}
					w.waits = make([]int64, n)
					var stop func()
					return func() {
							stop = start(tb, w)
							q.trickle(ctx, tb, n, perSecond)
							<-w.gone
							calls.Add(q.calls.Load())
						}, func() {
							stop()
							waits[k] = append(waits[k], w.waits[early:]...)
						}
				}}
			}
			vs := []variant{
				trickled("raw", rawPubSub(pollers)),
				trickled("onceq", pubsubWorker(noStore, onceq.WorkerConfig{Pollers: pollers, Concurrency: 1000})),
				trickled("receive", receivePubSub(1000)),
				trickled("gocloud", gocloudPubSub(pollers)),
			}
			b.ResetTimer()
			cs := compare(b, rounds, jobs, vs, calls.Load)
			b.ReportMetric(0, "ns/op")
			for i, name := range names {
				all := waits[i][jobs-early:] // without the round that warms up
				slices.Sort(all)
				p99, p50 := float64(all[len(all)*99/100])/1e6, float64(all[len(all)/2])/1e6
				b.Logf("%-24s %6.3f requests/job, from publish to handler p50 %6.1f ms, p99 %6.1f ms", name, cs[i].requests, p50, p99)
				b.ReportMetric(cs[i].requests, name+"-requests/job")
				b.ReportMetric(p50, name+"-p50-ms")
				b.ReportMetric(p99, name+"-p99-ms")
			}
		})
	}
}
