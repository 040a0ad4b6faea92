package bench

import (
	"context"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"gocloud.dev/pubsub/batcher"
	peer "gocloud.dev/pubsub/gcppubsub"
	"google.golang.org/api/option"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// rawPubSub is what a careful programmer writes for one program: pull a thousand, handle them, ack
// them together.
func rawPubSub(pollers int) pubsubStart {
	return func(tb testing.TB, w pubsubWork) func() {
		tb.Helper()
		c := subscriber(tb, w.conn(tb))
		ctx, cancel := context.WithCancel(tb.Context())
		var loops sync.WaitGroup
		for range pollers {
			loops.Go(func() {
				for {
					got, err := c.Pull(ctx, &pubsubpb.PullRequest{Subscription: w.q.subscription, MaxMessages: 1000})
					if err != nil {
						if ctx.Err() == nil {
							tb.Error(err)
						}
						return
					}
					if len(got.ReceivedMessages) == 0 {
						continue
					}
					ids := make([]string, len(got.ReceivedMessages))
					for i, m := range got.ReceivedMessages {
						w.handle(m.Message.Data)
						ids[i] = m.AckId
					}
					if err := c.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: w.q.subscription, AckIds: ids}); err != nil && ctx.Err() == nil {
						tb.Error(err)
					}
				}
			})
		}
		return func() { cancel(); loops.Wait() }
	}
}

// receivePubSub is Google's own loop.
func receivePubSub(outstanding int) pubsubStart {
	return func(tb testing.TB, w pubsubWork) func() {
		tb.Helper()
		c, err := pubsub.NewClient(tb.Context(), pubsubProject, option.WithGRPCConn(w.conn(tb)))
		if err != nil {
			tb.Fatal(err)
		}
		s := c.Subscriber(w.q.subscription)
		s.ReceiveSettings.MaxOutstandingMessages = outstanding
		ctx, cancel := context.WithCancel(tb.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- s.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
				w.handle(m.Data)
				m.Ack()
			})
		}()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				tb.Error(err)
			}
		}
	}
}

// gocloudPubSub receives in as many goroutines, and at most as many requests at once.
func gocloudPubSub(pollers int) pubsubStart {
	return func(tb testing.TB, w pubsubWork) func() {
		tb.Helper()
		c, err := peer.SubscriberClient(tb.Context(), w.conn(tb))
		if err != nil {
			tb.Fatal(err)
		}
		s, err := peer.OpenSubscriptionByPath(c, w.q.subscription, &peer.SubscriptionOptions{
			ReceiveBatcherOptions: batcher.Options{MaxBatchSize: 1000, MaxHandlers: pollers},
		})
		if err != nil {
			tb.Fatal(err)
		}
		return receiveThrough(tb, s, pollers, w.work)
	}
}

// noStore is a store's constructor for workers without one.
func noStore(*memstore.Options) (dedupe.Store, error) { return onceq.NoStore, nil }

// pubsubWorker is ours, with a new store for each run.
func pubsubWorker[S dedupe.Store](open func(*memstore.Options) (S, error), cfg onceq.WorkerConfig) pubsubStart {
	return func(tb testing.TB, w pubsubWork) func() {
		tb.Helper()
		st, err := open(nil)
		if err != nil {
			tb.Fatal(err)
		}
		api, err := gcppubsub.Dial(tb.Context(), w.counted()...)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { api.Close() })
		queue, err := gcppubsub.New(api, "", w.q.subscription, nil)
		if err != nil {
			tb.Fatal(err)
		}
		return runWorker(tb, queue, st, cfg, w.work)
	}
}
