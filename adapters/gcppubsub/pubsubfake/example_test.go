package pubsubfake_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

const (
	exampleTopic = "projects/shop/topics/orders"
	exampleSub   = "projects/shop/subscriptions/worker"
)

// newExample is a server with a topic and a subscription.
func newExample() *pubsubfake.Server {
	srv := pubsubfake.New(nil)
	ctx := context.Background()
	if _, err := srv.CreateTopic(ctx, &pubsubpb.Topic{Name: exampleTopic}); err != nil {
		log.Fatal(err)
	}
	if _, err := srv.CreateSubscription(ctx, &pubsubpb.Subscription{Name: exampleSub, Topic: exampleTopic}); err != nil {
		log.Fatal(err)
	}
	return srv
}

// Called directly, the server needs no network: it works in a bubble of testing/synctest too.
func Example() {
	srv := newExample()
	defer srv.Close()
	ctx := context.Background()
	if _, err := srv.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: exampleTopic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("order 7")}},
	}); err != nil {
		log.Fatal(err)
	}
	got, err := srv.Pull(ctx, &pubsubpb.PullRequest{Subscription: exampleSub, MaxMessages: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", got.ReceivedMessages[0].Message.Data)
	fmt.Printf("%+v\n", srv.Stats(exampleSub))
	// Output:
	// order 7
	// {Ready:0 Held:1 Delayed:0 Blocked:0 Retained:0}
}

// Any client reaches the server over gRPC. A test would say pubsubfake.Start, and set
// PUBSUB_EMULATOR_HOST to its address for Google's own.
func ExampleServer_Serve() {
	srv := newExample()
	defer srv.Close()
	ctx := context.Background()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := srv.Serve(l); err != nil {
			log.Fatal(err)
		}
	}()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pubsubpb.NewPublisherClient(conn).Publish(ctx, &pubsubpb.PublishRequest{
		Topic: exampleTopic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("order 7")}},
	}); err != nil {
		log.Fatal(err)
	}
	got, err := pubsubpb.NewSubscriberClient(conn).Pull(ctx, &pubsubpb.PullRequest{Subscription: exampleSub, MaxMessages: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", got.ReceivedMessages[0].Message.Data)
	_ = conn.Close()
	// Output:
	// order 7
}

// The reply of the first ack is lost after it was applied.
func ExampleServer_SetFaults() {
	srv := newExample()
	defer srv.Close()
	ctx := context.Background()
	if _, err := srv.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: exampleTopic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("order 7")}},
	}); err != nil {
		log.Fatal(err)
	}
	got, err := srv.Pull(ctx, &pubsubpb.PullRequest{Subscription: exampleSub, MaxMessages: 10})
	if err != nil {
		log.Fatal(err)
	}

	srv.SetFaults(
		pubsubfake.Fault{Method: "Acknowledge", Count: 1, Code: codes.Unavailable, Applied: true},
		pubsubfake.Fault{Method: "Acknowledge", Delay: time.Millisecond},
	)
	ack := &pubsubpb.AcknowledgeRequest{Subscription: exampleSub, AckIds: []string{got.ReceivedMessages[0].AckId}}
	for range 2 {
		_, err = srv.Acknowledge(ctx, ack)
		fmt.Println(status.Code(err), srv.Stats(exampleSub).Unacked())
	}
	fmt.Println("calls:", srv.Counts()["Acknowledge"])
	// Output:
	// Unavailable 0
	// OK 0
	// calls: 2
}
