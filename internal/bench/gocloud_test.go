package bench

import (
	"context"
	"testing"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
)

// BenchmarkGocloudSQS empties a queue of messages whose handler does nothing, through gocloud's SQS
// driver, with 16 receives at once and a wait of a second each. The variants:
//
//	gocloud     goroutines that call its Receive and Ack
//	onceq       a Worker without a store on gocloudpubsub, which settles past gocloud
//	acks        the same without the queue's URL: gocloud acks
//	noprefetch  the first again, on a subscription that receives nothing ahead
//	awssqs      a Worker on our own driver
//	types       our own driver behind gocloud's types: Receive and Ack as in the first
func BenchmarkGocloudSQS(b *testing.B) {
	addr := start(b, "sqs")
	const pollers, jobs = 16, 1000
	cfg := onceq.WorkerConfig{Pollers: pollers, Concurrency: 4 * pollers, Prefetch: 6 * pollers}
	ahead := &awssnssqs.SubscriptionOptions{Raw: true, WaitTime: time.Second, ReceiveBatcherOptions: batcher.Options{MaxHandlers: pollers}}
	none := &awssnssqs.SubscriptionOptions{Raw: true, WaitTime: time.Second, ReceiveBatcherOptions: gocloudpubsub.NoPrefetch()}
	vs := []variant{
		{"gocloud", filled(addr, gocloudOn(pollers, ahead))},
		{"onceq", filled(addr, gocloudWorker(cfg, ahead, true))},
		{"acks", filled(addr, gocloudWorker(cfg, ahead, false))},
		{"noprefetch", filled(addr, gocloudWorker(cfg, none, true))},
		{"awssqs", filled(addr, worker(cfg))},
		{"types", filled(addr, gocloudTypes(pollers))},
	}
	b.ResetTimer()
	cs := compare(b, rounds, jobs, vs, func() int64 { return requestsOf(b, addr) })
	b.ReportMetric(0, "ns/op")
	for i, v := range vs {
		b.ReportMetric(1e9/cs[i].wall, v.name+"-jobs/s")
		b.ReportMetric(cs[i].allocs, v.name+"-allocs/job")
		b.ReportMetric(cs[i].requests, v.name+"-requests/job")
		b.ReportMetric(cs[i].cpu/1e3, v.name+"-cpu-µs/job")
	}
}

// gocloudTypes is our driver for those who receive through gocloud.
func gocloudTypes(pollers int) func(testing.TB, sqsWork) (stop func()) {
	return func(tb testing.TB, w sqsWork) func() {
		tb.Helper()
		s, err := onceqpubsub.OpenSubscription(w.q.broker(tb, w.q.client(w.options)), &onceqpubsub.SubscriptionOptions{
			ReceiveBatcherOptions: batcher.Options{MaxHandlers: pollers},
		})
		if err != nil {
			tb.Fatal(err)
		}
		return receiveThrough(tb, s, pollers, w.work)
	}
}

// gocloudWorker is ours, without a store, on gocloud's driver.
func gocloudWorker(cfg onceq.WorkerConfig, receives *awssnssqs.SubscriptionOptions, known bool) func(testing.TB, sqsWork) (stop func()) {
	return func(tb testing.TB, w sqsWork) func() {
		tb.Helper()
		c := w.q.client(w.options)
		open := func(ctx context.Context) (*pubsub.Subscription, error) {
			return awssnssqs.OpenSubscription(ctx, c, w.q.url, receives), nil
		}
		sub, err := open(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		o := gocloudpubsub.Options{Reopen: open, Visibility: 30 * time.Second}
		if known {
			o.Queue = w.q.url
		}
		queue, err := gocloudpubsub.New(nil, sub, o)
		if err != nil {
			tb.Fatal(err)
		}
		stop := runWorker(tb, queue, onceq.NoStore, cfg, w.work)
		return func() {
			stop()
			if err := queue.Close(); err != nil {
				tb.Error(err)
			}
		}
	}
}
