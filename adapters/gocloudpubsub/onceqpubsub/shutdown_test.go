package onceqpubsub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gocloud.dev/pubsub/driver"

	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// This file tests the calls that gocloud makes of a subscription's driver at its end, and those
// that it never makes. lease_test.go has the queue and the bubble. Each test has its own
// subscription, so nothing is locked here.

// What gocloud itself never does: more than the broker brings, acks again, and a context that has
// ended.
func TestCalls(t *testing.T) {
	b := must.Get(membroker.New(nil))
	queue := &hooked{Broker: b}
	s, err := onceqpubsub.SubscriptionDriver(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	(&leased{T: t, plain: b}).put("a")
	ms, err := s.ReceiveBatch(t.Context(), 3000)
	if err != nil || len(ms) != 1 {
		t.Fatalf("got %v and %v", ms, err)
	}
	for range 2 {
		if err := s.SendAcks(t.Context(), []driver.AckID{ms[0].AckID, "nobody's"}); err != nil {
			t.Error(err)
		}
	}
	if queue.asked() != 1 {
		t.Errorf("the broker was asked %d times", queue.asked())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if ms, err := s.ReceiveBatch(ended, 1); ms != nil || err != nil {
		t.Errorf("got %v and %v", ms, err)
	}
	for _, nothing := range []any{(*broker.Receiver)(nil), (*context.Context)(nil), 7} {
		if s.As(nothing) || ms[0].AsFunc(nothing) {
			t.Errorf("As gave something for %T", nothing)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.ReceiveBatch(t.Context(), 1); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// Shutdown gives back what gocloud fetched ahead. gocloud leaves a goroutine behind where nobody
// took that, so this is no bubble; nothing waits for a lease.
func TestShutdownHandsBack(t *testing.T) {
	b := must.Get(membroker.New(nil))
	queue := &hooked{Broker: b}
	sub := must.Get(onceqpubsub.OpenSubscription(queue, nil))
	l := &leased{T: t, plain: b, sub: sub}
	for i := range 200 {
		l.put(fmt.Sprint(i))
	}
	for range 100 {
		l.take().Ack()
	}
	l.take() // never settled
	if err := sub.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	l.depth(broker.Depth{Visible: 100})
	for range 100 {
		ms, err := b.Receive(context.Background(), broker.ReceiveOptions{Max: 1})
		if err != nil || len(ms) != 1 {
			t.Fatalf("got %v and %v", ms, err)
		}
	}
}

func TestShutdownDuringReceive(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.ends = true
		held := make(chan struct{})
		l.queue.receive = func() error {
			<-held // the call is on its way; it ends after Shutdown began, with a message
			return nil
		}
		l.queue.Broker = deaf{l.plain}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := l.sub.Receive(ctx); err == nil {
			t.Fatal("received")
		}
		l.put("late")
		time.AfterFunc(2*time.Second, func() { close(held) })
		began := time.Now()
		if err := l.sub.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("Shutdown took %v, want until the receive ended", d)
		}
		l.depth(broker.Depth{Visible: 1})
	})
}

// deaf goes on with a receive whose context has ended, and brings what it found.
type deaf struct{ broker.Broker }

func (d deaf) Receive(_ context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	return d.Broker.Receive(context.Background(), o)
}

// cutShort is what Shutdown answers when its context ended. gocloud ends its own context of acks by
// then, and answers with whichever it sees first.
func cutShort(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// An ack that could not be told in time is told once more, and its message is not handed back.
func TestShutdownWithAcksLeft(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.ends = true
		l.put("done")
		m := l.take()
		back := time.Now().Add(3 * time.Second)
		l.queue.ack = func([]broker.Receipt) error {
			if time.Now().Before(back) {
				return errAway
			}
			return nil
		}
		m.Ack()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := l.sub.Shutdown(ctx); !cutShort(err) {
			t.Errorf("Shutdown: %v", err)
		}
		later(2 * leaseTime)
		l.depth(broker.Depth{})
	})
}

// Shutdown tells an ack once more also where the message's lease was lost meanwhile: the lease may
// have been lost by a beat that came after an ack whose answer was.
func TestShutdownWithAnAckAndALostLease(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.ends = true
		l.put("done")
		m := l.take()
		end := time.Now().Add(8 * time.Second)
		l.queue.ack = func([]broker.Receipt) error {
			if time.Now().Before(end) {
				return errAway
			}
			return nil
		}
		l.queue.mu.Lock()
		l.queue.extendErr = func() error { return broker.ErrReceiptExpired }
		l.queue.mu.Unlock()
		m.Ack()
		later(5 * time.Second)
		ctx, cancel := context.WithDeadline(context.Background(), end)
		defer cancel()
		if err := l.sub.Shutdown(ctx); !cutShort(err) {
			t.Errorf("Shutdown: %v", err)
		}
		later(2 * leaseTime)
		l.depth(broker.Depth{})
		if !strings.Contains(l.log.String(), "lease was lost") { // now that nobody writes to it
			t.Errorf("the lease was not lost, so there is nothing to test: %s", l.log)
		}
	})
}

// An ack that never passes has no more beats after Shutdown.
func TestShutdownWithAnAckThatFails(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.ends = true
		l.put("done")
		l.queue.ack = func([]broker.Receipt) error { return errAway }
		l.take().Ack()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := l.sub.Shutdown(ctx); !cutShort(err) {
			t.Errorf("Shutdown: %v", err)
		}
		later(2 * leaseTime)
		l.depth(broker.Depth{Visible: 1})
	})
}

// A Shutdown while the service is away ends, and says so in the log.
func TestShutdownWhileAway(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.ends = true
		l.put("a", "b")
		l.take()
		l.queue.Broker = hung{l.plain}
		began := time.Now()
		if err := l.sub.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > 21*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
		if !strings.Contains(l.log.String(), "could not settle") {
			t.Errorf("the log: %s", l.log)
		}
		later(2 * leaseTime)
		l.depth(broker.Depth{Visible: 2})
	})
}

// hung answers no nack before its context ends.
type hung struct{ broker.Broker }

func (hung) Nack(ctx context.Context, _ []broker.Hold) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
