package gocloudpubsub_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/broker"
)

// This file tests what the comments of a Broker's methods promise and no queue's suite sees, in
// virtual time. tiny_test.go has the queue.

// Send: when a message was not sent, the later ones of its group are not sent either. Those of
// another group, and those without, are.
func TestSendKeepsAGroupsOrder(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: time.Minute, failSend: func(body string) error {
			if body == "a2" {
				return errForGood
			}
			return nil
		}}
		topic := pubsub.NewTopic(q, &batcher.Options{MaxBatchSize: 1, MaxHandlers: 10})
		b := makeBroker(t, topic, q.subscribe(new(gocloudpubsub.NoPrefetch())), gocloudpubsub.Options{Visibility: q.visibility, Reopen: never})
		ms := []broker.Outgoing{
			{Body: []byte("a1"), Group: "a"},
			{Body: []byte("b1"), Group: "b"},
			{Body: []byte("a2"), Group: "a"},
			{Body: []byte("none")},
			{Body: []byte("a3"), Group: "a"},
			{Body: []byte("b2"), Group: "b"},
			{Body: []byte("a4"), Group: "a"},
		}
		ids, err := b.Send(t.Context(), ms)
		var sent []string
		for i, m := range ms {
			if failed := broker.ErrAt(err, i) != nil; failed != (ids[i] == "") {
				t.Errorf("%s: the id %q with the error %v", m.Body, ids[i], broker.ErrAt(err, i))
			} else if !failed {
				sent = append(sent, string(m.Body))
			}
		}
		if want := []string{"a1", "b1", "none", "b2"}; !slices.Equal(sent, want) {
			t.Errorf("sent by the answer: %q, want %q", sent, want)
		}
		if !errors.Is(broker.ErrAt(err, 2), errForGood) {
			t.Errorf("the message that failed is answered %v", broker.ErrAt(err, 2))
		}
		// What was not tried is no failure of its own: the first one's kind must not pass to it.
		if err := broker.ErrAt(err, 4); err == nil || errors.Is(err, errForGood) || !strings.Contains(err.Error(), "an earlier message of its group") {
			t.Errorf("the message behind it is answered %v", err)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		var there []string
		for _, m := range q.messages {
			there = append(there, string(m.body))
		}
		slices.Sort(there)
		if want := []string{"a1", "b1", "b2", "none"}; !slices.Equal(there, want) {
			t.Errorf("the queue has %q, want %q", there, want)
		}
	})
}

// Ack: after the Deadline it is ErrReceiptExpired, and gocloud is not asked. It would say yes.
func TestAckAfterTheDeadline(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: 10 * time.Second}
		b := q.broker(t, new(gocloudpubsub.NoPrefetch()), nil)
		send(t, b, 1)
		m := receiveOne(t, b)
		<-time.After(time.Until(m.Deadline) + time.Millisecond)
		if err := b.Ack(t.Context(), []broker.Receipt{m.Receipt}); !errors.Is(broker.ErrAt(err, 0), broker.ErrReceiptExpired) {
			t.Errorf("an ack after the Deadline is answered %v", err)
		}
		<-time.After(time.Second)
		if q.empty() {
			t.Error("the ack went to the queue")
		}
		if n := b.Stats().Acked; n != 0 {
			t.Errorf("%d acks are counted", n)
		}
	})
}

// A deadline counts from before the call that extends, however long its answer takes: a service
// counts from when it has read the request.
func TestDeadlineOfASlowExtension(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		const slow, hold = 2 * time.Second, 20 * time.Second
		q := &tiny{visibility: 10 * time.Second}
		calls := 0
		b := q.broker(t, new(gocloudpubsub.NoPrefetch()), func(o *gocloudpubsub.Options) {
			o.Extender = q.extender()
			o.Extender.Extend = func(ctx context.Context, ms []*pubsub.Message, d time.Duration) error {
				calls++
				err := q.extend(ctx, ms, d)
				<-time.After(slow)
				return err
			}
		})
		send(t, b, 1)
		ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1, Visibility: hold})
		if err != nil || len(ms) != 1 {
			t.Fatalf("Receive was answered %d messages, %v", len(ms), err)
		}
		q.mu.Lock()
		hidden := q.messages[0].hidden
		q.mu.Unlock()
		if ms[0].Deadline.After(hidden) {
			t.Errorf("the Deadline is %v after the message is shown again", ms[0].Deadline.Sub(hidden))
		}
		// The same holds for the extensions that follow.
		holds := []broker.Hold{{Receipt: ms[0].Receipt, For: hold}}
		if err := b.Extend(t.Context(), holds); err != nil {
			t.Fatal(err)
		}
		<-time.After(hold - slow/2) // by now its time is over, if it counts from the call
		before := calls
		if err := b.Extend(t.Context(), holds); !errors.Is(broker.ErrAt(err, 0), broker.ErrReceiptExpired) {
			t.Errorf("an extension after the deadline is answered %v", err)
		}
		if calls != before {
			t.Error("the service was asked to extend what is not held any more")
		}
	})
}

// A Reopen that gives the subscription that has failed is told so. It would fail again, for ever.
func TestReopenGivesTheSameAgain(t *testing.T) {
	for name, same := range map[string]bool{"the same": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			gocloudtest.Bubble(t, func(t *testing.T) {
				q := &tiny{visibility: 10 * time.Second}
				q.failReceive = func(int) error { return errForGood }
				sub := q.subscribe(new(gocloudpubsub.NoPrefetch()))
				b := makeBroker(t, q.topic(), sub, gocloudpubsub.Options{
					Visibility: q.visibility,
					Reopen: func(context.Context) (*pubsub.Subscription, error) {
						if same {
							return sub, nil
						}
						return nil, nil
					},
				})
				_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
				if !errors.Is(err, errForGood) || !strings.Contains(err.Error(), "Options.Reopen gave no other one") {
					t.Errorf("Receive is answered %v", err)
				}
				if n := b.Stats().Reopened; n != 0 {
					t.Errorf("%d subscriptions are counted as opened", n)
				}
			})
		})
	}
}
