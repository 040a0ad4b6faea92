package snippets

import (
	"context"
	"encoding/json"
	"errors"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

func fromGoCloud(ctx context.Context, orders *pubsub.Subscription, store dedupe.Store, ship onceq.HandlerFunc, o gocloudpubsub.Options) error {
	queue, err := gocloudpubsub.New(nil, orders, o)
	if err != nil {
		return err
	}
	jobs, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Store: store, Scope: "orders", Key: gocloudpubsub.KeyOf, Handler: ship,
	})
	if err != nil {
		return err
	}
	worker, err := jobs.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
	if err != nil {
		return err
	}
	return errors.Join(worker.Run(ctx), queue.Close())
}

// oldLoop is gocloud's, with the store of the new workers.
func oldLoop(ctx context.Context, orders *pubsub.Subscription, p *onceq.Processor, ship func(context.Context, []byte) error) error {
	for {
		m, err := orders.Receive(ctx)
		if err != nil {
			return err
		}
		key := dedupe.Key{Key: m.Metadata[gocloudpubsub.KeyMetadata]}
		_, err = onceq.Do(ctx, p, key, nil, func(ctx context.Context, _ *onceq.Job) (struct{}, error) {
			return struct{}{}, ship(ctx, m.Body)
		})
		if err != nil {
			m.Nack()
			continue
		}
		m.Ack()
	}
}

func keyOfEither(m *broker.Message) (dedupe.Key, error) {
	if key, err := gocloudpubsub.KeyOf(m); err == nil {
		return key, nil // a publisher that sets it
	}
	var body struct{ OrderID string } // one that was never changed
	if err := json.Unmarshal(m.Body, &body); err != nil || body.OrderID == "" {
		return dedupe.Key{}, errors.New("no key, and no OrderID in the body")
	}
	return dedupe.Key{Key: body.OrderID}, nil
}

func publish(ctx context.Context, queue broker.Sender, order string, body []byte) error {
	topic, err := onceqpubsub.OpenTopic(queue, nil)
	if err != nil {
		return err
	}
	err = topic.Send(ctx, &pubsub.Message{Body: body, Metadata: map[string]string{onceqpubsub.KeyMetadata: order}})
	return errors.Join(err, topic.Shutdown(ctx))
}
