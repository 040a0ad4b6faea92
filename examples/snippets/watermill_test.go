package snippets

import (
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

func TestChargeOnce(t *testing.T) {
	store, err := memstore.New(nil)
	require.NoError(t, err)
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	require.NoError(t, chargeOnce(router, store, pubsub))
	var runs, letters atomic.Int64
	router.AddConsumerHandler("charge", "orders", pubsub, func(msg *message.Message) error {
		runs.Add(1)
		if string(msg.Payload) == "bad" {
			return onceq.Permanent(http402{})
		}
		return nil
	})
	poison, err := pubsub.Subscribe(t.Context(), "orders-poison")
	require.NoError(t, err)
	go func() {
		for m := range poison {
			letters.Add(1)
			m.Ack()
		}
	}()
	ended := make(chan error)
	go func() { ended <- router.Run(t.Context()) }()
	<-router.Running()
	for _, body := range []string{"good", "good", "bad", "bad"} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(body))
		msg.Metadata.Set("order", body)
		require.NoError(t, pubsub.Publish("orders", msg))
	}
	require.NoError(t, pubsub.Publish("orders", message.NewMessage("u", []byte("no order"))))
	require.NoError(t, router.Close())
	require.NoError(t, <-ended)
	require.EqualValues(t, 2, runs.Load())
	require.EqualValues(t, 3, letters.Load())
}

type http402 struct{}

func (http402) Error() string { return "402: payment required" }

// A message has the same key, whoever takes it.
func TestSharedKeys(t *testing.T) {
	msg := message.NewMessage("u", nil)
	msg.Metadata.Set("order", "7")
	h, err := handlersKey(msg)
	require.NoError(t, err)
	w, err := workersKey(&broker.Message{Attributes: map[string]string{"order": "7"}})
	require.NoError(t, err)
	require.Equal(t, dedupe.Key{Scope: "orders", Key: w.Key}, h)
	_, err = workersKey(&broker.Message{})
	require.Error(t, err)
	_, err = handlersKey(message.NewMessage("u", nil))
	require.Error(t, err)
}
