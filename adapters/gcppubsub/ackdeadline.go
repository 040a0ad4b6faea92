package gcppubsub

import (
	"context"
	"time"
)

// AckDeadline asks for the subscription's acknowledgement deadline, 10 s to 10 min, with
// pubsub.subscriptions.get. It serves a push endpoint, whose requests do not tell it:
// pubsubpush.Handler.Check takes a Broker.
func (b *Broker) AckDeadline(ctx context.Context) (time.Duration, error) {
	s, err := b.ask(ctx, "ack deadline")
	if err != nil {
		return 0, err
	}
	return ackDeadlineOf(s), nil
}
