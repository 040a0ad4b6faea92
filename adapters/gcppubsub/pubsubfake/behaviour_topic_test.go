package pubsubfake_test

import (
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (r *rig) trySub(topic, id string, set ...func(*pubsubpb.Subscription)) error {
	s := &pubsubpb.Subscription{Name: r.name("subscriptions", id), Topic: topic}
	for _, f := range set {
		f(s)
	}
	_, err := r.CreateSubscription(r.Context(), s)
	return err
}

func (r *rig) get(sub string) *pubsubpb.Subscription {
	r.Helper()
	s, err := r.GetSubscription(r.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: sub})
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *rig) tryUpdate(s *pubsubpb.Subscription, paths ...string) error {
	_, err := r.UpdateSubscription(r.Context(), &pubsubpb.UpdateSubscriptionRequest{Subscription: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	return err
}

func (r *rig) update(s *pubsubpb.Subscription, paths ...string) {
	r.Helper()
	if err := r.tryUpdate(s, paths...); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) deleteTopic(name string) {
	r.Helper()
	if _, err := r.DeleteTopic(r.Context(), &pubsubpb.DeleteTopicRequest{Topic: name}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) trySeek(sub string, at time.Time) error {
	_, err := r.Seek(r.Context(), &pubsubpb.SeekRequest{Subscription: sub, Target: &pubsubpb.SeekRequest_Time{Time: timestamppb.New(at)}})
	return err
}

func (r *rig) seek(sub string, at time.Time) {
	r.Helper()
	if err := r.trySeek(sub, at); err != nil {
		r.Fatal(err)
	}
}

// topicBehaviours are about the life of topics.
var topicBehaviours = []behaviour{
	{
		name: "a topic is made once", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("orders")
			_, err := r.CreateTopic(r.Context(), &pubsubpb.Topic{Name: topic})
			r.wantCode(err, codes.AlreadyExists)
			got, err := r.GetTopic(r.Context(), &pubsubpb.GetTopicRequest{Topic: topic})
			if err != nil || got.Name != topic {
				r.Fatalf("got %v, %v", got, err)
			}
		},
	},
	{
		name: "a topic that does not exist has its own error", ref: "proto",
		run: func(r *rig) {
			topic := r.name("topics", "orders")
			_, err := r.GetTopic(r.Context(), &pubsubpb.GetTopicRequest{Topic: topic})
			r.wantCode(err, codes.NotFound)
			_, err = r.DeleteTopic(r.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic})
			r.wantCode(err, codes.NotFound)
			r.wantCode(r.trySub(topic, "worker"), codes.NotFound)
		},
	},
	{
		name: "a topic that does not exist lists nothing", ref: "proto",
		run: func(r *rig) {
			_, err := r.ListTopicSubscriptions(r.Context(), &pubsubpb.ListTopicSubscriptionsRequest{Topic: r.name("topics", "orders")})
			r.wantCode(err, codes.NotFound)
		},
	},
	{
		name: "names have their alphabet and length", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("a-_.~+%9")
			r.topic(strings.Repeat("a", 255))
			for _, id := range []string{"ab", "9abc", "goog-orders", "a b c", "orders/", strings.Repeat("a", 256)} {
				_, err := r.CreateTopic(r.Context(), &pubsubpb.Topic{Name: r.name("topics", id)})
				r.wantRefused(err, "name")
				r.wantRefused(r.trySub(topic, id), "name")
			}
			for _, name := range []string{"", "orders", "projects/p/orders"} {
				_, err := r.CreateTopic(r.Context(), &pubsubpb.Topic{Name: name})
				r.wantRefused(err, "name")
			}
		},
	},
	{
		name: "topics are listed, in pages", ref: "proto",
		run: func(r *rig) {
			want := []string{r.topic("aaa"), r.topic("bbb"), r.topic("ccc")}
			var got []string
			token := ""
			for range 3 {
				out, err := r.ListTopics(r.Context(), &pubsubpb.ListTopicsRequest{Project: r.project, PageSize: 2, PageToken: token})
				if err != nil || len(out.Topics) > 2 {
					r.Fatalf("listed %v, %v", out, err)
				}
				for _, t := range out.Topics {
					got = append(got, t.Name)
				}
				if token = out.NextPageToken; token == "" {
					break
				}
			}
			slices.Sort(got)
			r.wantBodies(got, want...)
		},
	},
	{
		name: "a topic tells its subscriptions, a project all", ref: "proto",
		run: func(r *rig) {
			topic, other := r.topic("orders"), r.topic("other")
			one, two := r.sub(topic, "one"), r.sub(topic, "two")
			three := r.sub(other, "three")
			out, err := r.ListTopicSubscriptions(r.Context(), &pubsubpb.ListTopicSubscriptionsRequest{Topic: topic})
			if err != nil {
				r.Fatal(err)
			}
			slices.Sort(out.Subscriptions)
			r.wantBodies(out.Subscriptions, one, two)
			all, err := r.ListSubscriptions(r.Context(), &pubsubpb.ListSubscriptionsRequest{Project: r.project})
			if err != nil {
				r.Fatal(err)
			}
			var names []string
			for _, s := range all.Subscriptions {
				names = append(names, s.Name)
			}
			slices.Sort(names)
			r.wantBodies(names, one, three, two)
		},
	},
	{
		name: "a deleted topic leaves its subscriptions", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.deleteTopic(topic)
			r.wantCode(r.tryPublish(topic, texts("b")...), codes.NotFound)
			if got := r.get(sub).Topic; got != "_deleted-topic_" {
				r.Fatalf("the subscription's topic is %q", got)
			}
			r.pullThese(sub, "a")
			r.topic("orders")
			r.publish(topic, texts("c")...)
			r.pullNone(sub)
		},
	},
	{
		name: "the labels of a topic are changed", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("orders")
			_, err := r.UpdateTopic(r.Context(), &pubsubpb.UpdateTopicRequest{
				Topic: &pubsubpb.Topic{Name: topic, Labels: map[string]string{"a": "b"}}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
			})
			if err != nil {
				r.Fatal(err)
			}
			got, err := r.GetTopic(r.Context(), &pubsubpb.GetTopicRequest{Topic: topic})
			if err != nil || got.Labels["a"] != "b" {
				r.Fatalf("got %v, %v", got, err)
			}
			_, err = r.UpdateTopic(r.Context(), &pubsubpb.UpdateTopicRequest{Topic: &pubsubpb.Topic{Name: topic}})
			r.wantRefused(err, "update_mask")
		},
	},
	{
		name: "a resource has a policy", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			for _, name := range []string{topic, sub} {
				was, err := r.GetIamPolicy(r.Context(), &iampb.GetIamPolicyRequest{Resource: name})
				if err != nil || len(was.Bindings) > 0 {
					r.Fatalf("got %v, %v", was, err)
				}
				was.Bindings = []*iampb.Binding{{Role: "roles/pubsub.publisher", Members: []string{"serviceAccount:a@b"}}}
				if _, err := r.SetIamPolicy(r.Context(), &iampb.SetIamPolicyRequest{Resource: name, Policy: was}); err != nil {
					r.Fatal(err)
				}
				now, err := r.GetIamPolicy(r.Context(), &iampb.GetIamPolicyRequest{Resource: name})
				if err != nil || len(now.Bindings) != 1 || now.Bindings[0].Role != "roles/pubsub.publisher" {
					r.Fatalf("got %v, %v", now, err)
				}
				_, err = r.SetIamPolicy(r.Context(), &iampb.SetIamPolicyRequest{Resource: name, Policy: was})
				r.wantCode(err, codes.Aborted)
			}
			_, err := r.GetIamPolicy(r.Context(), &iampb.GetIamPolicyRequest{Resource: r.name("topics", "other")})
			r.wantCode(err, codes.NotFound)
		},
	},
}

// subscriptionBehaviours are about the life and the settings of subscriptions.
var subscriptionBehaviours = []behaviour{
	{
		name: "a subscription is made once", ref: "proto",
		run: func(r *rig) {
			topic, _ := r.pair()
			r.wantCode(r.trySub(topic, "worker"), codes.AlreadyExists)
		},
	},
	{
		name: "a subscription that does not exist has its own error", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			id := r.pullOne(sub).AckId
			r.deleteSub(sub)
			_, err := r.GetSubscription(r.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: sub})
			r.wantCode(err, codes.NotFound)
			_, err = r.DeleteSubscription(r.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: sub})
			r.wantCode(err, codes.NotFound)
			r.wantCode(r.tryAck(sub, id), codes.NotFound)
			r.wantCode(r.tryExtend(sub, 10, id), codes.NotFound)
			r.wantCode(r.trySeek(sub, time.Now()), codes.NotFound)
			r.wantCode(r.tryUpdate(&pubsubpb.Subscription{Name: sub}, "labels"), codes.NotFound)
		},
	},
	{
		name: "a pull ends with its subscription", ref: "proto",
		run: func(r *rig) {
			_, sub := r.pair()
			deleted := make(chan struct{})
			go func() {
				defer close(deleted)
				<-time.After(time.Second)
				_, _ = r.DeleteSubscription(r.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: sub})
			}()
			began := time.Now()
			_, err := r.pullFor(sub, 8*time.Second)
			r.wantCode(err, codes.NotFound)
			if took := time.Since(began); took > 4*time.Second {
				r.Fatalf("it ended after %v", took)
			}
			<-deleted
		},
	},
	{
		name: "a subscription made again is another one", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			old := r.pullOne(sub)
			r.deleteSub(sub)
			r.sub(topic, "worker")
			r.pullNone(sub)
			r.publish(topic, texts("b")...)
			m := r.pullOne(sub)
			r.ack(sub, old)
			r.nack(sub, old)
			r.pullNone(sub)
			r.nack(sub, m)
			r.pullThese(sub, "b")
		},
	},
	{
		name: "a detached subscription has no messages and no pulls", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			id := r.pullOne(sub).AckId
			if _, err := r.DetachSubscription(r.Context(), &pubsubpb.DetachSubscriptionRequest{Subscription: sub}); err != nil {
				r.Fatal(err)
			}
			if !r.get(sub).Detached {
				r.Fatal("it does not tell that it is detached")
			}
			_, err := r.pullFor(sub, 3*time.Second)
			r.wantCode(err, codes.FailedPrecondition)
			if err := r.tryAck(sub, id); err != nil {
				r.Fatal(err)
			}
			out, err := r.ListTopicSubscriptions(r.Context(), &pubsubpb.ListTopicSubscriptionsRequest{Topic: topic})
			if err != nil || len(out.Subscriptions) > 0 {
				r.Fatalf("listed %v, %v", out, err)
			}
			r.publish(topic, texts("b")...)
		},
	},
	{
		name: "a subscription has defaults", ref: "proto",
		run: func(r *rig) {
			_, sub := r.pair()
			s := r.get(sub)
			if s.AckDeadlineSeconds != 10 || s.MessageRetentionDuration.GetSeconds() != 7*24*3600 || s.RetainAckedMessages ||
				s.ExpirationPolicy.GetTtl().GetSeconds() != 31*24*3600 || s.DeadLetterPolicy != nil || s.RetryPolicy != nil {
				r.Fatalf("the defaults are %v", s)
			}
		},
	},
	{
		name: "the ack deadline has 10 to 600 seconds", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("orders")
			for _, n := range []int32{9, 601, -1} {
				r.wantRefused(r.trySub(topic, "worker", func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = n }), "ack_deadline_seconds")
			}
			sub := r.sub(topic, "worker", func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 600 })
			r.wantRefused(r.tryUpdate(&pubsubpb.Subscription{Name: sub, AckDeadlineSeconds: 9}, "ack_deadline_seconds"), "ack_deadline_seconds")
		},
	},
	{
		name: "the retention has 10 minutes to 31 days", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("orders")
			for _, n := range []int64{599, 31*24*3600 + 1} {
				err := r.trySub(topic, "worker", func(s *pubsubpb.Subscription) { s.MessageRetentionDuration = seconds(n) })
				r.wantRefused(err, "message_retention_duration")
			}
			r.sub(topic, "worker", func(s *pubsubpb.Subscription) { s.MessageRetentionDuration = seconds(600) })
		},
	},
	{
		name: "the expiration has a day at least, or never comes", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("orders")
			set := func(p *pubsubpb.ExpirationPolicy) func(*pubsubpb.Subscription) {
				return func(s *pubsubpb.Subscription) { s.ExpirationPolicy = p }
			}
			r.wantRefused(r.trySub(topic, "worker", set(&pubsubpb.ExpirationPolicy{Ttl: seconds(24*3600 - 1)})), "expiration_policy")
			sub := r.sub(topic, "worker", set(&pubsubpb.ExpirationPolicy{}))
			if p := r.get(sub).ExpirationPolicy; p == nil || p.Ttl != nil {
				r.Fatalf("the expiration is %v", p)
			}
		},
	},
	{
		name: "settings are changed by a mask", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.update(&pubsubpb.Subscription{Name: sub, AckDeadlineSeconds: 30, EnableExactlyOnceDelivery: true}, "ack_deadline_seconds")
			if s := r.get(sub); s.AckDeadlineSeconds != 30 || s.EnableExactlyOnceDelivery {
				r.Fatalf("now it is %v", s)
			}
			r.publish(topic, texts("a")...)
			r.pullOne(sub)
			r.wait(11 * time.Second)
			r.pullNone(sub)
			r.wantRefused(r.tryUpdate(&pubsubpb.Subscription{Name: sub}), "update_mask")
		},
	},
	{
		name: "order, filter and topic of a subscription stay", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			for _, path := range []string{"enable_message_ordering", "filter", "topic", "name", "foo"} {
				r.wantCode(r.tryUpdate(&pubsubpb.Subscription{Name: sub, Topic: topic}, path), codes.InvalidArgument)
			}
		},
	},
}

// seekBehaviours are about Seek.
var seekBehaviours = []behaviour{
	{
		name: "a seek back brings what was acked and retained", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair(retains)
			r.publish(topic, texts("a", "b")...)
			r.ack(sub, r.pull(sub, 2)...)
			r.wait(time.Second)
			middle := time.Now()
			r.wait(time.Second)
			r.publish(topic, texts("c")...)
			r.ack(sub, r.pullOne(sub))
			r.seek(sub, middle)
			r.ack(sub, r.pullThese(sub, "c")...)
			r.seek(sub, middle.Add(-time.Minute))
			r.pullThese(sub, "a", "b", "c")
		},
	},
	{
		name: "a seek back brings nothing that is not retained", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a", "b")...)
			r.ack(sub, r.pull(sub, 2)[0])
			r.seek(sub, time.Now().Add(-time.Minute))
			r.wait(11 * time.Second)
			r.pullOne(sub)
		},
	},
	{
		name: "a seek to now drops what is there", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a", "b")...)
			r.wait(time.Second)
			r.seek(sub, time.Now())
			r.pullNone(sub)
			r.wait(time.Second)
			r.publish(topic, texts("c")...)
			r.pullThese(sub, "c")
		},
	},
	{
		name: "a seek to the future drops what comes until then", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.seek(sub, time.Now().Add(4*time.Second))
			r.publish(topic, texts("a")...)
			r.pullNone(sub)
			r.wait(4 * time.Second)
			r.publish(topic, texts("b")...)
			r.pullThese(sub, "b")
			r.seek(sub, time.Now().Add(-time.Minute))
			r.pullNone(sub)
		},
	},
	{
		name: "a seek back brings a key in its order", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(retains, ordered)
			r.publish(topic, keyed("k", "a", "b", "c")...)
			ms := r.pullInOrder(sub, "a", "b", "c")
			r.ack(sub, ms[0])
			r.ack(sub, ms[1])
			r.seek(sub, time.Now().Add(-time.Minute))
			r.nack(sub, ms[2])
			r.pullInOrder(sub, "a", "b", "c")
		},
	},
	{
		name: "a seek back brings what was acked out of its order", ref: "doc", ours: true, // as the one above
		run: func(r *rig) {
			topic, sub := r.pair(retains, ordered)
			r.publish(topic, keyed("k", "a", "b", "c")...)
			ms := r.pullInOrder(sub, "a", "b", "c")
			r.ack(sub, ms[0])
			r.ack(sub, ms[2])
			r.seek(sub, time.Now().Add(-time.Minute))
			r.ack(sub, ms[1])
			r.ack(sub, r.pullInOrder(sub, "a")...)
			r.pullInOrder(sub, "c")
		},
	},
	{
		name: "a seek wants a time", ref: "proto",
		run: func(r *rig) {
			_, sub := r.pair()
			_, err := r.Seek(r.Context(), &pubsubpb.SeekRequest{Subscription: sub})
			r.wantCode(err, codes.InvalidArgument)
		},
	},
}

func filters(text string) func(*pubsubpb.Subscription) {
	return func(s *pubsubpb.Subscription) { s.Filter = text }
}

// filterBehaviours are about filters.
var filterBehaviours = []behaviour{
	{
		name: "a filter chooses by attributes", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(filters(`attributes.kind = "order"`))
			r.publish(topic, &pubsubpb.PubsubMessage{Data: []byte("a"), Attributes: map[string]string{"kind": "payment"}},
				&pubsubpb.PubsubMessage{Data: []byte("b"), Attributes: map[string]string{"kind": "order"}}, texts("c")[0])
			r.pullThese(sub, "b")
		},
	},
	{
		name: "a filter that cannot be read is refused", ref: "doc",
		run: func(r *rig) {
			topic := r.topic("orders")
			for _, f := range []string{`attributes.a`, `data = "x"`, `attributes.a = b`, `attributes:a AND attributes:b OR attributes:c`} {
				r.wantRefused(r.trySub(topic, "worker", filters(f)), "filter")
			}
		},
	},
	{
		name: "a filter has 256 bytes at most", ref: "proto",
		run: func(r *rig) {
			topic := r.topic("orders")
			long := `attributes.k = "` + strings.Repeat("v", 239) + `"`
			r.sub(topic, "worker", filters(long))
			r.wantRefused(r.trySub(topic, "other", filters(long+" ")), "filter")
		},
	},
}
