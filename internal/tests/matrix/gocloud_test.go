package matrix

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/sqsfake"
)

// onGocloud puts a backend's queues on SQS, behind gocloud's driver of it. gocloud receives on
// goroutines of its own, which go on when a process has died, until their request fails.
//
// alone leaves it to gocloud to settle, and to receive ahead: its acks have no answer, its nacks no
// delay, and a delivery is not extended.
func (b *backend) onGocloud(alone bool) *backend {
	b.plain, b.queues = true, func(t testing.TB, _ *backend) queues {
		q := &gocloudQueues{t: t, alone: alone, visibility: b.visibility, srv: sqsfake.New(&sqsfake.Options{StrandCancelled: true, LogSize: -1, Seed: *seed})}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("it plays again with -sqs.seed=%d", q.srv.Seed())
			}
			q.srv.Close()
		})
		for name, url := range map[string]*string{"queue": &q.url, "letters": &q.lettersURL} {
			var err error
			as := map[string]string{"VisibilityTimeout": strconv.Itoa(int(b.visibility / time.Second))}
			if *url, err = q.srv.CreateQueue(name, as); err != nil {
				t.Fatal(err)
			}
		}
		return q
	}
	if b.name = "gocloud/" + b.name; alone {
		b.name = "gocloud-alone/" + b.name[len("gocloud/"):]
	}
	return b
}

type gocloudQueues struct {
	t               testing.TB
	srv             *sqsfake.Server
	url, lettersURL string
	alone           bool
	visibility      time.Duration
}

func (q *gocloudQueues) connect(p *onceqtest.Process) (es ends, err error) {
	if es.queue, err = q.end(q.url, p); err != nil {
		return es, err
	}
	es.letters, err = q.end(q.lettersURL, p)
	return es, err
}

func (q *gocloudQueues) end(url string, p *onceqtest.Process) (end, error) {
	c := q.client(p)
	open := func(ctx context.Context) (*pubsub.Subscription, error) {
		o := &awssnssqs.SubscriptionOptions{Raw: true, WaitTime: time.Second}
		if !q.alone {
			o.ReceiveBatcherOptions = gocloudpubsub.NoPrefetch()
		}
		return awssnssqs.OpenSubscription(ctx, c, url, o), nil
	}
	o := gocloudpubsub.Options{Queue: url, Reopen: open}
	if q.alone {
		o.Queue, o.Visibility = "", q.visibility
	}
	sub, err := open(q.t.Context())
	if err != nil {
		return nil, err
	}
	b, err := gocloudpubsub.New(awssnssqs.OpenSQSTopic(q.t.Context(), c, url, nil), sub, o)
	if err != nil {
		return nil, err
	}
	q.t.Cleanup(func() {
		// A goroutine of gocloud waits for ever with what comes after the last Receive. So nothing
		// more may come.
		q.srv.Close()
		b.Close()
		<-time.After(time.Minute) // gocloud's last receive
	})
	direct, err := awssqs.New(q.client(nil), url, nil)
	return looked{b, direct}, err
}

func (q *gocloudQueues) client(p *onceqtest.Process) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &q.srv.URL, HTTPClient: wire{q.srv.Client(), p},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}

// looked tells what gocloud does not: how much is there.
type looked struct {
	*gocloudpubsub.Broker
	direct *awssqs.Broker
}

func (l looked) Depth(ctx context.Context) (broker.Depth, error) { return l.direct.Depth(ctx) }

func (l looked) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	return l.direct.Redrive(ctx)
}
