package pubsubfake_test

import (
	"maps"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

// messageBehaviours are about one message, its ack deadline and its ack ids, without exactly-once
// delivery.
var messageBehaviours = []behaviour{
	{
		name: "a message comes as it was published", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			before := time.Now()
			as := map[string]string{"k": "v", "empty": ""}
			ids := r.publish(topic, &pubsubpb.PubsubMessage{Data: []byte("a\x00\xff"), Attributes: as, OrderingKey: "o", MessageId: "mine"})
			m := r.pullOne(sub).Message
			if string(m.Data) != "a\x00\xff" || !maps.Equal(m.Attributes, as) || m.OrderingKey != "o" || m.MessageId != ids[0] || m.MessageId == "mine" {
				r.Fatalf("pulled %v, published as %v", m, ids)
			}
			if at := m.PublishTime.AsTime(); at.Before(before.Add(-time.Minute)) || at.After(before.Add(time.Minute)) {
				r.Fatalf("published at %v, now is %v", at, before)
			}
		},
	},
	{
		name: "each subscription gets each message, from its creation on", ref: "doc",
		run: func(r *rig) {
			topic := r.topic("orders")
			r.publish(topic, texts("lost")...)
			one, two := r.sub(topic, "one"), r.sub(topic, "two")
			r.publish(topic, texts("a", "b")...)
			r.ack(one, r.pullThese(one, "a", "b")...)
			r.pullThese(two, "a", "b")
			r.pullNone(one)
		},
	},
	{
		name: "an acked message does not come again", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.ack(sub, r.pullOne(sub))
			r.wait(11 * time.Second)
			r.pullNone(sub)
		},
	},
	{
		name: "a message is held until its ack deadline, and comes again", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			ids := r.publish(topic, texts("a")...)
			first := r.pullOne(sub)
			r.wait(7 * time.Second)
			r.pullNone(sub)
			r.wait(2 * time.Second)
			again := r.pullOne(sub)
			if again.AckId == first.AckId || again.Message.MessageId != ids[0] {
				r.Fatalf("came again as %v, first as %v", again, first)
			}
		},
	},
	{
		name: "the subscription's ack deadline holds", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(func(s *pubsubpb.Subscription) { s.AckDeadlineSeconds = 14 })
			r.publish(topic, texts("a")...)
			r.pullOne(sub)
			r.wait(11 * time.Second)
			r.pullNone(sub)
			r.wait(2 * time.Second)
			r.pullOne(sub)
		},
	},
	{
		name: "a nacked message comes again at once", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.nack(sub, r.pullOne(sub))
			r.pullOne(sub)
		},
	},
	{
		name: "an extension counts from its call", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(6 * time.Second)
			r.extend(sub, 10, m)
			r.wait(7 * time.Second)
			r.pullNone(sub)
			r.wait(2 * time.Second)
			r.pullOne(sub)
		},
	},
	{
		name: "an extension of a second shortens the hold", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			began := time.Now()
			r.extend(sub, 1, m)
			r.pullOne(sub)
			if took := time.Since(began); took < 900*time.Millisecond || took > 5*time.Second {
				r.Fatalf("it came again after %v", took)
			}
		},
	},
	{
		name: "the longest extension has 600 seconds", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.extend(sub, 600, m)
			r.wantRefused(r.tryExtend(sub, 601, m.AckId), "ack_deadline_seconds")
		},
	},
	{
		name: "a negative extension is refused", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.wantRefused(r.tryExtend(sub, -1, r.pullOne(sub).AckId), "deadline")
		},
	},
	{
		name: "a late ack succeeds", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(11 * time.Second)
			r.ack(sub, m)
		},
	},
	{
		name: "a late ack ends a message that nobody has", ref: "proto", ours: true, // the service may deliver it again
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(11 * time.Second)
			r.ack(sub, m)
			r.pullNone(sub)
		},
	},
	{
		name: "an ack after a nack succeeds", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.nack(sub, m)
			r.ack(sub, m)
		},
	},
	{
		name: "a late extension succeeds and hides nothing", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(11 * time.Second)
			r.extend(sub, 60, m)
			r.pullOne(sub)
		},
	},
	{
		name: "a late nack succeeds", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(11 * time.Second)
			r.nack(sub, m)
			r.pullOne(sub)
		},
	},
	{
		name: "acks, nacks and extensions of an acked message succeed", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.ack(sub, m)
			r.ack(sub, m)
			r.extend(sub, 60, m)
			r.nack(sub, m)
			r.pullNone(sub)
		},
	},
	{
		name: "an ack id twice in one call is no error", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.extend(sub, 30, m, m)
			r.ack(sub, m, m)
			r.pullNone(sub)
		},
	},
	{
		name: "an old ack id that works ends what somebody else holds", ref: "doc", ours: true,
		options: pubsubfake.Options{StaleAckIDs: pubsubfake.StaleWork},
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a", "b", "c")...)
			old := r.pull(sub, 3)
			r.nack(sub, old...)
			r.pull(sub, 3)
			r.ack(sub, old[0])
			r.nack(sub, old[1])
			r.extend(sub, 60, old[2])
			r.wait(11 * time.Second)
			if got := r.pullOne(sub); string(got.Message.Data) != string(old[1].Message.Data) {
				r.Fatalf("pulled %q", got.Message.Data)
			}
		},
	},
	{
		name: "an old ack id that is ignored does nothing", ref: "doc", ours: true,
		options: pubsubfake.Options{StaleAckIDs: pubsubfake.StaleIgnored},
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a", "b", "c")...)
			old := r.pull(sub, 3)
			r.nack(sub, old...)
			r.pull(sub, 3)
			r.ack(sub, old[0])
			r.nack(sub, old[1])
			r.extend(sub, 60, old[2])
			r.pullNone(sub)
			r.wait(11 * time.Second)
			r.pull(sub, 3)
		},
	},
	{
		name: "old ack ids work or do not", ref: "doc", ours: true,
		options: pubsubfake.Options{Seed: 3},
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts(strings.Split("abcdefghijklmnopqrst", "")...)...)
			old := r.pull(sub, 20)
			r.nack(sub, old...)
			r.pull(sub, 20)
			r.ack(sub, old...)
			if left := r.srv.Stats(sub).Held; left == 0 || left == 20 {
				r.Fatalf("%d of 20 are held", left)
			}
		},
	},
	{
		name: "what is no ack id is refused", ref: "seen",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			for _, id := range []string{"x", m.AckId + "x"} {
				r.wantRefused(r.tryAck(sub, id), "ack")
				r.wantRefused(r.tryExtend(sub, 10, id), "ack")
			}
		},
	},
	{
		name: "an empty list of ack ids is refused", ref: "proto",
		run: func(r *rig) {
			_, sub := r.pair()
			r.wantRefused(r.tryAck(sub), "ack")
			r.wantRefused(r.tryExtend(sub, 10), "ack")
		},
	},
	{
		name: "a call takes 1,000 ack ids", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			id := r.pullOne(sub).AckId
			ids := strings.Split(strings.Repeat(id+",", 1000)+id, ",")
			r.wantRefused(r.tryAck(sub, ids...), "ack_ids")
			r.wantRefused(r.tryExtend(sub, 10, ids...), "ack_ids")
			if err := r.tryAck(sub, ids[1:]...); err != nil {
				r.Fatal(err)
			}
		},
	},
	{
		name: "a call takes 512 KiB of ack ids", ref: "proto",
		run: func(r *rig) {
			_, sub := r.pair()
			ids := strings.Split(strings.Repeat(strings.Repeat("x", 700)+",", 799)+"x", ",")
			r.wantRefused(r.tryAck(sub, ids...), "exceed")
			r.wantRefused(r.tryExtend(sub, 10, ids...), "exceed")
		},
	},
	{
		name: "attempts are not counted without a dead-letter policy", ref: "proto",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.nack(sub, r.pullOne(sub))
			if n := r.pullOne(sub).DeliveryAttempt; n != 0 {
				r.Fatalf("attempt %d", n)
			}
		},
	},
	{
		name: "a message is lost after the retention", ref: "doc", ours: true, // minutes
		run: func(r *rig) {
			topic, sub := r.pair(func(s *pubsubpb.Subscription) { s.MessageRetentionDuration = seconds(600) })
			r.publish(topic, texts("a", "b")...)
			r.extend(sub, 600, r.pull(sub, 2)...)
			r.wait(5 * time.Minute)
			r.publish(topic, texts("c")...)
			r.wait(5 * time.Minute)
			r.pullThese(sub, "c")
		},
	},
	{
		name: "the retention is 7 days by default", ref: "doc", ours: true, // days
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, texts("a")...)
			r.wait(7*24*time.Hour - time.Second)
			r.nack(sub, r.pullOne(sub))
			r.wait(time.Second)
			r.pullNone(sub)
		},
	},
}
