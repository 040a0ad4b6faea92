package gcppubsub_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/broker"
)

const day = 24 * time.Hour

// recommended are the settings that docs/backend-pubsub.md has, with a dead-letter policy.
func recommended() *pubsubpb.Subscription {
	return &pubsubpb.Subscription{
		Name: stubSubscription, Topic: stubTopic, AckDeadlineSeconds: 30, MessageRetentionDuration: durationpb.New(7 * day),
		ExpirationPolicy: &pubsubpb.ExpirationPolicy{},
	}
}

const deadTopic = "projects/acme/topics/orders-dead"

func policy(attempts int32) func(*pubsubpb.Subscription) {
	return func(s *pubsubpb.Subscription) {
		s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: deadTopic, MaxDeliveryAttempts: attempts}
	}
}

// grants is a policy that gives the service agent these roles.
func grants(roles ...string) *iampb.Policy {
	p := &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/pubsub.publisher", Members: []string{"serviceAccount:service-1@acme.iam.gserviceaccount.com"}}}}
	for _, r := range roles {
		p.Bindings = append(p.Bindings, &iampb.Binding{Role: r, Members: []string{"user:a@example.com", "serviceAccount:service-123456789@gcp-sa-pubsub.iam.gserviceaccount.com"}})
	}
	return p
}

func TestCheckTellsWhatDoesNotFit(t *testing.T) {
	attempts := gcppubsub.Options{Attempts: true}
	for _, c := range []struct {
		name string
		set  func(*pubsubpb.Subscription)
		o    gcppubsub.Options
		use  gcppubsub.CheckOptions
		says []string // one of each problem
	}{
		{name: "nothing", use: gcppubsub.CheckOptions{MaxAttempts: 5, Retention: 31 * day}},
		{name: "a policy that fits", set: policy(10), o: attempts, use: gcppubsub.CheckOptions{MaxAttempts: 5}},
		{name: "a policy for what is kept", set: policy(100), o: attempts, use: gcppubsub.CheckOptions{KeepInQueue: true, MaxAttempts: 100}},
		{name: "an early policy", set: policy(9), o: attempts, use: gcppubsub.CheckOptions{MaxAttempts: 5}, says: []string{"set max-delivery-attempts to 10 or more"}},
		{name: "the default policy", set: policy(0), o: attempts, use: gcppubsub.CheckOptions{MaxAttempts: 5}, says: []string{"after 5 deliveries"}},
		{name: "too many attempts", set: policy(100), o: attempts, use: gcppubsub.CheckOptions{MaxAttempts: 51}, says: []string{"its highest is 100"}},
		{name: "unlimited attempts", set: policy(100), o: attempts, use: gcppubsub.CheckOptions{MaxAttempts: -1}, says: []string{"attempts are unlimited"}},
		{name: "kept without a policy", use: gcppubsub.CheckOptions{KeepInQueue: true}, says: []string{"no dead-letter policy"}},
		{
			name: "kept for too short", o: attempts, use: gcppubsub.CheckOptions{KeepInQueue: true},
			set: func(s *pubsubpb.Subscription) {
				policy(100)(s)
				s.MessageRetentionDuration = durationpb.New(12 * time.Hour)
			},
			says: []string{"drops messages after 12h", "set the retention higher"},
		},
		{name: "a policy that nobody told of", set: policy(100), says: []string{"set Options.Attempts"}},
		{name: "no policy", o: attempts, says: []string{"there is no dead-letter policy"}},
		{name: "order that nobody told of", set: func(s *pubsubpb.Subscription) { s.EnableMessageOrdering = true }, says: []string{"Options.Ordered is false"}},
		{name: "no order", o: gcppubsub.Options{Ordered: true}, says: []string{"does not order messages"}},
		{
			name: "order and a policy", o: gcppubsub.Options{Ordered: true, Attempts: true},
			set: func(s *pubsubpb.Subscription) { policy(100)(s); s.EnableMessageOrdering = true }, says: []string{"messages that never ran"},
		},
		{name: "a short deadline", set: func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 10 }, says: []string{"the ack deadline is 10s"}},
		{name: "a long deadline", set: func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 600 }, says: []string{"the ack deadline is 10m0s"}},
		{name: "the workers' deadline", use: gcppubsub.CheckOptions{Visibility: 30 * time.Second}},
		{name: "three quarters of it", use: gcppubsub.CheckOptions{Visibility: 40 * time.Second}},
		{name: "a deadline below the workers'", use: gcppubsub.CheckOptions{Visibility: 41 * time.Second}, says: []string{"each pull is followed by an extension"}},
		{name: "a deadline above the workers'", use: gcppubsub.CheckOptions{Visibility: 29 * time.Second}, says: []string{"Visibility is 29s"}},
		{name: "the default expiration", set: func(s *pubsubpb.Subscription) { s.ExpirationPolicy = nil }, says: []string{"nobody has used it for 744h"}},
		{
			name: "an expiration", says: []string{"nobody has used it for 24h"},
			set: func(s *pubsubpb.Subscription) { s.ExpirationPolicy.Ttl = durationpb.New(day) },
		},
		{name: "a short retention", set: func(s *pubsubpb.Subscription) { s.MessageRetentionDuration = durationpb.New(day) }, says: []string{"drops messages after 24h"}},
		{name: "short records", use: gcppubsub.CheckOptions{Retention: 6 * day}, says: []string{"unproven"}},
		{
			name: "the topic's retention", set: func(s *pubsubpb.Subscription) { s.TopicMessageRetentionDuration = durationpb.New(20 * day) },
			use: gcppubsub.CheckOptions{Retention: 19 * day}, says: []string{"may spend 480h"},
		},
		{name: "a filter", set: func(s *pubsubpb.Subscription) { s.Filter = `attributes.kind = "mail"` }, says: []string{`the filter attributes.kind = "mail"`}},
		{name: "a retry policy", set: func(s *pubsubpb.Subscription) { s.RetryPolicy = &pubsubpb.RetryPolicy{} }, says: []string{"10s to 10m0s after each nack"}},
		{name: "a deleted topic", set: func(s *pubsubpb.Subscription) { s.Topic = "_deleted-topic_" }, says: []string{"the topic was deleted"}},
		{name: "another topic", set: func(s *pubsubpb.Subscription) { s.Topic = deadTopic }, says: []string{"the subscription is of projects/acme/topics/orders-dead"}},
		{name: "detached", set: func(s *pubsubpb.Subscription) { s.Detached = true }, says: []string{"detached"}},
		{
			name: "push", says: []string{"https://example.com/push"},
			set: func(s *pubsubpb.Subscription) {
				s.PushConfig = &pubsubpb.PushConfig{PushEndpoint: "https://example.com/push"}
			},
		},
		{name: "BigQuery", set: func(s *pubsubpb.Subscription) { s.BigqueryConfig = &pubsubpb.BigQueryConfig{Table: "t"} }, says: []string{"to BigQuery"}},
		{name: "Cloud Storage", set: func(s *pubsubpb.Subscription) { s.CloudStorageConfig = &pubsubpb.CloudStorageConfig{Bucket: "b"} }, says: []string{"to Cloud Storage"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := recommended()
			if c.set != nil {
				c.set(sub)
			}
			b, _ := stubbed(t, &c.o, func(_ context.Context, in proto.Message) (proto.Message, error) {
				switch in.(type) {
				case *pubsubpb.GetSubscriptionRequest:
					return sub, nil
				case *iampb.GetIamPolicyRequest:
					return grants("roles/pubsub.publisher", "roles/pubsub.subscriber"), nil
				}
				return nil, nil
			})
			_, problems, err := b.Check(t.Context(), c.use)
			if err != nil {
				t.Fatal(err)
			}
			if len(problems) != len(c.says) {
				t.Errorf("the problems are %q", problems)
			}
			for i, says := range c.says {
				if i < len(problems) && !strings.Contains(problems[i], says) {
					t.Errorf("%q does not say %q", problems[i], says)
				}
			}
		})
	}
}

func TestCheckLooksAtTheDeadLetterTopic(t *testing.T) {
	denied := status.Error(codes.PermissionDenied, "x")
	for _, c := range []struct {
		name             string
		topic            error
		onTopic, onSub   *iampb.Policy
		err              error
		missing, problem []string
	}{
		{name: "all there", onTopic: grants("roles/pubsub.publisher"), onSub: grants("roles/pubsub.subscriber")},
		{name: "wider roles", onTopic: grants("roles/pubsub.editor"), onSub: grants("roles/pubsub.admin")},
		{name: "not to be seen", topic: denied, err: denied},
		{
			name: "nothing there", topic: status.Error(codes.NotFound, "x"), onTopic: grants(), onSub: grants("roles/pubsub.publisher"),
			missing: []string{"roles/pubsub.publisher on " + deadTopic, "roles/pubsub.subscriber on " + stubSubscription},
			problem: []string{"is not there", "no roles/pubsub.publisher on " + deadTopic, "no roles/pubsub.subscriber on " + stubSubscription},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := recommended()
			policy(50)(sub)
			b, s := stubbed(t, &gcppubsub.Options{Attempts: true}, func(_ context.Context, in proto.Message) (proto.Message, error) {
				switch in := in.(type) {
				case *pubsubpb.GetSubscriptionRequest:
					return sub, nil
				case *pubsubpb.GetTopicRequest:
					return nil, c.topic
				case *iampb.GetIamPolicyRequest:
					if in.GetResource() == deadTopic {
						return c.onTopic, c.err
					}
					return c.onSub, c.err
				}
				return nil, nil
			})
			setup, problems, err := b.Check(t.Context(), gcppubsub.CheckOptions{})
			if err != nil || !slices.Equal(setup.Missing, c.missing) || len(problems) != len(c.problem) {
				t.Fatalf("%q, %q, %v", setup.Missing, problems, err)
			}
			for i, says := range c.problem {
				if !strings.Contains(problems[i], says) {
					t.Errorf("%q does not say %q", problems[i], says)
				}
			}
			if tops, _ := of[*pubsubpb.GetTopicRequest](s); len(tops) != 1 || tops[0].GetTopic() != deadTopic {
				t.Errorf("%v", tops)
			}
		})
	}
}

// TestCheckAsksForTheRightToSend: the fake answers as the service does, and nothing is published.
func TestCheckAsksForTheRightToSend(t *testing.T) {
	ask := func(t *testing.T, api gcppubsub.API, carry bool) (gcppubsub.Setup, []string) {
		t.Helper()
		setup, problems, err := makeBroker(t, api, stubTopic, stubSubscription, nil).Check(t.Context(), gcppubsub.CheckOptions{Carry: carry})
		if err != nil {
			t.Fatal(err)
		}
		return setup, problems
	}
	for name, c := range map[string]struct {
		answer   *iampb.TestIamPermissionsResponse
		err      error
		says     int
		notAsked int
	}{
		"allowed":     {&iampb.TestIamPermissionsResponse{Permissions: []string{"pubsub.topics.publish"}}, nil, 0, 0},
		"denied":      {&iampb.TestIamPermissionsResponse{}, nil, 1, 0},
		"the service": {nil, status.Error(codes.Unavailable, "x"), 0, 1},
		"an emulator": {nil, status.Error(codes.Unimplemented, "x"), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := stubbed(t, nil, func(_ context.Context, in proto.Message) (proto.Message, error) {
				if in, ok := in.(*iampb.TestIamPermissionsRequest); ok {
					if in.GetResource() != stubTopic || len(in.GetPermissions()) != 1 || in.GetPermissions()[0] != "pubsub.topics.publish" {
						t.Errorf("it asks for %v", in)
					}
					return c.answer, c.err
				}
				return recommended(), nil
			})
			setup, problems := ask(t, s, true)
			if len(problems) != c.says || c.says == 1 && !strings.Contains(problems[0], "no pubsub.topics.publish on "+stubTopic) || len(setup.NotAsked) != c.notAsked {
				t.Errorf("%q, not asked: %q", problems, setup.NotAsked)
			}
			setup, problems = ask(t, s, false)
			if asked, _ := of[*iampb.TestIamPermissionsRequest](s); len(asked) != 1 || len(problems)+len(setup.NotAsked) > 0 {
				t.Errorf("without Carry: %d questions, %q", len(asked), problems)
			}
		})
	}
}

func TestRedrivePolicy(t *testing.T) {
	sub := recommended()
	b, _ := stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) { return sub, nil })
	want := func(receives int, target string, kept time.Duration) {
		t.Helper()
		p, err := b.Redrive(t.Context())
		if err != nil || p != (broker.RedrivePolicy{MaxReceives: receives, Target: target, Retention: kept}) {
			t.Errorf("%+v, %v", p, err)
		}
	}
	want(0, "", 7*day)
	sub.MessageRetentionDuration = nil
	want(0, "", 7*day)
	sub.MessageRetentionDuration = durationpb.New(time.Hour)
	want(0, "", time.Hour)
	sub.TopicMessageRetentionDuration = durationpb.New(31 * day)
	want(0, "", 31*day)
	policy(0)(sub)
	want(5, deadTopic, 31*day)
	policy(77)(sub)
	want(77, deadTopic, 31*day)

	b, _ = stubbed(t, nil, func(context.Context, proto.Message) (proto.Message, error) {
		return nil, status.Error(codes.PermissionDenied, "x")
	})
	if _, err := b.Redrive(t.Context()); err == nil || !strings.Contains(err.Error(), "roles/pubsub.viewer") || errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}
