package gocloudpubsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"
	"gocloud.dev/pubsub/driver"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
)

// tiny is a queue in memory behind a driver of its own, for what gocloud's drivers do not do when
// they are asked to: acks that fail for good, no nacks, extensions. Its own methods are the
// topic's; each subscription is one of its windows. q.mu guards all.
type tiny struct {
	visibility time.Duration
	noNack     bool

	mu       sync.Mutex
	messages []*tinyMessage
	n        int
	acks     int
	received int
	failAck  func(call int) error
	// failSend answers a message of a SendBatch.
	failSend func(body string) error
	receives int
	// failReceive answers a ReceiveBatch, before it looks.
	failReceive func(call int) error
	open        int // subscriptions
	all         []*pubsub.Subscription
}

type tinyMessage struct {
	id     string
	body   []byte
	as     map[string]string
	hidden time.Time
	round  int
}

// tinyDelivery is what As gives.
type tinyDelivery struct {
	m     *tinyMessage
	round int
}

var errForGood = errors.New("it failed for good")

func (q *tiny) SendBatch(_ context.Context, ms []*driver.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range ms {
		if q.failSend != nil {
			if err := q.failSend(string(m.Body)); err != nil {
				return err
			}
		}
		q.n++
		q.messages = append(q.messages, &tinyMessage{id: fmt.Sprint("tiny-", q.n), body: m.Body, as: m.Metadata})
	}
	return nil
}

func (*tiny) Close() error                           { return nil }
func (*tiny) IsRetryable(error) bool                 { return false }
func (*tiny) As(any) bool                            { return false }
func (*tiny) ErrorAs(error, any) bool                { return false }
func (*tiny) ErrorCode(err error) gcerrors.ErrorCode { return gcerrors.Unknown }

func (q *tiny) topic() *pubsub.Topic { return pubsub.NewTopic(q, nil) }

func (q *tiny) subscribe(receives *batcher.Options) *pubsub.Subscription {
	s := pubsub.NewSubscription(&tinyWindow{tiny: q}, receives, nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open++
	q.all = append(q.all, s)
	return s
}

func (q *tiny) windows() []*pubsub.Subscription {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.all)
}

type tinyWindow struct {
	*tiny
	closed bool
}

func (w *tinyWindow) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.open--
	}
	w.closed = true
	return nil
}

func (w *tinyWindow) ReceiveBatch(ctx context.Context, most int) (out []*driver.Message, err error) {
	for i := range 20 {
		w.mu.Lock()
		if w.receives++; i == 0 && w.failReceive != nil {
			if err := w.failReceive(w.receives); err != nil {
				w.mu.Unlock()
				return nil, err
			}
		}
		for _, m := range w.messages {
			if len(out) == most || time.Now().Before(m.hidden) {
				continue
			}
			m.round++
			w.received++
			m.hidden = time.Now().Add(w.visibility)
			d := tinyDelivery{m, m.round}
			out = append(out, &driver.Message{
				LoggableID: m.id, Body: m.body, Metadata: m.as, AckID: d,
				AsFunc: func(i any) bool {
					p, ok := i.(*tinyDelivery)
					if ok {
						*p = d
					}
					return ok
				},
			})
		}
		w.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

func (w *tinyWindow) SendAcks(_ context.Context, ids []driver.AckID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks++
	if w.failAck != nil {
		if err := w.failAck(w.acks); err != nil {
			return err
		}
	}
	for _, id := range ids {
		w.messages = slices.DeleteFunc(w.messages, func(m *tinyMessage) bool { return m == id.(tinyDelivery).m })
	}
	return nil
}

func (w *tinyWindow) CanNack() bool { return !w.noNack }

func (w *tinyWindow) SendNacks(_ context.Context, ids []driver.AckID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if d := id.(tinyDelivery); d.round == d.m.round {
			d.m.hidden = time.Time{}
		}
	}
	return nil
}

// extend is what an Extender of this queue calls.
func (q *tiny) extend(_ context.Context, ms []*pubsub.Message, d time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	errs := make([]error, len(ms))
	for i, m := range ms {
		var of tinyDelivery
		if !m.As(&of) || of.round != of.m.round || !time.Now().Before(of.m.hidden) {
			errs[i] = broker.ErrReceiptExpired
			continue
		}
		of.m.hidden = time.Now().Add(d)
	}
	return broker.JoinEntries(errs)
}

func (q *tiny) extender() *gocloudpubsub.Extender {
	return &gocloudpubsub.Extender{Extend: q.extend, MinHold: time.Second, MaxHold: time.Hour}
}

// held and visible count the messages.
func (q *tiny) count() (held, visible int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		if time.Now().Before(m.hidden) {
			held++
			continue
		}
		visible++
	}
	return held, visible
}

// deliveries is how often a message was received.
func (q *tiny) deliveries() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.received
}

// broker makes a Broker on the queue.
func (q *tiny) broker(t testing.TB, receives *batcher.Options, set func(*gocloudpubsub.Options)) *gocloudpubsub.Broker {
	o := gocloudpubsub.Options{
		Visibility: q.visibility,
		Reopen:     func(context.Context) (*pubsub.Subscription, error) { return q.subscribe(receives), nil },
	}
	if set != nil {
		set(&o)
	}
	return makeBroker(t, q.topic(), q.subscribe(receives), o)
}

// TestConformanceExtender checks the Broker with an Extender of the user's.
func TestConformanceExtender(t *testing.T) {
	h := brokertest.Harness{
		Slack: 51 * time.Millisecond, Known: map[string]string{"published-is-the-send": untold}, StaleReceiptsVoid: true,
		Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
			q := &tiny{visibility: o.Visibility}
			b := q.broker(t, new(gocloudpubsub.NoPrefetch()), func(o *gocloudpubsub.Options) { o.Extender = q.extender() })
			return brokertest.Queue{Broker: b, Close: func() error {
				letGo(q.windows()...)
				return b.Close()
			}}
		},
	}
	virtual(&h)
	h.StaleReceiptsVoid = false // an ack removes the message in any case
	brokertest.Run(t, h)
}
