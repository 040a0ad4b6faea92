package pubsubfake_test

import (
	"context"
	"strconv"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

// BenchmarkCycle publishes, pulls and acks 256 bytes, in batches, while so many other messages of
// the subscription are held and as many wait. A message costs the same however many there are.
func BenchmarkCycle(b *testing.B) {
	for _, backlog := range []int{0, 100_000} {
		for _, batch := range []int{1, 100, 1000} {
			b.Run("backlog="+strconv.Itoa(backlog)+"/batch="+strconv.Itoa(batch), func(b *testing.B) {
				s := pubsubfake.New(nil)
				defer s.Close()
				benchmarkCycle(b, s, backlog, batch)
			})
		}
	}
}

// BenchmarkCycleOverGRPC is BenchmarkCycle over the loopback interface.
func BenchmarkCycleOverGRPC(b *testing.B) {
	_, address := pubsubfake.Start(b, nil)
	conn, err := dial(address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	benchmarkCycle(b, clients(conn), 0, 1000)
}

func benchmarkCycle(b *testing.B, s api, backlog, batch int) {
	b.Helper()
	ctx := context.Background()
	r := &rig{Judge: b, api: s, project: "projects/b" + strconv.Itoa(b.N)}
	topic, sub := r.pair(func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 600 })
	ms := make([]*pubsubpb.PubsubMessage, batch)
	for i := range ms {
		ms[i] = &pubsubpb.PubsubMessage{Data: make([]byte, 256)}
	}
	cycle := func(ack bool) {
		if _, err := s.Publish(ctx, &pubsubpb.PublishRequest{Topic: topic, Messages: ms}); err != nil {
			b.Fatal(err)
		}
		got, err := s.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: int32(batch)})
		if err != nil || len(got.ReceivedMessages) == 0 {
			b.Fatalf("pulled %d, %v", len(got.GetReceivedMessages()), err)
		}
		if ack {
			if _, err := s.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: sub, AckIds: ackIDs(got.ReceivedMessages)}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for range backlog / batch {
		cycle(false)
	}
	for range backlog / batch {
		if _, err := s.Publish(ctx, &pubsubpb.PublishRequest{Topic: topic, Messages: ms}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		cycle(true)
	}
}
