package watermillonceq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// A Publisher sends a message that it is given again as the same job.
func TestPublishAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var process onceqtest.Process
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		b := through(&process)(q.b)
		pub, err := watermillonceq.NewPublisher(func(string) (broker.Broker, error) { return b, nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		msg := &message.Message{UUID: "u-1"} // without metadata
		process.At(onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.LoseReply})
		if err := pub.Publish("t", msg); !errors.Is(err, onceqtest.ErrFault) || !strings.Contains(err.Error(), "message 0 of 1") {
			t.Error("the first answer is", err)
		}
		if err := pub.Publish("t", msg); err != nil {
			t.Error(err)
		}
		ms, err := q.b.Receive(t.Context(), broker.ReceiveOptions{Max: 10})
		if err != nil || len(ms) != 2 || ms[0].Meta.Key == "" || ms[0].Meta.Key != ms[1].Meta.Key {
			t.Fatal("the queue has", ms, err)
		}
		if ms[0].Attributes[watermillonceq.UUIDAttribute] != "u-1" {
			t.Error("the attributes are", ms[0].Attributes)
		}
	})
}

// A message that was received is sent on as another job, unless its key is set.
func TestPublishReceived(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{})
		s, ms := q.subscribe(watermillonceq.SubscriberOptions{}, nil)
		w.publish(q.pub, "t", keyed("order-7"))
		msg := <-ms
		msg.Ack()
		first, err := watermillonceq.KeyFromMetadata(msg)
		if err != nil || first != (dedupe.Key{Key: "order-7"}) {
			t.Error("the key is", first, err)
		}
		w.publish(q.pub, "t", msg.Copy(), msg.Copy())
		keys := map[dedupe.Key]bool{first: true}
		for range 2 {
			msg := <-ms
			k, err := watermillonceq.KeyFromMetadata(msg)
			if err != nil {
				t.Error(err)
			}
			keys[k] = true
			msg.Ack()
		}
		if len(keys) != 3 {
			t.Error("the keys are", keys)
		}
		q.closeTimed(s)
	})
}

func TestPublishRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		q := w.queue(membroker.Options{}, watermillonceq.PublisherOptions{
			Prepare: func(_ string, m *message.Message, out *broker.Outgoing) error {
				out.Delay = time.Duration(len(m.Payload)-1) * time.Second
				if string(m.Payload) == "boom" {
					return errBoom
				}
				return nil
			},
		})
		good := func() *message.Message { return message.NewMessage("u", []byte("a")) }
		ended, end := context.WithCancel(t.Context())
		end()
		late := good()
		late.SetContext(ended)
		for want, msg := range map[string]*message.Message{
			"message 1 is nil":           nil,
			"context canceled":           late,
			"Prepare: boom":              message.NewMessage("u", []byte("boom")),
			"Delay is -1s":               message.NewMessage("u", nil),
			"UUID has 1 bytes":           message.NewMessage("\xff", []byte("a")),
			"watermillonceq: message 1:": message.NewMessage(strings.Repeat("u", 1025), []byte("a")),
		} {
			err := q.pub.Publish("t", good(), msg)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q: %v", want, err)
			}
		}
		q.wantDepth(0, 0, 0)
		if err := q.pub.Publish("t"); err != nil {
			t.Error("nothing to publish:", err)
		}
		if err := q.pub.Close(); err != nil {
			t.Error(err)
		}
		if err := q.pub.Publish("t", good()); !errors.Is(err, watermillonceq.ErrClosed) {
			t.Error("after Close:", err)
		}
	})
}
