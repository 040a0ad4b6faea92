package pubsubfake_test

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// orderBehaviours are about ordering keys.
var orderBehaviours = []behaviour{
	{
		name: "messages of a key come in their order", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b", "c")...)
			r.publish(topic, keyed("k", "d")...)
			var got []string
			for range 8 {
				ms, err := r.pullFor(sub, 3*time.Second)
				if err != nil {
					r.Fatal(err)
				}
				got = append(got, bodies(ms)...)
				if len(ms) > 0 {
					r.ack(sub, ms...)
				}
				if len(got) == 4 {
					break
				}
			}
			r.wantBodies(got, "a", "b", "c", "d")
		},
	},
	{
		name: "nothing of a key comes while one of its messages is held", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a")...)
			a := r.pullOne(sub)
			r.publish(topic, keyed("k", "b")...)
			r.pullNone(sub)
			r.ack(sub, a)
			r.pullThese(sub, "b")
		},
	},
	{
		name: "a pull takes many of a key, and holds it until all are acked", ref: "seen",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b")...)
			ms := r.pullInOrder(sub, "a", "b")
			r.publish(topic, keyed("k", "c")...)
			r.ack(sub, ms[0])
			r.pullNone(sub)
			r.ack(sub, ms[1])
			r.pullInOrder(sub, "c")
		},
	},
	{
		name: "keys do not wait for each other", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a")...)
			r.pullOne(sub)
			r.publish(topic, keyed("k", "b")...)
			r.publish(topic, keyed("l", "c")...)
			r.publish(topic, texts("d")...)
			r.pullThese(sub, "c", "d")
			r.pullNone(sub)
		},
	},
	{
		name: "a key does not order without the subscription's consent", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair()
			r.publish(topic, keyed("k", "a")...)
			if got := r.pullOne(sub); got.Message.OrderingKey != "k" {
				r.Fatalf("pulled %v", got)
			}
			r.publish(topic, keyed("k", "b")...)
			r.pullThese(sub, "b")
		},
	},
	{
		name: "a nacked message comes before the later ones of its key", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b", "c")...)
			ms := r.pullInOrder(sub, "a", "b", "c")
			r.nack(sub, ms...)
			r.pullInOrder(sub, "a", "b", "c")
		},
	},
	{
		name: "a nacked message waits for those of its key that are held", ref: "seen",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b")...)
			ms := r.pullInOrder(sub, "a", "b")
			r.nack(sub, ms[0])
			r.pullNone(sub)
			r.nack(sub, ms[1])
			r.pullInOrder(sub, "a", "b")
		},
	},
	{
		name: "a message that was not acked in time comes before the later ones", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b")...)
			r.pullInOrder(sub, "a", "b")
			r.publish(topic, keyed("k", "c")...)
			r.wait(11 * time.Second)
			r.pullInOrder(sub, "a", "b", "c")
		},
	},
	{
		name: "with a nacked message, later ones that were acked come again", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b", "c")...)
			ms := r.pullInOrder(sub, "a", "b", "c")
			r.ack(sub, ms[1])
			r.nack(sub, ms[0])
			r.ack(sub, ms[2])
			r.pullInOrder(sub, "a", "b", "c")
		},
	},
	{
		name: "with the first of two nacked messages, all later ones come again", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b", "c", "d")...)
			ms := r.pullInOrder(sub, "a", "b", "c", "d")
			r.nack(sub, ms[0])
			r.nack(sub, ms[2])
			r.ack(sub, ms[1])
			r.ack(sub, ms[3])
			r.pullInOrder(sub, "a", "b", "c", "d")
		},
	},
	{
		name: "messages acked in another order are acked when the first one is", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b", "c")...)
			ms := r.pullInOrder(sub, "a", "b", "c")
			r.ack(sub, ms[2])
			r.ack(sub, ms[1])
			r.pullNone(sub)
			r.ack(sub, ms[0])
			r.publish(topic, keyed("k", "d")...)
			r.pullInOrder(sub, "d")
		},
	},
	{
		name: "messages with keys and without come by their age", ref: "doc", ours: true, // in any order
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a")...)
			r.publish(topic, texts("b")...)
			r.publish(topic, keyed("l", "c")...)
			r.pullInOrder(sub, "a", "b", "c")
		},
	},
	{
		name: "a late ack in the middle of a key takes no message out of its order", ref: "doc", ours: true,
		run: func(r *rig) {
			topic, sub := r.pair(ordered)
			r.publish(topic, keyed("k", "a", "b")...)
			ms := r.pullInOrder(sub, "a", "b")
			r.wait(11 * time.Second)
			r.ack(sub, ms[1])
			r.pullInOrder(sub, "a", "b")
		},
	},
	{
		name: "a retry policy keeps the whole key back", ref: "doc", ours: true, // the emulator is told below
		run: func(r *rig) {
			topic, sub := r.pair(ordered, retries(20, 60))
			r.publish(topic, keyed("k", "a", "b")...)
			ms := r.pullInOrder(sub, "a", "b")
			r.ack(sub, ms[1])
			r.nack(sub, ms[0])
			r.publish(topic, keyed("k", "c")...)
			r.wait(18 * time.Second)
			r.pullNone(sub)
			r.wait(2 * time.Second)
			r.pullInOrder(sub, "a", "b", "c")
		},
	},
}

func (r *rig) wantBodies(got []string, want ...string) {
	r.Helper()
	if len(got) != len(want) {
		r.Fatalf("pulled %q, want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			r.Fatalf("pulled %q, want %q", got, want)
		}
	}
}

const (
	permanent = "PERMANENT_FAILURE_INVALID_ACK_ID"
	unordered = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
)

// onceBehaviours are about exactly-once delivery, as Google calls it.
var onceBehaviours = []behaviour{
	{
		name: "exactly-once: an ack succeeds in time", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(6 * time.Second)
			r.extend(sub, 10, m)
			r.wait(6 * time.Second)
			r.ack(sub, m)
			r.pullNone(sub)
		},
	},
	{
		name: "exactly-once: a late ack fails", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(11 * time.Second)
			r.wantFailed(r.tryAck(sub, m.AckId), permanent, m.AckId)
			r.pullThese(sub, "a")
		},
	},
	{
		name: "exactly-once: a late ack fails after the next delivery", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.extend(sub, 1, m)
			again := r.pullOne(sub)
			r.wantFailed(r.tryExtend(sub, 10, m.AckId), permanent, m.AckId)
			r.wantFailed(r.tryAck(sub, m.AckId), permanent, m.AckId)
			r.ack(sub, again)
		},
	},
	{
		name: "exactly-once: a late extension fails", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wait(11 * time.Second)
			r.wantFailed(r.tryExtend(sub, 10, m.AckId), permanent, m.AckId)
			r.pullThese(sub, "a")
		},
	},
	{
		name: "exactly-once: the id of an earlier delivery fails", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			old := r.pullOne(sub)
			r.nack(sub, old)
			m := r.pullOne(sub)
			r.wantFailed(r.tryAck(sub, old.AckId), permanent, old.AckId)
			r.wantFailed(r.tryExtend(sub, 10, old.AckId), permanent, old.AckId)
			r.wantFailed(r.tryExtend(sub, 0, old.AckId), permanent, old.AckId)
			r.pullNone(sub)
			r.ack(sub, m)
		},
	},
	{
		name: "exactly-once: a call fails by id", ref: "client",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a", "b")...)
			ms := r.pull(sub, 2)
			r.nack(sub, ms[0])
			r.pullOne(sub)
			r.wantFailed(r.tryExtend(sub, 20, ackIDs(ms)...), permanent, ms[0].AckId)
			r.wantFailed(r.tryAck(sub, ackIDs(ms)...), permanent, ms[0].AckId)
			r.wantFailed(r.tryAck(sub, ms[1].AckId), permanent, ms[1].AckId)
		},
	},
	{
		name: "exactly-once: an ack id twice in one call is acked once, and nacked once", ref: "emulator",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a", "b")...)
			ms := r.pull(sub, 2)
			r.ack(sub, ms[0], ms[0])
			r.extend(sub, 10, ms[1], ms[1])
			r.wantFailed(r.tryExtend(sub, 0, ms[1].AckId, ms[1].AckId), permanent, ms[1].AckId)
			r.pullThese(sub, string(ms[1].Message.Data))
		},
	},
	{
		name: "exactly-once: an acked id fails", ref: "seen",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.ack(sub, m)
			r.wantFailed(r.tryAck(sub, m.AckId), permanent, m.AckId)
			r.wantFailed(r.tryExtend(sub, 10, m.AckId), permanent, m.AckId)
		},
	},
	{
		name: "exactly-once: an ack after a nack fails", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.nack(sub, m)
			r.wantFailed(r.tryAck(sub, m.AckId), permanent, m.AckId)
			r.pullThese(sub, "a")
		},
	},
	{
		name: "exactly-once: what is no ack id fails by id", ref: "seen",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.wantFailed(r.tryAck(sub, "x", m.AckId), permanent, "x")
			r.pullNone(sub)
		},
	},
	{
		name: "exactly-once: an ack after the retention fails", ref: "doc", ours: true, // minutes
		run: func(r *rig) {
			topic, sub := r.pair(once, func(s *pubsubpb.Subscription) { s.MessageRetentionDuration = seconds(600) })
			r.publish(topic, texts("a")...)
			r.wait(5 * time.Minute)
			m := r.pullOne(sub)
			r.extend(sub, 600, m)
			r.wait(5 * time.Minute)
			r.wantFailed(r.tryAck(sub, m.AckId), permanent, m.AckId)
		},
	},
	{
		name: "exactly-once: a held message does not come", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			for range 3 {
				r.wait(4 * time.Second)
				r.extend(sub, 10, m)
				r.pullNone(sub)
			}
		},
	},
	{
		name: "exactly-once: with keys, acks keep the order", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once, ordered)
			r.publish(topic, keyed("k", "a", "b")...)
			ms := r.pullInOrder(sub, "a", "b")
			r.wantFailed(r.tryAck(sub, ms[1].AckId), unordered, ms[1].AckId)
			r.ack(sub, ms[0])
			r.ack(sub, ms[1])
			r.pullNone(sub)
		},
	},
	{
		name: "exactly-once: the ids of a deleted subscription fail on the next one of its name", ref: "doc",
		run: func(r *rig) {
			topic, sub := r.pair(once)
			r.publish(topic, texts("a")...)
			m := r.pullOne(sub)
			r.deleteSub(sub)
			r.sub(topic, "worker", once)
			r.publish(topic, texts("b")...)
			r.pullOne(sub)
			r.wantFailed(r.tryAck(sub, m.AckId), permanent, m.AckId)
		},
	},
}

func (r *rig) deleteSub(name string) {
	r.Helper()
	if _, err := r.DeleteSubscription(r.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name}); err != nil {
		r.Fatal(err)
	}
}

// retries sets a retry policy, in seconds.
func retries(least, most int64) func(*pubsubpb.Subscription) {
	return func(s *pubsubpb.Subscription) {
		s.RetryPolicy = &pubsubpb.RetryPolicy{MinimumBackoff: seconds(least), MaximumBackoff: seconds(most)}
	}
}
