package gcppubsub_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/internal/must"
)

// admin makes topics and subscriptions.
type admin interface {
	gcppubsub.API
	CreateTopic(context.Context, *pubsubpb.Topic) (*pubsubpb.Topic, error)
	CreateSubscription(context.Context, *pubsubpb.Subscription) (*pubsubpb.Subscription, error)
}

var _ admin = (*pubsubfake.Server)(nil)

// dialled makes them through Google's clients.
type dialled struct{ *gcppubsub.Clients }

func (d dialled) CreateTopic(ctx context.Context, in *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	return d.Topics.CreateTopic(ctx, in)
}

func (d dialled) CreateSubscription(ctx context.Context, in *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	return d.Pulls.CreateSubscription(ctx, in)
}

// fake is a server that goes on with a pull whose caller has gone.
func fake(t testing.TB, o pubsubfake.Options) *pubsubfake.Server {
	o.StrandCancelled = true
	s := pubsubfake.New(&o)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pubsubfake: what was random plays again with Options.Seed %d", s.Seed())
		}
		s.Close()
	})
	return s
}

const project = "projects/onceq-test"

func newName(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// makeTopic is a topic of a test's own.
func makeTopic(t testing.TB, a admin, project string) string {
	t.Helper()
	out, err := a.CreateTopic(t.Context(), &pubsubpb.Topic{Name: project + "/topics/" + newName("t-")})
	if err != nil {
		t.Fatal(err)
	}
	return out.GetName()
}

// makeSubscription is a subscription of a test's own.
func makeSubscription(t testing.TB, a admin, project, topic string, set func(*pubsubpb.Subscription)) string {
	t.Helper()
	in := &pubsubpb.Subscription{Name: project + "/subscriptions/" + newName("s-"), Topic: topic, AckDeadlineSeconds: 30}
	if set != nil {
		set(in)
	}
	out, err := a.CreateSubscription(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out.GetName()
}

func makeBroker(t testing.TB, api gcppubsub.API, topic, subscription string, o *gcppubsub.Options) *gcppubsub.Broker {
	return must.Get(gcppubsub.New(api, topic, subscription, o))
}

func inSeconds(d time.Duration) int32 { return int32(d / time.Second) }

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }
