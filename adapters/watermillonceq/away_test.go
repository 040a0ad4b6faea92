package watermillonceq_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

// The broker is away for a while: what was acked meanwhile is acked when it is back, and does not
// come again; then the subscription goes on.
func TestBrokerAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var process onceqtest.Process
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		q.publishTexts("a", "b")
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, through(&process))
		a, b := <-ms, <-ms
		process.At(onceqtest.Fault{Kind: onceqtest.Fail, For: 20 * time.Second})
		a.Ack()
		b.Nack()
		takes(5 * time.Second)
		q.wantDepth(0, 2, 0)
		again := <-ms
		if again.UUID != b.UUID {
			t.Error("another message came:", again.UUID)
		}
		again.Ack()
		takes(5 * time.Minute)
		q.wantDepth(0, 0, 0)
		q.publishTexts("c")
		(<-ms).Ack()
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

// A broker that does not wait for messages is asked with pauses.
func TestBrokerDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		hasty := &hastyBroker{Broker: q.b}
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, func(broker.Broker) broker.Broker { return hasty })
		takes(time.Minute)
		if n := hasty.receives.Load(); n > 150 {
			t.Errorf("%d receives in a minute", n)
		}
		q.publishTexts("a")
		(<-ms).Ack()
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

type hastyBroker struct {
	broker.Broker
	receives atomic.Int64
}

func (b *hastyBroker) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	b.receives.Add(1)
	o.Wait = 0
	return b.Broker.Receive(ctx, o)
}

// The broker stays away while Close drains: Close ends all the same.
func TestBrokerAwayWhileClosing(t *testing.T) {
	for most, kind := range map[time.Duration]onceqtest.Fault{
		10 * time.Second: {Kind: onceqtest.Fail},
		20 * time.Second: {Kind: onceqtest.Slow, Delay: time.Hour}, // each call takes a CallTimeout
	} {
		bubble(t, func(t *testing.T, w *world) {
			var process onceqtest.Process
			q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
			q.publishTexts("a", "b", "c")
			s, ms := q.subscribe(watermillonceq.SubscriberOptions{CloseTimeout: 10 * time.Second}, through(&process))
			m := <-ms
			<-ms
			kind.For = time.Hour
			process.At(kind)
			m.Ack()
			if took := q.closeTimed(s); took > most {
				t.Errorf("%v: Close took %v", kind, took)
			}
			takes(2 * time.Hour)
			q.wantDepth(3, 0, 0)
		})
	}
}
