package onceqpubsub_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/sqsfake"
)

// One queue, with gocloud's own driver on one side and ours on the other. Everything travels where
// both are told of each other, and plain metadata and texts travel anyway.
func TestBesideGoCloudsOwn(t *testing.T) {
	plain := map[string]string{"order": "7", "Content-Type": "text", "a b": "x", "☺": "y", "a/b..c": "z"}
	strange := map[string]string{"order": "50% of 7", "percent": "%41", "text": "ü\x00\nb", "a b": "c d"}
	for _, c := range []struct {
		name     string
		peer     bool
		metadata map[string]string
		body     string
	}{
		{"plain", false, plain, "hello"},
		{"plain, told", true, plain, "hello"},
		{"strange, told", true, strange, "hello"},
		{"bytes, told", true, plain, "\xff\x00"},
		{"bytes without metadata, told", true, nil, "\xff\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := sqsfake.New(nil)
			t.Cleanup(server.Close)
			client := testaws.FakeClient(server)
			out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new("orders")})
			if err != nil {
				t.Fatal(err)
			}
			b := must.Get(awssqs.New(client, *out.QueueUrl, nil))
			ourTopic := must.Get(onceqpubsub.OpenTopic(b, &onceqpubsub.TopicOptions{GoCloudSQS: c.peer}))
			theirTopic := awssnssqs.OpenSQSTopic(t.Context(), client, *out.QueueUrl, nil)
			want := pubsub.Message{Body: []byte(c.body), Metadata: c.metadata}
			take := func(s *pubsub.Subscription) *pubsub.Message {
				m, err := s.Receive(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				m.Ack()
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				return m
			}
			ourSubscription := func() *pubsub.Subscription {
				return must.Get(onceqpubsub.OpenSubscription(b, &onceqpubsub.SubscriptionOptions{GoCloudSQS: c.peer}))
			}
			if err := theirTopic.Send(t.Context(), &want); err != nil {
				t.Fatal(err)
			}
			if got := take(ourSubscription()); string(got.Body) != c.body || !maps.Equal(got.Metadata, c.metadata) {
				t.Errorf("theirs to ours: %q with %q", got.Body, got.Metadata)
			}
			if err := ourTopic.Send(t.Context(), &want); err != nil {
				t.Fatal(err)
			}
			got := take(awssnssqs.OpenSubscription(t.Context(), client, *out.QueueUrl, &awssnssqs.SubscriptionOptions{WaitTime: time.Second}))
			if got.Metadata["onceq"] == "" {
				t.Error("our own metadata does not travel")
			}
			delete(got.Metadata, "onceq")
			if string(got.Body) != c.body || !maps.Equal(got.Metadata, c.metadata) {
				t.Errorf("ours to theirs: %q with %q", got.Body, got.Metadata)
			}
			if err := ourTopic.Send(t.Context(), &want); err != nil {
				t.Fatal(err)
			}
			if got := take(ourSubscription()); string(got.Body) != c.body || !maps.Equal(got.Metadata, c.metadata) {
				t.Errorf("ours to ours: %q with %q", got.Body, got.Metadata)
			}
			for _, topic := range []*pubsub.Topic{ourTopic, theirTopic} {
				if err := topic.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
