package pubsubfake_test

import (
	"context"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

// tryPublish publishes one message.
func (r *rig) tryPublish(topic string, ms ...*pubsubpb.PubsubMessage) error {
	_, err := r.Publish(r.Context(), &pubsubpb.PublishRequest{Topic: topic, Messages: ms})
	return err
}

// attributes makes n of them.
func attributes(n int) map[string]string {
	as := map[string]string{}
	for i := range n {
		as[strconv.Itoa(i)] = "v"
	}
	return as
}

// publishBehaviours are about what may be published.
var publishBehaviours = []behaviour{
	{
		name: "1,000 messages are the most of a publish", ref: "doc",
		run: func(r *rig) {
			topic, _ := r.pair()
			if err := r.tryPublish(topic, texts(strings.Split(strings.Repeat("a,", 999)+"a", ",")...)...); err != nil {
				r.Fatal(err)
			}
			r.wantRefused(r.tryPublish(topic, texts(strings.Split(strings.Repeat("a,", 1000)+"a", ",")...)...), "messages")
		},
	},
	{
		name: "a publish without messages is refused", ref: "proto",
		run: func(r *rig) {
			topic, _ := r.pair()
			r.wantRefused(r.tryPublish(topic), "messages")
		},
	},
	{
		name: "10 MB are the most of a publish", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			if err := r.tryPublish(topic, texts(strings.Repeat("a", 9_900_000))...); err != nil {
				r.Fatal(err)
			}
			if got := r.pullOne(sub); len(got.Message.Data) != 9_900_000 {
				r.Fatalf("pulled %d bytes", len(got.Message.Data))
			}
			r.wantRefused(r.tryPublish(topic, texts(strings.Repeat("a", 5_100_000), strings.Repeat("a", 5_000_000))...), "exceeds")
		},
	},
	{
		name: "an empty message is refused", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.wantRefused(r.tryPublish(topic, &pubsubpb.PubsubMessage{}), "empty")
			r.wantRefused(r.tryPublish(topic, &pubsubpb.PubsubMessage{OrderingKey: "k"}), "empty")
			if err := r.tryPublish(topic, &pubsubpb.PubsubMessage{Attributes: map[string]string{"k": ""}}); err != nil {
				r.Fatal(err)
			}
			r.pullOne(sub)
		},
	},
	{
		name: "a publish is refused whole", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.wantRefused(r.tryPublish(topic, append(texts("a"), &pubsubpb.PubsubMessage{})...), "empty")
			r.pullNone(sub)
		},
	},
	{
		name: "a message has 100 attributes at most", ref: "doc",
		run: func(r *rig) {
			topic, _ := r.pair()
			if err := r.tryPublish(topic, &pubsubpb.PubsubMessage{Attributes: attributes(100)}); err != nil {
				r.Fatal(err)
			}
			r.wantRefused(r.tryPublish(topic, &pubsubpb.PubsubMessage{Attributes: attributes(101)}), "attributes")
		},
	},
	{
		name: "the key of an attribute has 256 bytes at most", ref: "doc",
		run: func(r *rig) {
			topic, _ := r.pair()
			key := strings.Repeat("ä", 128)
			if err := r.tryPublish(topic, &pubsubpb.PubsubMessage{Attributes: map[string]string{key: "v"}}); err != nil {
				r.Fatal(err)
			}
			r.wantRefused(r.tryPublish(topic, &pubsubpb.PubsubMessage{Attributes: map[string]string{key + "k": "v"}}), "attribute")
		},
	},
	{
		name: "the key of an attribute is not empty", ref: "doc",
		run: func(r *rig) {
			topic, _ := r.pair()
			r.wantRefused(r.tryPublish(topic, &pubsubpb.PubsubMessage{Data: []byte("a"), Attributes: map[string]string{"": "v"}}), "attribute")
		},
	},
	{
		name: "the value of an attribute has 1,024 bytes at most", ref: "doc",
		run: func(r *rig) {
			topic, _ := r.pair()
			value := strings.Repeat("ä", 512)
			if err := r.tryPublish(topic, &pubsubpb.PubsubMessage{Attributes: map[string]string{"k": value}}); err != nil {
				r.Fatal(err)
			}
			r.wantRefused(r.tryPublish(topic, &pubsubpb.PubsubMessage{Attributes: map[string]string{"k": value + "v"}}), "attribute")
		},
	},
	{
		name: "an ordering key has 1,024 bytes at most", ref: "doc",
		run: func(r *rig) {
			topic, _ := r.pair()
			key := strings.Repeat("k", 1024)
			if err := r.tryPublish(topic, keyed(key, "a")...); err != nil {
				r.Fatal(err)
			}
			r.wantRefused(r.tryPublish(topic, keyed(key+"k", "a")...), "ordering_key")
		},
	},
	{
		name: "the messages of a publish have one ordering key", ref: "seen",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.wantCode(r.tryPublish(topic, append(keyed("k", "a"), keyed("l", "b")...)...), codes.FailedPrecondition)
			r.wantCode(r.tryPublish(topic, append(texts("a"), keyed("l", "b")...)...), codes.FailedPrecondition)
			r.pullNone(sub)
		},
	},
	{
		name: "publishing to a topic that does not exist fails", ref: "proto",
		run: func(r *rig) {
			r.wantCode(r.tryPublish(r.name("topics", "orders"), texts("a")...), codes.NotFound)
			r.wantRefused(r.tryPublish("orders", texts("a")...), "topic")
		},
	},
}

// pullBehaviours are about how a pull waits and what it brings.
var pullBehaviours = []behaviour{
	{
		name: "a pull answers with nothing a little before its deadline", ref: "doc",
		run: func(r *rig) {
			_, sub := r.pair()
			began := time.Now()
			got, err := r.pullFor(sub, 4*time.Second)
			if took := time.Since(began); err != nil || len(got) > 0 || took < 2*time.Second || took > 4*time.Second {
				r.Fatalf("pulled %q, %v, after %v", bodies(got), err, took)
			}
		},
	},
	{
		name: "a pull without a deadline answers after 90 seconds", ref: "seen", ours: true, // it takes 90 seconds
		run: func(r *rig) {
			_, sub := r.pair()
			began := time.Now()
			out, err := r.Pull(r.Context(), &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1})
			if took := time.Since(began); err != nil || len(out.ReceivedMessages) > 0 || took != 90*time.Second {
				r.Fatalf("pulled %v, %v, after %v", out, err, took)
			}
		},
	},
	{
		name: "a pull waits for a message", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			began := time.Now()
			published := make(chan error, 1)
			go func() {
				<-time.After(time.Second)
				published <- r.tryPublish(topic, texts("a")...)
			}()
			got, err := r.pullFor(sub, 6*time.Second)
			if took := time.Since(began); err != nil || len(got) != 1 || took > 4*time.Second {
				r.Fatalf("pulled %q, %v, after %v", bodies(got), err, took)
			}
			if err := <-published; err != nil {
				r.Fatal(err)
			}
		},
	},
	{
		name: "a pull waits for the end of a hold", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.pullOne(sub)
			began := time.Now()
			got, err := r.pullFor(sub, 16*time.Second)
			if took := time.Since(began); err != nil || len(got) != 1 || took < 9*time.Second || took > 14*time.Second {
				r.Fatalf("pulled %q, %v, after %v", bodies(got), err, took)
			}
		},
	},
	{
		name: "a pull that returns immediately does not wait", ref: "proto",
		run: func(r *rig) {
			_, sub := r.pair()
			began := time.Now()
			ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
			defer cancel()
			//lint:ignore SA1019 it is served
			in := &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1, ReturnImmediately: true}
			out, err := r.Pull(ctx, in)
			if took := time.Since(began); err != nil || len(out.ReceivedMessages) > 0 || took > 5*time.Second {
				r.Fatalf("pulled %v, %v, after %v", out, err, took)
			}
		},
	},
	{
		name: "a pull brings no more than it asks for", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a", "b", "c")...)
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			defer cancel()
			out, err := r.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 2})
			if err != nil || len(out.ReceivedMessages) == 0 || len(out.ReceivedMessages) > 2 {
				r.Fatalf("pulled %v, %v", out, err)
			}
			r.pull(sub, 3-len(out.ReceivedMessages))
		},
	},
	{
		name: "a pull asks for a message at least", ref: "proto",
		run: func(r *rig) {
			_, sub := r.pair()
			for _, n := range []int32{0, -1} {
				ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
				_, err := r.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: n})
				cancel()
				r.wantRefused(err, "max_messages")
			}
		},
	},
	{
		name: "a pull asks for 1,000 messages at most", ref: "doc", ours: true, // beyond is not documented
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			_, err := r.Pull(r.Context(), &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1001})
			r.wantRefused(err, "max_messages")
			out, err := r.Pull(r.Context(), &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1000})
			if err != nil || len(out.ReceivedMessages) != 1 {
				r.Fatalf("pulled %v, %v", out, err)
			}
		},
	},
	{
		name: "a pull from a subscription that does not exist fails", ref: "proto",
		run: func(r *rig) {
			_, err := r.pullFor(r.name("subscriptions", "worker"), 3*time.Second)
			r.wantCode(err, codes.NotFound)
			_, err = r.pullFor("worker", 3*time.Second)
			r.wantRefused(err, "subscription")
		},
	},
	{
		name: "a cancelled pull may take what nobody gets", ref: "seen", ours: true,
		options: pubsubfake.Options{StrandCancelled: true},
		run: func(r *rig) {
			topic, sub := r.pair()
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := r.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1})
			r.wantCode(err, codes.Canceled)
			r.wait(time.Second)
			r.publish(topic, texts("a", "b")...)
			r.pullThese(sub, "b")
			r.wait(9 * time.Second)
			r.pull(sub, 2)
		},
	},
	{
		name: "a pull that nobody waits for goes on to its end", ref: "seen", ours: true,
		options: pubsubfake.Options{StrandCancelled: true},
		run: func(r *rig) {
			topic, sub := r.pair()
			ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
			time.AfterFunc(time.Second, cancel)
			_, err := r.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1})
			r.wantCode(err, codes.Canceled)
			r.wait(18 * time.Second)
			r.publish(topic, texts("a")...)
			r.pullThese(sub, "a")
		},
	},
	{
		name: "a cancelled pull takes nothing", ref: "seen", ours: true, // on the service it may
		run: func(r *rig) {
			topic, sub := r.pair()
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := r.Pull(ctx, &pubsubpb.PullRequest{Subscription: sub, MaxMessages: 1})
			r.wantCode(err, codes.Canceled)
			r.wait(time.Second)
			r.publish(topic, texts("a")...)
			r.pullOne(sub)
		},
	},
}
