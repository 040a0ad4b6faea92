package matrix

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

// onPubSub puts a backend's queues on Pub/Sub: on our own server, in the same process. There, too,
// a pull goes on when its caller has died, and hides what it finds. What the service leaves to
// chance is drawn anew in each cell.
func (b *backend) onPubSub(set gcppubsub.Options, exactlyOnce bool) *backend {
	b.plain = true
	// A delivery lasts 10 s at least, so what shall outlive it takes longer.
	b.visibility, b.long = 10*time.Second, 12*time.Second
	b.queues = func(t testing.TB, _ *backend) queues {
		q := &pubsubQueues{srv: pubsubfake.New(&pubsubfake.Options{StrandCancelled: true, LogSize: -1}), o: set}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("what pubsubfake has drawn plays again with Options.Seed %d", q.srv.Seed())
			}
			q.srv.Close()
		})
		for _, name := range []string{"queue", "letters"} {
			topic := &pubsubpb.Topic{Name: "projects/onceq/topics/" + name}
			sub := &pubsubpb.Subscription{
				Name: "projects/onceq/subscriptions/" + name, Topic: topic.Name, AckDeadlineSeconds: 10,
				EnableMessageOrdering: set.Ordered, EnableExactlyOnceDelivery: exactlyOnce,
			}
			if _, err := q.srv.CreateTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			if _, err := q.srv.CreateSubscription(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
		}
		return q
	}
	switch {
	case set.Ordered:
		b.name, b.group = "pubsub-ordered/"+b.name, "account-1"
	case exactlyOnce:
		b.name = "pubsub-exactly-once/" + b.name
	default:
		b.name = "pubsub/" + b.name
	}
	return b
}

type pubsubQueues struct {
	srv *pubsubfake.Server
	o   gcppubsub.Options
}

func (q *pubsubQueues) connect(p *onceqtest.Process) (es ends, err error) {
	if es.queue, err = q.end("queue", p); err != nil {
		return es, err
	}
	es.letters, err = q.end("letters", p)
	return es, err
}

func (q *pubsubQueues) end(name string, p *onceqtest.Process) (end, error) {
	sub := "projects/onceq/subscriptions/" + name
	b, err := gcppubsub.New(line{q.srv, p}, "projects/onceq/topics/"+name, sub, &q.o)
	return counted{b, q.srv, sub}, err
}

// counted tells how much is there, which Pub/Sub itself does not.
type counted struct {
	*gcppubsub.Broker
	srv *pubsubfake.Server
	sub string
}

func (c counted) Depth(context.Context) (broker.Depth, error) {
	s := c.srv.Stats(c.sub)
	return broker.Depth{Visible: int64(s.Ready + s.Blocked), InFlight: int64(s.Held), Delayed: int64(s.Delayed)}, nil
}

// line carries a process's calls, and ends with it.
type line struct {
	srv *pubsubfake.Server
	p   *onceqtest.Process
}

func carry[In, Out any](ctx context.Context, p *onceqtest.Process, in In, do func(context.Context, In) (Out, error)) (Out, error) {
	if p == nil {
		return do(ctx, in)
	}
	ctx, cancel := context.WithCancel(p.Context(ctx))
	defer cancel()
	out, err := do(ctx, in)
	if err == nil && ctx.Err() != nil { // the process died while the answer was on its way
		return out, context.Cause(ctx)
	}
	return out, err
}

func (l line) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return carry(ctx, l.p, in, l.srv.Publish)
}

func (l line) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	return carry(ctx, l.p, in, l.srv.Pull)
}

func (l line) Acknowledge(ctx context.Context, in *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	return carry(ctx, l.p, in, l.srv.Acknowledge)
}

func (l line) ModifyAckDeadline(ctx context.Context, in *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	return carry(ctx, l.p, in, l.srv.ModifyAckDeadline)
}

func (l line) GetSubscription(ctx context.Context, in *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return carry(ctx, l.p, in, l.srv.GetSubscription)
}

func (l line) GetTopic(ctx context.Context, in *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	return carry(ctx, l.p, in, l.srv.GetTopic)
}

func (l line) GetIamPolicy(ctx context.Context, in *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	return carry(ctx, l.p, in, l.srv.GetIamPolicy)
}
