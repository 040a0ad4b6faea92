package pubsubfake_test

import (
	"maps"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

// buries sets a dead-letter policy.
func buries(topic string, attempts int32) func(*pubsubpb.Subscription) {
	return func(s *pubsubpb.Subscription) {
		s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: topic, MaxDeliveryAttempts: attempts}
	}
}

// buried makes a topic with a subscription whose dead letters go to one of another topic.
func (r *rig) buried(set ...func(*pubsubpb.Subscription)) (topic, sub, letters string) {
	r.Helper()
	grave := r.topic("letters")
	letters = r.sub(grave, "letters")
	topic, sub = r.pair(append(set, buries(grave, 5))...)
	return topic, sub, letters
}

// deadLetterBehaviours are about dead-letter topics and retry policies.
var deadLetterBehaviours = []behaviour{
	{
		name: "attempts are counted with a dead-letter policy", ref: "proto",
		run: func(r *rig) {
			topic, sub, _ := r.buried()
			r.publish(topic, texts("a")...)
			for i := range int32(3) {
				m := r.pullOne(sub)
				if m.DeliveryAttempt != i+1 {
					r.Fatalf("attempt %d, want %d", m.DeliveryAttempt, i+1)
				}
				r.nack(sub, m)
			}
		},
	},
	{
		name: "a hold that ends counts as an attempt", ref: "proto",
		run: func(r *rig) {
			topic, sub, _ := r.buried()
			r.publish(topic, texts("a")...)
			r.extend(sub, 1, r.pullOne(sub))
			if m := r.pullOne(sub); m.DeliveryAttempt != 2 {
				r.Fatalf("attempt %d, want 2", m.DeliveryAttempt)
			}
		},
	},
	{
		name: "after its last attempt a message goes to the dead-letter topic", ref: "doc",
		run: func(r *rig) {
			topic, sub, letters := r.buried()
			as := map[string]string{"k": "v"}
			before := time.Now()
			ids := r.publish(topic, &pubsubpb.PubsubMessage{Data: []byte("a"), Attributes: as, OrderingKey: "o"})
			for range 5 {
				r.nack(sub, r.pullOne(sub))
			}
			r.pullNone(sub)
			m := r.pullOne(letters).Message
			at, err := time.Parse(time.RFC3339, m.Attributes["CloudPubSubDeadLetterSourceTopicPublishTime"])
			if err != nil || at.Sub(before).Abs() > time.Minute {
				r.Fatalf("published at %q, %v, now is %v", m.Attributes["CloudPubSubDeadLetterSourceTopicPublishTime"], err, before)
			}
			delete(m.Attributes, "CloudPubSubDeadLetterSourceTopicPublishTime")
			want := map[string]string{
				"k": "v", "CloudPubSubDeadLetterSourceDeliveryCount": "5", "CloudPubSubDeadLetterSourceSubscription": "worker",
				"CloudPubSubDeadLetterSourceSubscriptionProject": strings.TrimPrefix(r.project, "projects/"),
			}
			if string(m.Data) != "a" || m.OrderingKey != "o" || m.MessageId == ids[0] || !maps.Equal(m.Attributes, want) {
				r.Fatalf("the dead letter is %v, want %v", m, want)
			}
		},
	},
	{
		name: "a hold that ends may be the last attempt", ref: "doc",
		run: func(r *rig) {
			topic, sub, letters := r.buried()
			r.publish(topic, texts("a")...)
			for range 4 {
				r.nack(sub, r.pullOne(sub))
			}
			r.extend(sub, 1, r.pullOne(sub))
			r.wait(2 * time.Second)
			r.pullNone(sub)
			r.pullThese(letters, "a")
		},
	},
	{
		name: "a dead letter moves when its last hold ends, though nobody calls", ref: "doc", ours: true, // best effort
		run: func(r *rig) {
			topic, sub, letters := r.buried()
			r.publish(topic, texts("a")...)
			for range 4 {
				r.nack(sub, r.pullOne(sub))
			}
			r.pullOne(sub)
			began := time.Now()
			got, err := r.pullFor(letters, 20*time.Second)
			if took := time.Since(began); err != nil || len(got) != 1 || took != 10*time.Second {
				r.Fatalf("pulled %q, %v, after %v", bodies(got), err, took)
			}
		},
	},
	{
		name: "an ack at the last attempt is an ack", ref: "doc",
		run: func(r *rig) {
			topic, sub, letters := r.buried()
			r.publish(topic, texts("a")...)
			for range 4 {
				r.nack(sub, r.pullOne(sub))
			}
			r.ack(sub, r.pullOne(sub))
			r.pullNone(letters)
			r.pullNone(sub)
		},
	},
	{
		name: "a dead letter that nobody subscribes to is lost", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(buries(r.topic("letters"), 5))
			r.publish(topic, texts("a")...)
			for range 5 {
				r.nack(sub, r.pullOne(sub))
			}
			r.pullNone(sub)
		},
	},
	{
		name: "without its dead-letter topic, a message comes on", ref: "doc",
		run: func(r *rig) {
			grave := r.topic("letters")
			topic, sub := r.pair(buries(grave, 5))
			if _, err := r.DeleteTopic(r.Context(), &pubsubpb.DeleteTopicRequest{Topic: grave}); err != nil {
				r.Fatal(err)
			}
			r.publish(topic, texts("a")...)
			for i := range int32(7) {
				m := r.pullOne(sub)
				if m.DeliveryAttempt != i+1 {
					r.Fatalf("attempt %d, want %d", m.DeliveryAttempt, i+1)
				}
				r.nack(sub, m)
			}
		},
	},
	{
		name: "a dead letter's key goes on", ref: "doc",
		run: func(r *rig) {
			topic, sub, letters := r.buried(ordered)
			r.publish(topic, keyed("k", "a")...)
			for range 4 {
				r.nack(sub, r.pullOne(sub))
			}
			m := r.pullOne(sub)
			r.publish(topic, keyed("k", "b")...)
			r.nack(sub, m)
			r.pullThese(sub, "b")
			r.pullThese(letters, "a")
		},
	},
	{
		name: "a policy counts from its beginning on", ref: "doc", ours: true, // not documented
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.nack(sub, r.pullOne(sub))
			r.update(&pubsubpb.Subscription{Name: sub, DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: r.topic("letters")}}, "dead_letter_policy")
			if m := r.pullOne(sub); m.DeliveryAttempt != 1 {
				r.Fatalf("attempt %d, want 1", m.DeliveryAttempt)
			}
		},
	},
	{
		name: "a dead-letter topic exists", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.wantCode(r.trySub(topic, "other", buries(r.name("topics", "letters"), 5)), codes.NotFound)
			s := &pubsubpb.Subscription{Name: sub}
			buries(r.name("topics", "letters"), 5)(s)
			r.wantCode(r.tryUpdate(s, "dead_letter_policy"), codes.NotFound)
		},
	},
	{
		name: "a dead-letter policy has 5 to 100 attempts, 5 by default", ref: "proto",
		run: func(r *rig) {
			topic, grave := r.topic("orders"), r.topic("letters")
			for _, n := range []int32{4, 101, -1} {
				r.wantRefused(r.trySub(topic, "worker", buries(grave, n)), "max_delivery_attempts")
			}
			for n, want := range map[int32]int32{0: 5, 100: 100} {
				sub := r.sub(topic, "worker", buries(grave, n))
				if got := r.get(sub).GetDeadLetterPolicy().GetMaxDeliveryAttempts(); got != want {
					r.Fatalf("%d attempts, want %d", got, want)
				}
				r.deleteSub(sub)
			}
		},
	},
	{
		name: "a retry policy delays what was nacked, longer each time", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(retries(2, 4))
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			for _, want := range []time.Duration{2, 4, 4} {
				r.nack(sub, m)
				began := time.Now()
				m = r.pullOne(sub)
				if took := time.Since(began); took < (want*1000-200)*time.Millisecond || took > (want+3)*time.Second {
					r.Fatalf("it came after %v, want %d s", took, want)
				}
			}
		},
	},
	{
		name: "a retry policy delays what was not acked in time", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(retries(4, 8))
			r.publish(topic, texts("a")...)
			r.extend(sub, 1, r.pullOne(sub))
			began := time.Now()
			r.pullOne(sub)
			if took := time.Since(began); took < 4*time.Second || took > 9*time.Second {
				r.Fatalf("it came after %v", took)
			}
		},
	},
	{
		name: "a retry policy has 0 to 600 seconds", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("orders")
			r.wantRefused(r.trySub(topic, "worker", retries(-1, 10)), "minimum_backoff")
			r.wantRefused(r.trySub(topic, "worker", retries(601, 602)), "minimum_backoff")
			r.wantRefused(r.trySub(topic, "worker", retries(10, 601)), "maximum_backoff")
			r.wantRefused(r.trySub(topic, "worker", retries(10, 9)), "maximum_backoff")
			sub := r.sub(topic, "worker", func(s *pubsubpb.Subscription) { s.RetryPolicy = &pubsubpb.RetryPolicy{} })
			if p := r.get(sub).RetryPolicy; p.GetMinimumBackoff().GetSeconds() != 10 || p.GetMaximumBackoff().GetSeconds() != 600 {
				r.Fatalf("the default is %v", p)
			}
		},
	},
}
