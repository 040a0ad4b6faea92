package awssqs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/sqsfake"
)

// exampleClient stands for sqs.NewFromConfig: the examples run on a server in memory.
func exampleClient(queues ...string) *sqs.Client {
	s := sqsfake.New(nil)
	for _, q := range queues {
		if _, err := s.CreateQueue(q, nil); err != nil {
			log.Fatal(err)
		}
	}
	return sqs.New(sqs.Options{
		BaseEndpoint: &s.URL, HTTPClient: s.Client(), Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}

func open(ctx context.Context, client *sqs.Client, name string, o *awssqs.Options) *awssqs.Broker {
	url, err := awssqs.Find(ctx, client, name)
	if err != nil {
		log.Fatal(err)
	}
	b, err := awssqs.New(client, url, o)
	if err != nil {
		log.Fatal(err)
	}
	return b
}

// A worker on a queue, with a dead-letter queue beside it.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	client := exampleClient("orders", "orders-dead")
	orders := open(ctx, client, "orders", &awssqs.Options{ReceiveGrace: -1}) // stop at once: an example has no time
	letters := open(ctx, client, "orders-dead", nil)
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}

	m := broker.Outgoing{Body: []byte("42 cents"), Meta: &broker.Meta{Key: "order-7"}}
	if err := onceq.SendOne(ctx, orders, &m); err != nil {
		log.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			fmt.Printf("charged %s for %s\n", j.Message.Body, j.Key().Key)
			return nil
		}),
		Store: store, Scope: "orders",
	})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := p.Worker(orders, onceq.WorkerConfig{DeadLetter: letters})
	if err != nil {
		log.Fatal(err)
	}
	done, cancel := context.WithCancel(ctx)
	go func() { // until the message is acked
		for orders.Stats().Acked < 1 && ctx.Err() == nil {
			<-time.After(10 * time.Millisecond)
		}
		cancel()
	}()
	if err := worker.Run(done); err != nil {
		log.Fatal(err)
	}
	// Output: charged 42 cents for order-7
}

// What does not fit the way a queue is used, in sentences for a start-up log.
func ExampleBroker_Check() {
	ctx := context.Background()
	orders := open(ctx, exampleClient("orders"), "orders", nil)
	setup, problems, err := orders.Check(ctx, awssqs.CheckOptions{KeepInQueue: true, Retention: 72 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("messages are kept for", setup.Retention)
	for _, p := range problems {
		fmt.Println("-", p)
	}
	// Output:
	// messages are kept for 96h0m0s
	// - dead letters are left to the queue, and it has no redrive policy: a job that cannot be done comes back until the queue drops it after 96h0m0s
	// - the workers keep their records for 72h0m0s, and a message may spend 96h0m0s in the queue and its dead-letter queue: a late replay would be unproven
}

// A notification of a bucket, without a producer of ours: Unwrap gives it an id and a type, so that
// a Mux finds its handler and a repeated one is the same job.
func ExampleOptions() {
	ctx := context.Background()
	client := exampleClient("uploads")
	uploads := open(ctx, client, "uploads", &awssqs.Options{Unwrap: awssqs.S3})
	body := `{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put","eventTime":"2026-11-21T08:00:00Z",
		"s3":{"bucket":{"name":"photos"},"object":{"key":"cat.jpg","sequencer":"0055AED6DCD90281E5"}}}]}`
	url := uploads.URL()
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}); err != nil {
		log.Fatal(err)
	}
	ms, err := uploads.Receive(ctx, broker.ReceiveOptions{Max: 10, Wait: -1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ms[0].Meta.Type, ms[0].Meta.ID)
	// Output: s3:ObjectCreated:Put s3:bec684f2c47b8c67f7480c7e98c34022
}

// How many requests the messages took.
func ExampleBroker_Stats() {
	ctx := context.Background()
	orders := open(ctx, exampleClient("orders"), "orders", nil)
	if err := onceq.Send(ctx, orders, make([]broker.Outgoing, 10)); err != nil {
		log.Fatal(err)
	}
	// One receive may bring fewer than there are, so it is made until all have come. It waits: one
	// that does not may bring nothing of them.
	for orders.Stats().Acked < 10 {
		ms, err := orders.Receive(ctx, broker.ReceiveOptions{Max: 10, Wait: -1, Visibility: time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		var rs []broker.Receipt
		for _, m := range ms {
			rs = append(rs, m.Receipt)
		}
		if err := orders.Ack(ctx, rs); err != nil {
			log.Fatal(err)
		}
	}
	s := orders.Stats()
	fmt.Printf("%d sent and %d acked with %d, %d and %d requests, %.1f a message to receive and ack\n", s.Sent, s.Acked, s.Sends, s.Receives, s.Acks, s.PerMessage())
	// Output: 10 sent and 10 acked with 1, 1 and 1 requests, 0.2 a message to receive and ack
}
