package otelonceq

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/values"
)

// This file owns the decorated broker: what the conventions ask of receives and settlements. A
// worker's pollers and carriers call it. It keeps no state.

// Broker is b with what Sender adds, and messaging.* for receives, acks, nacks and extensions.
// Every optional interface of b is found through it by broker.As. It may stand wherever b may: a
// dead-letter queue that is b, decorated, is b. nil stays nil.
func (t *Telemetry) Broker(b broker.Broker) broker.Broker {
	if values.IsNil(b) {
		return b
	}
	return &queue{sender: t.sender(b), b: b}
}

type queue struct {
	*sender
	b broker.Broker
}

func (q *queue) Unwrap() any { return q.b }

// Limits are those of the broker; they are here because both of its halves have them.
func (q *queue) Limits() broker.Limits { return q.b.Limits() }

func (q *queue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	began := time.Now()
	var span trace.Span
	if q.t.o.Spans.Receive && q.t.traces.on() {
		ctx, span = q.t.begin(ctx, ctx, q.queue.spans.receive, ofClient, asRoot, trace.WithAttributes(q.about(nil, "receive")...))
	}
	ms, err := q.b.Receive(ctx, o)
	if span != nil {
		span.SetAttributes(attrBatch.Int(len(ms)))
		q.t.endCall(span, ended(ctx, err))
	}
	q.received(began, len(ms), ended(ctx, err))
	return ms, err
}

func (q *queue) received(began time.Time, n int, err error) {
	if q.t.m.operation == nil {
		return
	}
	defer q.t.survive()
	of := q.t.operation(q.queue, q.system, "receive", "receive", err)
	record(background, q.t.m.operation, time.Since(began).Seconds(), of.of)
	if n > 0 {
		of.consumed.grow(int64(n))
	}
}

// ended is err, unless the caller has given up the call: a worker that pauses or stops ends its
// receives.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func (q *queue) Ack(ctx context.Context, rs []broker.Receipt) error {
	began := time.Now()
	err := q.b.Ack(ctx, rs)
	q.settled(began, "ack", len(rs), err)
	return err
}

func (q *queue) Nack(ctx context.Context, hs []broker.Hold) error {
	began := time.Now()
	err := q.b.Nack(ctx, hs)
	q.settled(began, "nack", len(hs), err)
	return err
}

func (q *queue) Extend(ctx context.Context, hs []broker.Hold) error {
	began := time.Now()
	err := q.b.Extend(ctx, hs)
	q.settled(began, "extend", len(hs), err)
	return err
}

func (q *queue) settled(began time.Time, name string, n int, err error) {
	defer q.t.survive()
	if q.t.m.operation != nil && n > 0 {
		record(background, q.t.m.operation, time.Since(began).Seconds(), q.t.operation(q.queue, q.system, name, "settle", err).of)
	}
}
