package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/broker"
)

// source is a queue that tells how it dead-letters by itself. The drivers of both services do.
type source interface {
	broker.Broker
	broker.Redriver
}

// queues are what the worker receives from, and where its dead letters go.
type queues struct {
	name  string
	from  source
	dead  broker.Sender
	close func()
}

// openQueues opens those of SQS or of Pub/Sub, and logs what their settings would lose.
func openQueues(ctx context.Context, s settings, log *slog.Logger) (queues, error) {
	open := openSQS
	if s.subscription != "" {
		open = openPubSub
	}
	q, problems, err := open(ctx, s, log)
	for _, p := range problems {
		log.Warn("queue", "problem", p)
	}
	return q, err
}

// unread logs that the settings could not be read. That is no reason to stay away: the permission
// may be missing, and Run asks the queue itself.
func unread(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("the queue's settings could not be read", "error", err)
	}
}

// newClient is SQS's, with the keys of the environment, or of the task's or the pod's role, which
// the SDK finds and renews.
func newClient(ctx context.Context, s settings) (*sqs.Client, error) {
	from := []func(*config.LoadOptions) error{config.WithRegion(s.region)}
	if s.anyKeys {
		from = append(from, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("test", "test", "")))
	}
	c, err := config.LoadDefaultConfig(ctx, from...)
	if err != nil {
		return nil, err
	}
	return sqs.NewFromConfig(c, func(o *sqs.Options) { o.BaseEndpoint = s.endpoint }), nil
}

func openSQS(ctx context.Context, s settings, log *slog.Logger) (queues, []string, error) {
	client, err := newClient(ctx, s)
	if err != nil {
		return queues{}, nil, err
	}
	queue, err := awssqs.New(client, s.queue, &awssqs.Options{LongPoll: s.longPoll})
	if err != nil {
		return queues{}, nil, fmt.Errorf("QUEUE_URL: %w", err)
	}
	dead, err := awssqs.New(client, s.dead, nil)
	if err != nil {
		return queues{}, nil, fmt.Errorf("DEAD_LETTER_QUEUE_URL: %w", err)
	}
	_, problems, err := queue.Check(ctx, awssqs.CheckOptions{MaxAttempts: onceq.DefaultMaxAttempts, Retention: onceq.DefaultRetention})
	unread(log, err)
	return queues{queue.Name(), queue, dead, func() {}}, problems, nil
}

// openPubSub signs in as the service account of the pod or the worker pool, which Google's client
// finds. PUBSUB_EMULATOR_HOST names a server for tests.
func openPubSub(ctx context.Context, s settings, log *slog.Logger) (queues, []string, error) {
	api, err := gcppubsub.Dial(ctx)
	if err != nil {
		return queues{}, nil, err
	}
	q, problems, err := openPubSubWith(ctx, api, s, log)
	if err != nil {
		_ = api.Close()
	}
	return q, problems, err
}

func openPubSubWith(ctx context.Context, api *gcppubsub.Clients, s settings, log *slog.Logger) (queues, []string, error) {
	queue, err := gcppubsub.New(api, "", s.subscription, &gcppubsub.Options{LongPoll: s.longPoll})
	if err != nil {
		return queues{}, nil, fmt.Errorf("SUBSCRIPTION: %w", err)
	}
	dead, err := gcppubsub.New(api, s.deadTopic, "", nil)
	if err != nil {
		return queues{}, nil, fmt.Errorf("DEAD_LETTER_TOPIC: %w", err)
	}
	_, problems, err := queue.Check(ctx, gcppubsub.CheckOptions{
		MaxAttempts: onceq.DefaultMaxAttempts, Retention: onceq.DefaultRetention, Visibility: onceq.DefaultVisibility,
	})
	unread(log, err)
	return queues{s.subscription, queue, dead, func() { _ = api.Close() }}, problems, nil
}
