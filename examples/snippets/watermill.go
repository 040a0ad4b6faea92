package snippets

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/watermillonceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

func chargeOnce(router *message.Router, store dedupe.Store, poison message.Publisher) error {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "orders"})
	if err != nil {
		return err
	}
	once, err := watermillonceq.NewMiddleware(p, &watermillonceq.Options{Key: orderNumber})
	if err != nil {
		return err
	}
	letters, err := middleware.PoisonQueueWithFilter(poison, "orders-poison", watermillonceq.IsFinal)
	if err != nil {
		return err
	}
	router.AddMiddleware(letters, middleware.Recoverer, once)
	return nil
}

func orderNumber(msg *message.Message) (dedupe.Key, error) {
	order := msg.Metadata.Get("order")
	if order == "" {
		return dedupe.Key{}, errors.New("no order in the metadata")
	}
	return dedupe.Key{Key: order}, nil
}

// The worker's Key, and the middleware's, while both take messages of the queue.
func workersKey(m *broker.Message) (dedupe.Key, error) {
	if m.Attributes["order"] == "" {
		return dedupe.Key{}, errors.New("no order in the attributes")
	}
	return dedupe.Key{Key: m.Attributes["order"]}, nil
}

var handlersKey = watermillonceq.InScope("orders", orderNumber)
