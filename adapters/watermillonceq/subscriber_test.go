package watermillonceq_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

// queue is a queue in memory with a Publisher on it.
type queue struct {
	*world
	b   *membroker.Broker
	pub *watermillonceq.Publisher
}

func (w *world) queue(o membroker.Options, p watermillonceq.PublisherOptions) *queue {
	w.Helper()
	b, err := membroker.New(&o)
	if err != nil {
		w.Fatal(err)
	}
	q := &queue{world: w, b: b}
	if q.pub, err = watermillonceq.NewPublisher(q.open, &p); err != nil {
		w.Fatal(err)
	}
	return q
}

func (q *queue) open(string) (broker.Broker, error) { return q.b, nil }

// publishTexts sends messages with these payloads.
func (q *queue) publishTexts(payloads ...string) {
	q.Helper()
	for _, p := range payloads {
		q.publish(q.pub, "t", message.NewMessage(watermill.NewUUID(), []byte(p)))
	}
}

// subscribe subscribes to the queue, or to what wrap makes of it.
func (q *queue) subscribe(o watermillonceq.SubscriberOptions, wrap func(broker.Broker) broker.Broker) (*watermillonceq.Subscriber, <-chan *message.Message) {
	q.Helper()
	open := q.open
	if wrap != nil {
		b := wrap(q.b)
		open = func(string) (broker.Broker, error) { return b, nil }
	}
	s, err := watermillonceq.NewSubscriber(open, &o)
	if err != nil {
		q.Fatal(err)
	}
	ms, err := s.Subscribe(q.Context(), "t")
	if err != nil {
		q.Fatal(err)
	}
	return s, ms
}

// through is a broker whose calls a process makes.
func through(p *onceqtest.Process) func(broker.Broker) broker.Broker {
	return func(b broker.Broker) broker.Broker { return &ofProcess{p.Receiver(b), p.Producer(b)} }
}

type ofProcess struct {
	broker.Receiver
	sender broker.Sender
}

func (b *ofProcess) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	return b.sender.Send(ctx, ms)
}

// closeTimed closes a Subscriber, and tells how long that took.
func (q *queue) closeTimed(s *watermillonceq.Subscriber) time.Duration {
	q.Helper()
	begin := time.Now()
	if err := s.Close(); err != nil {
		q.Error(err)
	}
	return time.Since(begin)
}

func (q *queue) wantDepth(visible, inFlight, delayed int64) {
	q.Helper()
	d, err := q.b.Depth(context.Background())
	if want := (broker.Depth{Visible: visible, InFlight: inFlight, Delayed: delayed}); err != nil || d != want {
		q.Errorf("the queue has %+v, want %+v (%v)", d, want, err)
	}
}

// A message that is worked on for twenty times its visibility is delivered once.
func TestHeartbeat(t *testing.T) {
	for _, preset := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.PubSub} {
		bubble(t, func(t *testing.T, w *world) {
			q := w.queue(membroker.Options{Preset: preset}, watermillonceq.PublisherOptions{})
			s, ms := q.subscribe(watermillonceq.SubscriberOptions{Concurrency: 1}, nil)
			other, others := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
			q.publishTexts("a")
			var msg *message.Message
			select {
			case msg = <-ms:
			case msg = <-others:
			}
			select {
			case <-ms:
				t.Error("it came again")
			case <-others:
				t.Error("it came again, elsewhere")
			case <-time.After(10 * time.Minute):
			}
			if msg.Context().Err() != nil {
				t.Error("the context has ended")
			}
			msg.Ack()
			takes(time.Second)
			if msg.Context().Err() == nil {
				t.Error("the context goes on after the Ack")
			}
			q.closeTimed(s)
			q.closeTimed(other)
			q.wantDepth(0, 0, 0)
		})
	}
}

// A message that is held for longer than the broker can hold one comes again, and not before.
func TestLongestHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{Preset: membroker.SQSStandard}, watermillonceq.PublisherOptions{})
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		q.publishTexts("a")
		<-ms
		begin := time.Now()
		again := <-ms
		if took, most := time.Since(begin), q.b.Limits().MaxTotal; took < most-5*time.Second || took > most+time.Second {
			t.Errorf("it came again after %v, of %v", took, most)
		}
		again.Ack()
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

// Close gives back what was not handed on, waits for the Ack of what was, and then closes the
// channel.
func TestCloseDrains(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		q.publishTexts("a", "b", "c", "d", "e")
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		acked, nacked := <-ms, <-ms
		takes(time.Second)
		q.wantDepth(0, 5, 0)
		closed := make(chan time.Duration)
		go func() { closed <- q.closeTimed(s) }()
		takes(time.Second)
		if acked.Context().Err() == nil {
			t.Error("the context has not ended with the subscription")
		}
		q.wantDepth(3, 2, 0)
		takes(9 * time.Second)
		acked.Ack()
		nacked.Nack()
		if _, open := <-ms; open {
			t.Error("a message came from a subscription that was closed")
		}
		if took := <-closed; took < 10*time.Second || took > 11*time.Second {
			t.Errorf("Close took %v", took)
		}
		q.wantDepth(3, 0, 1)
		if _, err := s.Subscribe(t.Context(), "t"); !errors.Is(err, watermillonceq.ErrClosed) {
			t.Error("a subscription after Close:", err)
		}
	})
}

// A consumer that neither acks nor nacks holds Close up for CloseTimeout, and its message until the
// visibility is over.
func TestCloseLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		q.publishTexts("a")
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{CloseTimeout: 2 * time.Minute}, nil)
		<-ms
		takes(time.Second)
		if took := q.closeTimed(s); took != 2*time.Minute {
			t.Errorf("Close took %v", took)
		}
		q.wantDepth(0, 1, 0)
		takes(watermillonceq.DefaultVisibility)
		q.wantDepth(1, 0, 0)
	})
}

// A subscription whose own context ends does the same, and the others of its Subscriber go on.
func TestSubscriptionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		type name struct{}
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		s, err := watermillonceq.NewSubscriber(q.open, &watermillonceq.SubscriberOptions{Grace: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(context.WithValue(t.Context(), name{}, "value"))
		ms, err := s.Subscribe(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		q.publishTexts("a")
		msg := <-ms
		end()
		takes(9 * time.Second)
		if msg.Context().Err() != nil || msg.Context().Value(name{}) != "value" {
			t.Error("within its Grace the context is", msg.Context())
		}
		takes(2 * time.Second)
		if msg.Context().Err() == nil {
			t.Error("the context goes on after Grace")
		}
		others, err := s.Subscribe(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		msg.Nack()
		if _, open := <-ms; open {
			t.Error("another message came")
		}
		again := <-others
		again.Ack()
		if again.UUID != msg.UUID {
			t.Error("another message:", again.UUID)
		}
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

// A nacked message is hidden, longer each time.
func TestBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		q.publishTexts("a")
		last := time.Now()
		for n, least := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			msg := <-ms
			if took := time.Since(last); took < least/2 || took > least+time.Millisecond {
				t.Errorf("delivery %d came after %v, want %v to %v", n+1, took, least/2, least)
			}
			last = time.Now()
			msg.Nack()
		}
		(<-ms).Ack()
		q.closeTimed(s)
	})
}

// Messages of a group come one by one, in their order; the groups beside each other. After a nack
// the group goes on with the nacked message.
func TestGroups(t *testing.T) {
	for _, preset := range []membroker.Preset{membroker.Memory, membroker.SQSFIFO, membroker.PubSub} {
		bubble(t, func(t *testing.T, w *world) {
			q := w.queue(membroker.Options{Preset: preset}, watermillonceq.PublisherOptions{
				Prepare: func(_ string, m *message.Message, out *broker.Outgoing) error {
					out.Group = string(m.Payload[:1])
					return nil
				},
			})
			q.publishTexts("a1", "a2", "a3", "b1", "b2", "c1")
			s, ms := q.subscribe(watermillonceq.SubscriberOptions{Backoff: func(int) time.Duration { return time.Second }}, nil)
			var got []string
			held := map[string]*message.Message{}
			for range 3 {
				m := <-ms
				held[string(m.Payload)] = m
			}
			if held["a1"] == nil || held["b1"] == nil || held["c1"] == nil {
				t.Fatal("first came", held)
			}
			select {
			case m := <-ms:
				t.Errorf("%s came before its predecessor's end", m.Payload)
			case <-time.After(5 * time.Minute):
			}
			held["c1"].Ack()
			held["b1"].Ack()
			held["a1"].Nack()
			for range 4 {
				m := <-ms
				got = append(got, string(m.Payload))
				m.Ack()
			}
			slices.SortStableFunc(got, func(a, b string) int { return cmp.Compare(a[0], b[0]) })
			if fmt.Sprint(got) != "[a1 a2 a3 b2]" {
				t.Errorf("%v: then came %v", preset, got)
			}
			q.closeTimed(s)
			q.wantDepth(0, 0, 0)
		})
	}
}

// Close, while messages wait behind others of their group: they go back and keep their order.
func TestGroupsClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{Preset: membroker.SQSFIFO}, watermillonceq.PublisherOptions{
			Prepare: func(_ string, _ *message.Message, out *broker.Outgoing) error { out.Group = "g"; return nil },
		})
		q.publishTexts("1", "2", "3")
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		first := <-ms
		time.AfterFunc(time.Second, func() { first.Ack() })
		q.closeTimed(s)
		s, ms = q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		for _, want := range []string{"2", "3"} {
			m := <-ms
			if string(m.Payload) != want {
				t.Errorf("%s came, want %s", m.Payload, want)
			}
			m.Ack()
		}
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

// A job that may not start yet is not handed on, nor what stands behind it in its group.
func TestNotBefore(t *testing.T) {
	for _, group := range []string{"", "g"} {
		bubble(t, func(t *testing.T, w *world) {
			q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
			begin := time.Now()
			ms := []broker.Outgoing{
				{Body: []byte("1"), Group: group, Meta: &broker.Meta{NotBefore: begin.Add(time.Minute)}},
				{Body: []byte("2"), Group: group},
			}
			if err := onceq.Send(t.Context(), q.b, ms); err != nil {
				t.Fatal(err)
			}
			s, in := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
			at := map[string]time.Duration{}
			for range 2 {
				m := <-in
				at[string(m.Payload)] = time.Since(begin)
				m.Ack()
			}
			if at["1"] < time.Minute || at["1"] > time.Minute+time.Second || (group != "") != (at["2"] >= at["1"]) {
				t.Errorf("group %q: they came after %v", group, at)
			}
			q.closeTimed(s)
		})
	}
}

// The broker delivers a message again although it is held: both deliveries come, and the middleware
// lets one of them work.
func TestLostDelivery(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var process onceqtest.Process
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, through(&process))
		once := w.once(watermillonceq.Options{Wait: 10 * time.Minute})
		runs := 0
		h := once(func(msg *message.Message) ([]*message.Message, error) {
			runs++
			takes(2 * time.Minute)
			return nil, msg.Context().Err()
		})
		q.publishTexts("a")
		process.At(onceqtest.Fault{Op: onceqtest.Extend, Kind: onceqtest.Fail, For: 35 * time.Second})
		for range 2 {
			msg := <-ms
			go func() {
				if _, err := h(msg); err != nil {
					t.Error(err)
					msg.Nack()
					return
				}
				msg.Ack()
			}()
		}
		takes(10 * time.Minute)
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
		q.closeTimed(s)
		q.wantDepth(0, 0, 0)
	})
}

// A Worker and a Watermill handler share a queue and its keys.
func TestBesideAWorker(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		var mu sync.Mutex
		effects := map[string]int{}
		happens := func(key string) {
			mu.Lock()
			defer mu.Unlock()
			effects[key]++
		}
		p, err := onceq.NewProcessor(onceq.ProcessorConfig{
			Store: w.store, Scope: "orders",
			Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
				happens(j.Key().Key)
				if string(j.Message.Body) == "of Watermill" && j.Message.Attributes["who"] != "Zoë" {
					t.Error("the worker sees", j.Message.Attributes)
				}
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		once := w.onceAs(p, watermillonceq.Options{Key: watermillonceq.InScope("orders", watermillonceq.KeyFromMetadata)})
		h := once(func(msg *message.Message) ([]*message.Message, error) {
			k, err := watermillonceq.KeyFromMetadata(msg)
			happens(k.Key)
			return nil, err
		})
		send := func() {
			for i := range 10 {
				key := fmt.Sprint("order-", i)
				m := keyed(key)
				m.Payload = []byte("of Watermill")
				m.Metadata.Set("who", "Zoë")
				w.publish(q.pub, "t", m)
				out := onceq.Message("", key, []byte("of a producer of onceq's"))
				if err := onceq.SendOne(t.Context(), q.b, &out); err != nil {
					t.Fatal(err)
				}
			}
		}
		send()
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		for range 10 { // half of the messages by Watermill, the rest by the worker
			msg := <-ms
			if _, err := h(msg); err != nil {
				t.Error(err)
			}
			msg.Ack()
		}
		q.closeTimed(s)
		worker, err := p.Worker(q.b, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
		q.wantDepth(0, 0, 0)
		if len(effects) != 10 {
			t.Error("effects:", effects)
		}
		for k, n := range effects {
			if n != 1 {
				t.Errorf("%s had %d effects", k, n)
			}
		}
	})
}

func TestNewSubscriberRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{Preset: membroker.SQSStandard}, watermillonceq.PublisherOptions{})
		if _, err := watermillonceq.NewSubscriber(nil, nil); err == nil {
			t.Error("it takes no function")
		}
		if _, err := watermillonceq.NewPublisher(nil, nil); err == nil {
			t.Error("a Publisher takes no function")
		}
		for want, o := range map[string]watermillonceq.SubscriberOptions{
			"Concurrency: -1 is not":           {Concurrency: -1},
			"Concurrency: 100001":              {Concurrency: 100_001},
			"Visibility: 5ns":                  {Visibility: 5},
			"Grace: -1s":                       {Grace: -time.Second},
			"Grace: 5ns":                       {Grace: 5},
			"Grace: 30s is not less":           {Grace: 30 * time.Second},
			"CloseTimeout: 5ns":                {CloseTimeout: 5},
			"CallTimeout: -1s":                 {CallTimeout: -time.Second},
			"Visibility: 13h0m0s is not withi": {Visibility: 13 * time.Hour},
		} {
			s, err := watermillonceq.NewSubscriber(q.open, &o)
			if err == nil {
				_, err = s.Subscribe(t.Context(), "t")
			}
			if err == nil || !strings.Contains(err.Error(), "SubscriberOptions."+want) {
				t.Errorf("want %q: %v", want, err)
			}
		}
		s, err := watermillonceq.NewSubscriber(func(topic string) (broker.Broker, error) {
			if topic == "nil" {
				return nil, nil
			}
			return nil, errBoom
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SubscribeInitialize("x"); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), `"x"`) {
			t.Error("a topic that does not open:", err)
		}
		if _, err := s.Subscribe(t.Context(), "nil"); err == nil {
			t.Error("a broker that is nil")
		}
	})
}
