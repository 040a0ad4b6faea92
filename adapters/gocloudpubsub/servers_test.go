package gocloudpubsub_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

// A worker on each real server, in each run: messages travel, one job fails once and comes again
// after its pause, one takes longer than its message stays hidden, and all are acked. Make proof
// plays the whole suite there.
func TestWorkersServer(t *testing.T) {
	t.Parallel()
	t.Run("sqs", func(t *testing.T) {
		t.Parallel()
		s := testaws.NewSQS(t)
		for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := s.Client(t)
				url := testaws.MakeQueue(t, c, fifo, map[string]string{string(types.QueueAttributeNameVisibilityTimeout): "30"})
				workOnServer(t, brokerOnSQS(t, c, url, gocloudpubsub.Options{Queue: url}), 6*time.Second)
			})
		}
	})
	t.Run("pubsub", func(t *testing.T) {
		t.Parallel()
		server := testgcp.NewPubSub(t)
		g := dial(t, server.Addr, server.Project(t))
		for _, k := range kinds {
			if k.exact {
				continue // the emulator has no such subscriptions
			}
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				topic := g.makeTopic(t)
				sub := g.makeSubscription(t, topic, func(s *pubsubpb.Subscription) { s.EnableMessageOrdering = k.ordered })
				workOnServer(t, brokerOnPubSub(t, g, topic, sub, gocloudpubsub.Options{Ordered: k.ordered}), 10*time.Second)
			})
		}
	})
}

// workOnServer plays twelve jobs of three groups.
func workOnServer(t *testing.T, b *gocloudpubsub.Broker, visibility time.Duration) {
	t.Helper()
	const n, fails, long = 12, "4", "5"
	js := newJobs(t, 10*time.Millisecond)
	js.before = func(ctx context.Context, key string, start int) error {
		switch {
		case key == fails && start == 1:
			return onceq.RetryAfter(time.Second, errors.New("not yet"))
		case key == long:
			return rig.Busy(ctx, visibility+2*time.Second)
		}
		return nil
	}
	stop := js.work(b, 4, visibility)
	var ms []broker.Outgoing
	for i := range n {
		m := broker.Outgoing{Body: []byte("b"), Meta: &broker.Meta{Key: strconv.Itoa(i)}}
		if b.Limits().OrderedGroups {
			m.Group = "g" + strconv.Itoa(i%3)
		}
		ms = append(ms, m)
	}
	for len(ms) > 0 {
		k := min(len(ms), b.Limits().SendBatch)
		if err := onceq.Send(t.Context(), b, ms[:k]); err != nil {
			t.Fatal(err)
		}
		ms = ms[k:]
	}
	js.Until(2*time.Minute, "all jobs are acked", func() bool { return b.Stats().Acked >= n })
	stop()
	js.Once(n)
	if s := js.Started[fails]; s != 2 {
		t.Errorf("the job that fails once was started %d times", s)
	}
	if s := js.Started[long]; s != 1 {
		t.Errorf("the long job was started %d times", s)
	}
	t.Logf("%+v", b.Stats())
}
