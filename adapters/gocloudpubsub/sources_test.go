package gocloudpubsub_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/broker"
)

// This file tests what becomes of subscriptions, and of the messages that gocloud holds, around a
// failure and at Close. All of it plays in virtual time.

// count of the subscriptions that are open.
func (q *tiny) subscriptions() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open
}

func receiveOne(t *testing.T, b broker.Receiver) *broker.Message {
	t.Helper()
	ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
	if err != nil || len(ms) != 1 {
		t.Fatalf("Receive was answered %d messages, %v", len(ms), err)
	}
	return ms[0]
}

// A subscription that failed has a delivery that nobody settles. Close ends it, too.
func TestCloseEndsOldSubscriptions(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: 10 * time.Second}
		sub := q.subscribe(new(gocloudpubsub.NoPrefetch()))
		b := makeBroker(t, q.topic(), sub, gocloudpubsub.Options{
			Visibility: q.visibility,
			Reopen: func(context.Context) (*pubsub.Subscription, error) {
				return q.subscribe(new(gocloudpubsub.NoPrefetch())), nil
			},
		})
		send(t, b, 2)
		receiveOne(t, b)
		// The window fails while its delivery is open.
		q.mu.Lock()
		q.failReceive = func(call int) error { return errForGood }
		q.mu.Unlock()
		if _, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1}); err == nil {
			t.Fatal("the subscription has not failed")
		}
		q.mu.Lock()
		q.failReceive = nil
		q.mu.Unlock()
		receiveOne(t, b)
		if n := q.subscriptions(); n < 2 {
			t.Fatalf("%d subscriptions are open, so there is nothing to test", n)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if n := q.subscriptions(); n != 0 {
			t.Errorf("after Close %d subscriptions are open", n)
		}
	})
}

// Close comes while Reopen runs, which gives a subscription even so. Both are shut down.
func TestCloseDuringReopen(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: 10 * time.Second}
		sub := q.subscribe(new(gocloudpubsub.NoPrefetch()))
		q.failReceive = func(int) error { return errForGood }
		b := makeBroker(t, q.topic(), sub, gocloudpubsub.Options{
			Visibility: q.visibility,
			Reopen: func(context.Context) (*pubsub.Subscription, error) {
				<-time.After(3 * time.Second)
				return q.subscribe(new(gocloudpubsub.NoPrefetch())), nil
			},
		})
		done := make(chan error, 1)
		go func() {
			_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
			done <- err
		}()
		<-time.After(time.Second)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, broker.ErrClosed) {
			t.Errorf("Receive was answered %v", err)
		}
		synctest.Wait()
		if n := q.subscriptions(); n != 0 {
			t.Errorf("after Close %d subscriptions are open", n)
		}
	})
}

// A Broker that never received has nothing to give back, so its Close takes nothing.
func TestCloseTakesNothingUnasked(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: time.Hour}
		b := q.broker(t, nil, nil)
		send(t, b, 20)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if n := q.deliveries(); n != 0 {
			t.Errorf("Close has received %d messages", n)
		}
	})
}

// A delivery of a subscription that failed is never settled. Its subscription is shut down after it
// has run out.
func TestLapsedDeliveryKeepsNoSubscription(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: 10 * time.Second}
		b := q.broker(t, new(gocloudpubsub.NoPrefetch()), nil)
		send(t, b, 1)
		receiveOne(t, b)
		for range 3 {
			q.mu.Lock()
			failed := false
			q.failReceive = func(int) error {
				if failed {
					return nil
				}
				failed = true
				return errForGood
			}
			q.mu.Unlock()
			receiveOne(t, b) // and nobody settles it
		}
		<-time.After(30 * time.Second)
		receiveOne(t, b)
		synctest.Wait()
		if n := q.subscriptions(); n != 1 {
			t.Errorf("%d subscriptions are open", n)
		}
	})
}

// Settling and failing at the same time share what is known of the subscription.
func TestSettleDuringReopen(t *testing.T) {
	var calls atomic.Int32
	q := &tiny{visibility: time.Minute}
	b := q.broker(t, new(gocloudpubsub.NoPrefetch()), nil)
	q.mu.Lock()
	q.failReceive = func(int) error {
		if calls.Add(1)%2 == 0 {
			return errForGood
		}
		return nil
	}
	q.mu.Unlock()
	send(t, b, 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			b.Ack(t.Context(), []broker.Receipt{"none"})
		}
	}()
	for range 10 {
		b.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	}
	<-done
}

// A message waits in gocloud while the worker is busy. Nobody is told that it is hidden for longer
// than it is, where gocloud holds one message at most.
func TestDeadlineOfOneThatWaited(t *testing.T) {
	waited := 0
	for _, busy := range []time.Duration{time.Second, 4 * time.Second, 8 * time.Second, 11 * time.Second, time.Minute} {
		t.Run(busy.String(), func(t *testing.T) {
			gocloudtest.Bubble(t, func(t *testing.T) {
				q := &tiny{visibility: 10 * time.Second}
				b := q.broker(t, new(gocloudpubsub.NoPrefetch()), nil)
				send(t, b, 1)
				first, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
				if err != nil || len(first) != 1 {
					t.Fatalf("Receive was answered %d messages, %v", len(first), err)
				}
				if err := b.Ack(t.Context(), []broker.Receipt{first[0].Receipt}); err != nil {
					t.Fatal(err)
				}
				send(t, b, 1) // for gocloud's receive, which the Receive has begun, unless it looked too early
				<-time.After(busy)
				q.mu.Lock()
				held := q.received == 2
				q.mu.Unlock()
				if held {
					waited++
				}
				m := receiveOne(t, b)
				q.mu.Lock()
				hidden := q.messages[0].hidden
				q.mu.Unlock()
				if m.Deadline.After(hidden) {
					t.Errorf("the deadline is in %v, but the message is hidden for %v", time.Until(m.Deadline), time.Until(hidden))
				}
				if late, want := b.Stats().Late, held && busy >= 10*time.Second; late != map[bool]int64{true: 1}[want] {
					t.Errorf("%d messages were late", late)
				}
			})
		})
	}
	if waited == 0 {
		t.Error("no message waited in gocloud: nothing was tested")
	}
}
