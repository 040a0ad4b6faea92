package gocloudpubsub_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/sqsfake"
)

// TestConformanceSQS checks the Broker on gocloud's SQS driver and the strict server, in virtual
// time.
func TestConformanceSQS(t *testing.T) {
	for _, c := range []struct {
		name  string
		fifo  bool
		stale sqsfake.StaleHandles
	}{{"standard", false, sqsfake.StaleWork}, {"standard-void", false, sqsfake.StaleIgnored}, {"fifo", true, sqsfake.StaleRandom}} {
		t.Run(c.name, func(t *testing.T) {
			h := onSQS(c.fifo, true, func(t testing.TB) *sqs.Client {
				return testaws.FakeClient(testaws.FakeSQS(t, &sqsfake.Options{StaleHandles: c.stale}))
			})
			virtual(&h)
			h.Slack = time.Second + time.Millisecond
			h.StaleReceiptsVoid = c.stale != sqsfake.StaleWork
			brokertest.Run(t, h)
		})
	}
}

// TestConformanceSQSByGocloud checks the Broker without the queue's URL: gocloud alone settles.
func TestConformanceSQSByGocloud(t *testing.T) {
	h := onSQS(false, false, func(t testing.TB) *sqs.Client { return testaws.FakeClient(testaws.FakeSQS(t, nil)) })
	virtual(&h)
	h.Slack = 2*time.Second + time.Millisecond // gocloud nacks for a second
	brokertest.Run(t, h)
}

// TestConformanceSQSServer checks the Broker on LocalStack, in real time.
func TestConformanceSQSServer(t *testing.T) {
	proof.Only(t, "gocloudpubsub: the contract's suite on LocalStack")
	s := testaws.NewSQS(t)
	if s.Kind == "sqsfake" {
		t.Skip("the other tests are run on sqsfake")
	}
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			h := onSQS(fifo, true, func(t testing.TB) *sqs.Client { return s.Client(t) })
			h.Visibility = 12 * time.Second // a busy server takes 0.3 s for a message, one by one
			b := h.Missing(t)
			h.Missing = nil // the suite's Receive has a second, and a busy server takes longer
			brokertest.Run(t, h)
			if _, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1}); !errors.Is(err, broker.ErrNotFound) {
				t.Errorf("Receive on a queue that is not there was answered: %v", err)
			}
			if _, err := b.Send(t.Context(), []broker.Outgoing{{Body: []byte("a"), Group: "g"}}); !errors.Is(broker.ErrAt(err, 0), broker.ErrNotFound) {
				t.Errorf("Send on a queue that is not there was answered: %v", err)
			}
		})
	}
}

// virtual runs the cases in bubbles.
func virtual(h *brokertest.Harness) {
	h.Virtual = true
	h.Known["receive-wait"] = "a Receive with a Wait of 0 waits for a second, because gocloud receives in the background"
}

func onSQS(fifo, known bool, client func(testing.TB) *sqs.Client) brokertest.Harness {
	h := brokertest.Harness{
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			return openSQS(t, client(t), fifo, known, o)
		},
		Missing: func(t testing.TB) broker.Broker {
			c := client(t)
			url := testaws.MakeQueue(t, c, fifo, nil)
			if _, err := c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				t.Fatal(err)
			}
			return brokerOnSQS(t, c, url, gocloudpubsub.Options{Queue: url, Visibility: time.Second})
		},
		Known: map[string]string{},
	}
	if fifo {
		h.DedupWindow = 5 * time.Minute
	}
	return h
}

func openSQS(t testing.TB, c *sqs.Client, fifo, known bool, o brokertest.QueueOptions) brokertest.Queue {
	as := map[string]string{string(types.QueueAttributeNameVisibilityTimeout): inSeconds(o.Visibility)}
	var q brokertest.Queue
	if o.MaxReceives > 0 {
		url := testaws.MakeQueue(t, c, fifo, as)
		// The letters are read by our own driver: it sees what gocloud's reader would see.
		letters := must.Get(awssqs.New(c, url, &awssqs.Options{LongPoll: 20 * time.Second}))
		q.DeadLetters = letters
		as["RedrivePolicy"] = testaws.Redrives(t, c, url, o.MaxReceives)
	}
	url := testaws.MakeQueue(t, c, fifo, as)
	options := gocloudpubsub.Options{Ordered: fifo}
	if options.Queue = url; !known {
		options.Queue, options.Visibility = "", o.Visibility
	}
	b := brokerOnSQS(t, c, url, options)
	q.Broker, q.Close = b, b.Close
	t.Cleanup(func() {
		// What gocloud receives after the last Receive would leave a goroutine of it waiting for
		// ever.
		if _, err := c.DeleteQueue(context.WithoutCancel(t.Context()), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			t.Error(err)
		}
	})
	q.SendRaw = testaws.RawSends(c, url)
	return q
}

func brokerOnSQS(t testing.TB, c *sqs.Client, url string, o gocloudpubsub.Options) *gocloudpubsub.Broker {
	t.Helper()
	o.Reopen = func(ctx context.Context) (*pubsub.Subscription, error) { return subscribeSQS(ctx, c, url), nil }
	return makeBroker(t, awssnssqs.OpenSQSTopic(t.Context(), c, url, nil), subscribeSQS(t.Context(), c, url), o)
}

func subscribeSQS(ctx context.Context, c *sqs.Client, url string) *pubsub.Subscription {
	return awssnssqs.OpenSubscription(ctx, c, url, &awssnssqs.SubscriptionOptions{
		WaitTime: time.Second, ReceiveBatcherOptions: gocloudpubsub.NoPrefetch(),
	})
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
