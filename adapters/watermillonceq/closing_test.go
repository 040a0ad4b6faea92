package watermillonceq_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
)

// logged counts what is logged.
type logged struct {
	watermill.NopLogger
	n atomic.Int64
}

func (l *logged) Error(string, error, watermill.LogFields) { l.n.Add(1) }

func (l *logged) errors() int64 { return l.n.Load() }

// A Router closes its publishers as soon as a subscription's channel is closed. So the channel
// stays open while handlers end their work, and what they produce is published.
func TestRouterClosesPublisherLast(t *testing.T) {
	inTime(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		made := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		q.publishTexts("a")
		s, err := watermillonceq.NewSubscriber(q.open, &watermillonceq.SubscriberOptions{Grace: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		begun, goOn := make(chan struct{}), make(chan struct{})
		stop := w.router(20*time.Second, func(r *message.Router) {
			r.AddHandler("h", "t", s, "made", made.pub, func(msg *message.Message) ([]*message.Message, error) {
				close(begun)
				<-goOn
				return []*message.Message{message.NewMessage("m", nil)}, nil
			})
		})
		<-begun
		time.AfterFunc(200*time.Millisecond, func() { close(goOn) })
		if err := stop(); err != nil {
			t.Error(err)
		}
		made.wantDepth(1, 0, 0)
		q.wantDepth(0, 0, 0)
	})
}

// hangs is a broker whose acks and nacks are not answered, once it is told so.
type hangs struct {
	broker.Broker
	from chan struct{}
}

func (b *hangs) hang(ctx context.Context) (hung bool) {
	select {
	case <-b.from:
		<-ctx.Done()
		return true
	default:
		return false
	}
}

func (b *hangs) Ack(ctx context.Context, rs []broker.Receipt) error {
	if b.hang(ctx) {
		return ctx.Err()
	}
	return b.Broker.Ack(ctx, rs)
}

func (b *hangs) Nack(ctx context.Context, hs []broker.Hold) error {
	if b.hang(ctx) {
		return ctx.Err()
	}
	return b.Broker.Nack(ctx, hs)
}

func (b *hangs) Extend(ctx context.Context, hs []broker.Hold) error {
	if b.hang(ctx) {
		return ctx.Err()
	}
	return b.Broker.Extend(ctx, hs)
}

// However many acks and nacks wait for a broker that does not answer, Close is bounded.
func TestCloseIsBounded(t *testing.T) {
	for _, ack := range []bool{true, false} {
		bubble(t, func(t *testing.T, w *world) {
			q := w.queue(membroker.Options{Preset: membroker.SQSStandard}, watermillonceq.PublisherOptions{})
			const n = 500
			q.publishTexts(make([]string, n)...)
			b := &hangs{from: make(chan struct{})}
			log := new(logged)
			s, ms := q.subscribe(watermillonceq.SubscriberOptions{Concurrency: n, Logger: log}, func(inner broker.Broker) broker.Broker {
				b.Broker = inner
				return b
			})
			var got []*message.Message
			for range n {
				got = append(got, <-ms)
			}
			close(b.from)
			for _, m := range got {
				if ack {
					m.Ack()
				} else {
					m.Nack()
				}
			}
			if took, most := q.closeTimed(s), watermillonceq.DefaultCloseTimeout+watermillonceq.DefaultCallTimeout; took > most {
				t.Errorf("Close took %v, want %v at most", took, most)
			}
			if log.errors() < n {
				t.Errorf("of %d messages, %d were told of", n, log.errors())
			}
		})
	}
}

// The longest times do not wrap: a nack waits for the extension that is in flight.
func TestLongestTimes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		q.publishTexts("a")
		b := &slowExtend{begun: make(chan struct{})}
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{
			CloseTimeout: math.MaxInt64, Grace: math.MaxInt64 - 1, CallTimeout: math.MaxInt64,
			Backoff: func(int) time.Duration { return 10 * time.Second },
		}, func(inner broker.Broker) broker.Broker {
			b.Broker = inner
			return b
		})
		m := <-ms
		<-b.begun
		m.Nack()
		from := time.Now()
		(<-ms).Ack()
		if took := time.Since(from); took > 15*time.Second {
			t.Errorf("the message came again after %v: an extension has undone its nack", took)
		}
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

// slowExtend is a broker whose first extension takes 4 s to arrive.
type slowExtend struct {
	broker.Broker
	once  sync.Once
	begun chan struct{}
}

func (b *slowExtend) Extend(ctx context.Context, hs []broker.Hold) error {
	b.once.Do(func() {
		close(b.begun)
		takes(4 * time.Second)
	})
	return b.Broker.Extend(ctx, hs)
}

// A Backoff that panics costs no process, and the message comes again.
func TestBackoffPanics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		q.publishTexts("a")
		log := new(logged)
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{Logger: log, Backoff: func(int) time.Duration { panic("no") }}, nil)
		(<-ms).Nack()
		(<-ms).Ack()
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
		if log.errors() != 1 {
			t.Errorf("%d errors were logged", log.errors())
		}
	})
}

// A delivery that is known to be over is not handed on any more: the message is on its way to
// somebody else.
func TestLostBeforeHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		q.publishTexts("a")
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{Concurrency: 1}, func(inner broker.Broker) broker.Broker {
			return &cutOff{Broker: inner, until: time.Now().Add(2 * time.Minute)}
		})
		takes(time.Minute) // nobody reads, and no extension arrives
		other, others := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		(<-others).Ack()
		q.closeTimed(other)
		takes(2 * time.Minute)
		select {
		case <-ms:
			t.Fatal("a message that another consumer has had and acked is handed on")
		case <-time.After(time.Minute):
		}
		q.publishTexts("b")
		(<-ms).Ack()
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

// cutOff is a broker whose extensions fail for a while.
type cutOff struct {
	broker.Broker
	until time.Time
}

func (b *cutOff) Extend(ctx context.Context, hs []broker.Hold) error {
	if time.Now().Before(b.until) {
		return context.DeadlineExceeded
	}
	return b.Broker.Extend(ctx, hs)
}
