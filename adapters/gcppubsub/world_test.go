package gcppubsub_test

import (
	"context"
	"testing"
	"testing/synctest"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
)

// world is a server with a topic, its subscription, a dead-letter topic and a store, for workers
// that come and go in virtual time.
type world struct {
	*rig.World
	kind
	srv                *pubsubfake.Server
	topic, sub         string
	deadTopic, deadSub string
	queue, letters     *gcppubsub.Broker // the test's own
}

// inWorld runs f with each kind of subscription.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { inWorldOf(t, k, nil, f) })
	}
}

func inWorldOf(t *testing.T, k kind, set func(*pubsubpb.Subscription), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{World: rig.NewWorld(t), kind: k, srv: fake(t, pubsubfake.Options{})}
		w.topic, w.deadTopic = makeTopic(t, w.srv, project), makeTopic(t, w.srv, project)
		w.deadSub = makeSubscription(t, w.srv, project, w.deadTopic, nil)
		w.sub = makeSubscription(t, w.srv, project, w.topic, func(s *pubsubpb.Subscription) {
			k.set(s)
			s.AckDeadlineSeconds = 10
			if set != nil {
				set(s)
			}
		})
		w.queue = makeBroker(t, w.srv, w.topic, w.sub, w.options())
		w.letters = makeBroker(t, w.srv, w.deadTopic, w.deadSub, nil)
		w.Sender = w.queue
		w.Set = func(c *rig.Config) { c.Retention = 60 * day }
		w.Queues = func(p *onceqtest.Process) (queue, letters broker.Broker) {
			return makeBroker(t, mortalAPI{p, w.srv}, w.topic, w.sub, w.options()), makeBroker(t, mortalAPI{p, w.srv}, w.deadTopic, w.deadSub, nil)
		}
		f(w)
	})
}

func (w *world) options() *gcppubsub.Options { return &gcppubsub.Options{Ordered: w.ordered} }

// mortalAPI lets a process's calls out while it lives.
type mortalAPI struct {
	p   *onceqtest.Process
	srv *pubsubfake.Server
}

func alive[In, Out any](ctx context.Context, p *onceqtest.Process, in In, do func(context.Context, In) (Out, error)) (out Out, err error) {
	err = p.Call(ctx, "api", func(ctx context.Context) (err error) {
		out, err = do(ctx, in)
		return err
	})
	if err != nil {
		return *new(Out), err
	}
	return out, nil
}

func (a mortalAPI) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return alive(ctx, a.p, in, a.srv.Publish)
}

func (a mortalAPI) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	return alive(ctx, a.p, in, a.srv.Pull)
}

func (a mortalAPI) Acknowledge(ctx context.Context, in *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	return alive(ctx, a.p, in, a.srv.Acknowledge)
}

func (a mortalAPI) ModifyAckDeadline(ctx context.Context, in *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	return alive(ctx, a.p, in, a.srv.ModifyAckDeadline)
}

func (a mortalAPI) GetSubscription(ctx context.Context, in *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return alive(ctx, a.p, in, a.srv.GetSubscription)
}

func (a mortalAPI) GetTopic(ctx context.Context, in *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	return alive(ctx, a.p, in, a.srv.GetTopic)
}

func (a mortalAPI) GetIamPolicy(ctx context.Context, in *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	return alive(ctx, a.p, in, a.srv.GetIamPolicy)
}

func numbers(n int) []string { return rig.Numbers(0, n) }

// once checks that each of n jobs has had its effect once, and that nothing is left.
func (w *world) once(n int) {
	w.Helper()
	w.Once(n)
	w.empty(w.sub)
	w.empty(w.deadSub)
}

// empty checks that a subscription has no message, in a lease or out of one.
func (w *world) empty(sub string) {
	w.Helper()
	if st := w.srv.Stats(sub); st.Unacked() > 0 {
		w.Errorf("%s is not empty: %+v", sub, st)
	}
}

// deliveredOnce checks that nothing was delivered twice.
func (w *world) deliveredOnce(n int) {
	w.Helper()
	got := w.srv.Deliveries(w.sub)
	if len(got) != n {
		w.Errorf("%d messages were delivered, want %d", len(got), n)
	}
	for id, times := range got {
		if times != 1 {
			w.Errorf("message %s was delivered %d times", id, times)
		}
	}
}
