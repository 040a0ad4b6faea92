package bench

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	watermillsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// raw is what a careful programmer writes for one program: receive ten, handle them, delete them
// together.
func raw(pollers int) func(testing.TB, sqsWork) (stop func()) {
	return func(tb testing.TB, w sqsWork) func() {
		tb.Helper()
		c := w.q.client(w.options)
		ctx, cancel := context.WithCancel(tb.Context())
		var loops sync.WaitGroup
		for range pollers {
			loops.Go(func() {
				if err := rawLoop(ctx, c, w); err != nil && ctx.Err() == nil {
					tb.Error(err)
				}
			})
		}
		return func() { cancel(); loops.Wait() }
	}
}

func rawLoop(ctx context.Context, c *sqs.Client, w sqsWork) error {
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &w.q.url, MaxNumberOfMessages: 10, WaitTimeSeconds: 8, VisibilityTimeout: 30, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"ApproximateReceiveCount", "SentTimestamp", "MessageGroupId"},
	}
	for {
		out, err := c.ReceiveMessage(ctx, in)
		if err != nil {
			return err
		}
		if len(out.Messages) == 0 {
			continue
		}
		del := &sqs.DeleteMessageBatchInput{QueueUrl: &w.q.url, Entries: make([]types.DeleteMessageBatchRequestEntry, len(out.Messages))}
		for i, m := range out.Messages {
			w.handle([]byte(*m.Body))
			del.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: m.MessageId, ReceiptHandle: m.ReceiptHandle}
		}
		if _, err := c.DeleteMessageBatch(ctx, del); err != nil {
			return err
		}
	}
}

// worker is ours, without a store.
func worker(cfg onceq.WorkerConfig) func(testing.TB, sqsWork) (stop func()) {
	return workerOn(onceq.NoStore, cfg)
}

func workerOn(st dedupe.Store, cfg onceq.WorkerConfig) func(testing.TB, sqsWork) (stop func()) {
	return func(tb testing.TB, w sqsWork) func() {
		tb.Helper()
		return runWorker(tb, w.q.broker(tb, w.q.client(w.options)), st, cfg, w.work)
	}
}

// leanWorker is worker on the lean transport. That makes its calls without the SDK's middleware, so
// the deletes are counted as they pass.
func leanWorker(cfg onceq.WorkerConfig) func(testing.TB, sqsWork) (stop func()) {
	return func(tb testing.TB, w sqsWork) func() {
		tb.Helper()
		c := w.q.client(func(o *sqs.Options) {
			plain := o.HTTPClient.(*awshttp.BuildableClient).GetTransport()
			o.HTTPClient = &http.Client{Transport: passing{plain, w.acked}}
		})
		q, err := awssqs.New(c, w.q.url, &awssqs.Options{ReceiveGrace: -1, Transport: awssqs.TransportLean})
		if err != nil {
			tb.Fatal(err)
		}
		return runWorker(tb, q, onceq.NoStore, cfg, w.work)
	}
}

// passing counts the messages of each delete that is answered with success.
type passing struct {
	http.RoundTripper
	acked func(n int)
}

func (p passing) RoundTrip(r *http.Request) (*http.Response, error) {
	n := 0
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".DeleteMessageBatch") {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		n = bytes.Count(b, []byte(`"ReceiptHandle"`))
	}
	res, err := p.RoundTripper.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusOK && n > 0 {
		p.acked(n)
	}
	return res, err
}

// runWorker lets a worker handle the work.
func runWorker(tb testing.TB, queue broker.Broker, st dedupe.Store, cfg onceq.WorkerConfig, w *work) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			w.handle(j.Message.Body)
			return nil
		}),
		Store: st, Scope: "bench", Logger: slog.New(slog.DiscardHandler), Defaults: onceq.JobOptions{MaxAttempts: -1},
	})
	if err != nil {
		tb.Fatal(err)
	}
	cfg.DeadLetter = onceq.KeepInQueue
	run, err := p.Worker(queue, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Run(ctx) }()
	go func() {
		<-w.all
		cancel() // the last acks go out at once
	}()
	return func() {
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	}
}

// gocloud receives in as many goroutines, and at most as many requests at once.
func gocloud(pollers int) func(testing.TB, sqsWork) (stop func()) {
	return gocloudOn(pollers, &awssnssqs.SubscriptionOptions{Raw: true, ReceiveBatcherOptions: batcher.Options{MaxHandlers: pollers}})
}

func gocloudOn(pollers int, o *awssnssqs.SubscriptionOptions) func(testing.TB, sqsWork) (stop func()) {
	return func(tb testing.TB, w sqsWork) func() {
		tb.Helper()
		return receiveThrough(tb, awssnssqs.OpenSubscription(tb.Context(), w.q.client(w.options), w.q.url, o), pollers, w.work)
	}
}

// receiveThrough lets as many goroutines receive and ack through a subscription of gocloud's.
func receiveThrough(tb testing.TB, s *pubsub.Subscription, pollers int, w *work) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var loops sync.WaitGroup
	for range pollers {
		loops.Go(func() {
			for {
				m, err := s.Receive(ctx)
				if err != nil {
					if ctx.Err() == nil {
						tb.Error(err)
					}
					return
				}
				w.handle(m.Body)
				m.Ack()
			}
		})
	}
	return func() {
		cancel()
		loops.Wait()
		if err := s.Shutdown(context.Background()); err != nil {
			tb.Error(err)
		}
	}
}

// watermills has as many subscriptions, for each receives by itself; they receive ten, where one is
// the default.
func watermills(pollers int) func(testing.TB, sqsWork) (stop func()) {
	return func(tb testing.TB, w sqsWork) func() {
		tb.Helper()
		s, err := watermillsqs.NewSubscriber(watermillsqs.SubscriberConfig{
			AWSConfig: aws.Config{Credentials: aws.CredentialsProviderFunc(credentials)}, OptFns: []func(*sqs.Options){w.options},
			GenerateReceiveMessageInput: func(ctx context.Context, url watermillsqs.QueueURL) (*sqs.ReceiveMessageInput, error) {
				in, err := watermillsqs.GenerateReceiveMessageInputDefault(ctx, url)
				if err == nil {
					in.MaxNumberOfMessages = 10
				}
				return in, err
			},
		}, watermill.NopLogger{})
		if err != nil {
			tb.Fatal(err)
		}
		var loops sync.WaitGroup
		for range pollers {
			ms, err := s.Subscribe(tb.Context(), w.q.name)
			if err != nil {
				tb.Fatal(err)
			}
			loops.Go(func() {
				for m := range ms {
					w.handle(m.Payload)
					m.Ack()
				}
			})
		}
		return func() {
			if err := s.Close(); err != nil {
				tb.Error(err)
			}
			loops.Wait()
		}
	}
}
