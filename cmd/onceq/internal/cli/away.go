package cli

import (
	"context"
	"errors"
	"iter"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns what stands for a queue or a store that does not answer, in the commands that look
// at several: in an outage the others are what one needs. open makes them, and package ops asks
// them as it asks any other.

// isAway reports whether an error says that something does not answer now, and not that it was
// named wrongly.
func isAway(ctx context.Context, err error) bool {
	c := (*coded)(nil)
	return err != nil && ctx.Err() == nil && !errors.As(err, &c)
}

// awayQueue is a queue that cannot be opened.
type awayQueue struct{ err error }

var _ broker.Depther = awayQueue{}

func (q awayQueue) Receive(context.Context, broker.ReceiveOptions) ([]*broker.Message, error) {
	return nil, q.err
}
func (q awayQueue) Ack(context.Context, []broker.Receipt) error { return q.err }
func (q awayQueue) Nack(context.Context, []broker.Hold) error   { return q.err }
func (q awayQueue) Extend(context.Context, []broker.Hold) error { return q.err }
func (q awayQueue) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, q.err
}
func (q awayQueue) Depth(context.Context) (broker.Depth, error) { return broker.Depth{}, q.err }
func (q awayQueue) Limits() broker.Limits {
	return broker.Limits{ReceiveBatch: 1, SettleBatch: 1, SendBatch: 1}
}

// awayStore is a store that cannot be opened.
type awayStore struct{ err error }

func (s awayStore) Claim(context.Context, []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return nil, s.err
}

func (s awayStore) Renew(context.Context, []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return nil, s.err
}

func (s awayStore) Settle(context.Context, []dedupe.Settlement) ([]dedupe.Settled, error) {
	return nil, s.err
}

func (s awayStore) Get(context.Context, []dedupe.Key) ([]*dedupe.Record, error) { return nil, s.err }

func (s awayStore) List(context.Context, dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) { yield(nil, s.err) }
}

func (s awayStore) Forget(context.Context, []dedupe.Forgotten) ([]error, error) { return nil, s.err }

func (s awayStore) Limits() dedupe.Limits { return dedupe.Limits{MaxBatch: 64} }
