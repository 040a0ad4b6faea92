package awssqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq/adapters/awssqs/internal/leansqs"
	"github.com/onceq/onceq/broker"
)

// This file owns receives: one poll, its end in time, and the messages that it brings. A worker's
// pollers and dlq call Receive, each in a goroutine of its own. b.mu guards only the queue's
// visibility timeout, which is asked for once. Receives without an answer are kept in attempt.go,
// and message.go fills a message.

// What is asked for with each message. The lists are shared by all calls; the SDK only reads them.
var (
	systemAttributes = []types.MessageSystemAttributeName{
		types.MessageSystemAttributeNameApproximateReceiveCount,
		types.MessageSystemAttributeNameSentTimestamp,
		types.MessageSystemAttributeNameMessageGroupId,
	}
	allAttributes = []string{"All"}
)

// Receive brings up to o.Max messages. SQS counts in whole seconds, so a Wait is rounded down and a
// Visibility is rounded up. Deadline tells what holds.
//
// The call ends within Wait plus 10 s, whatever the network does. When ctx ends, the poll in flight
// may go on for Options.ReceiveGrace, and what it brings is returned.
//
// On a FIFO queue the next Receive with enough room repeats a receive that was not answered. It
// uses the same ReceiveRequestAttemptId, so SQS gives again what it had already counted as
// delivered.
func (b *Broker) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	const call = callReceive
	if b.closed() {
		return nil, b.wrap(call, broker.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, b.wrap(call, err)
	}
	if err := b.completeReceive(&o); err != nil {
		return nil, b.wrap(call, err)
	}
	if o.Visibility == 0 {
		var err error
		if o.Visibility, err = b.queueVisibility(ctx); err != nil {
			return nil, b.failed(ctx, call, err)
		}
	}
	a := b.attempt(&o)
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &b.url, MaxNumberOfMessages: int32(a.max),
		VisibilityTimeout: int32(a.visibility / second), WaitTimeSeconds: int32(o.Wait / second), // rounded down
		MessageSystemAttributeNames: systemAttributes, MessageAttributeNames: allAttributes,
	}
	if a.id != "" {
		in.ReceiveRequestAttemptId = &a.id
	}
	p := b.poll(ctx, o.Wait+receiveSlack)
	started := time.Now()
	out, err := b.receives.ReceiveMessage(p.ctx, in) //nolint:contextcheck // it outlives ctx by the grace
	answered := time.Now()
	silent := p.end()
	if err != nil {
		if !refused(err) {
			b.unanswer(a)
		}
		if silent && ctx.Err() == nil && !b.closed() {
			return nil, b.wrap(call, fmt.Errorf("no answer within %v: %w", o.Wait+receiveSlack, context.DeadlineExceeded))
		}
		return nil, b.failed(ctx, call, err)
	}
	deadline := answered.Add(a.visibility - min(answered.Sub(started), 5*time.Second, a.visibility/4))
	ms := b.messages(ctx, out.Messages, deadline)
	switch {
	case len(ms) > 0:
		return ms, nil
	case b.closed():
		return nil, b.wrap(call, broker.ErrClosed)
	case ctx.Err() != nil:
		return nil, b.wrap(call, ctx.Err())
	case len(out.Messages) > 0:
		return nil, b.wrap(call, ErrChecksum)
	}
	b.counts.empty.Add(1)
	return nil, nil
}

// completeReceive checks o and rounds its times.
func (b *Broker) completeReceive(o *broker.ReceiveOptions) error {
	switch {
	case o.Max < 1 || o.Max > maxBatch:
		return unsupported("a Max of %d; it is within 1 and %d", o.Max, maxBatch)
	case o.Wait > b.limits.MaxWait:
		return unsupported("a Wait of %v; it is at most %v, which Options.LongPoll sets", o.Wait, b.limits.MaxWait)
	case o.Visibility != 0 && (o.Visibility < second || o.Visibility > maxVisibility):
		return unsupported("a Visibility of %v; it is within %v and %v", o.Visibility, second, maxVisibility)
	}
	if o.Wait < 0 {
		o.Wait = b.limits.MaxWait
	}
	o.Visibility = time.Duration(seconds(o.Visibility)) * second
	return nil
}

// poll is one call to SQS that outlives its caller's context by the grace.
type poll struct {
	ctx                  context.Context
	cancel               context.CancelCauseFunc
	timer                *time.Timer
	stopCaller, stopDone func() bool
}

// errSilent is the cause of a poll's end when SQS does not answer.
var errSilent = errors.New("awssqs: no answer")

func (b *Broker) poll(ctx context.Context, most time.Duration) *poll {
	p := &poll{}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	p.timer = time.AfterFunc(most, func() { p.cancel(errSilent) })
	p.stopCaller = context.AfterFunc(ctx, func() {
		switch {
		case b.o.ReceiveGrace == 0:
			p.cancel(ctx.Err())
		case b.o.ReceiveGrace < most:
			time.AfterFunc(b.o.ReceiveGrace, func() { p.cancel(ctx.Err()) })
		}
	})
	p.stopDone = context.AfterFunc(b.closing, func() { p.cancel(broker.ErrClosed) }) //nolint:contextcheck // it is the broker's end
	return p
}

// end ends the poll's timers, and reports whether it was cut off because SQS did not answer.
func (p *poll) end() (silent bool) {
	silent = errors.Is(context.Cause(p.ctx), errSilent)
	p.timer.Stop()
	p.stopCaller()
	p.stopDone()
	p.cancel(nil)
	return silent
}

// messages makes the contract's messages of SQS's. A message with a damaged body is left to a later
// delivery. Its neighbours are not. On a FIFO queue the followers in its group are left as well, so
// that none overtakes it.
func (b *Broker) messages(ctx context.Context, in []types.Message, deadline time.Time) []*broker.Message {
	if len(in) == 0 {
		return nil
	}
	ms := make([]*broker.Message, 0, len(in))
	var left []broker.Hold
	var groups map[string]bool // that wait for a damaged message
	for i := range in {
		body := []byte(deref(in[i].Body))
		sound, group := !b.checks || intact(&in[i], body), in[i].Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
		if !sound || b.fifo && groups[group] {
			if !sound {
				b.counts.damaged.Add(1)
				if groups == nil {
					groups = make(map[string]bool)
				}
				groups[group] = true
			}
			left = append(left, broker.Hold{Receipt: broker.Receipt(deref(in[i].ReceiptHandle)), For: badBodyDelay})
			continue
		}
		// Each by itself: a long job must not keep the bodies of its nine neighbours.
		m := &broker.Message{Group: group, Body: body, Deadline: deadline}
		b.read(m, &in[i])
		ms = append(ms, m)
	}
	b.counts.received.Add(int64(len(ms)))
	if len(left) > 0 {
		// This is a courtesy: what is not given back comes again at its timeout. So the sound
		// messages must not wait long for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		_ = b.Nack(ctx, left)
	}
	return ms
}

// queueVisibility is the timeout for receives that name none. The driver asks the queue once and
// then sends the answer with each receive. So a Deadline is right even if the queue's setting
// changes.
func (b *Broker) queueVisibility(ctx context.Context) (time.Duration, error) {
	b.mu.Lock()
	v := b.visibility
	b.mu.Unlock()
	if v > 0 {
		return v, nil
	}
	as, err := b.attributes(ctx, types.QueueAttributeNameVisibilityTimeout)
	switch {
	case err == nil:
		v = min(duration(as, types.QueueAttributeNameVisibilityTimeout), maxVisibility)
	case isDenied(err):
	default:
		return 0, err
	}
	if v <= 0 {
		v = defaultTimeout
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.visibility = v
	return v, nil
}

// waitZero puts a ZeroWait in place of a receive's request, just before it is written.
func waitZero(s *middleware.Stack) error {
	return s.Serialize.Add(middleware.SerializeMiddlewareFunc("onceqZeroWait",
		func(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (middleware.SerializeOutput, middleware.Metadata, error) {
			if r, ok := in.Parameters.(*sqs.ReceiveMessageInput); ok && r.WaitTimeSeconds == 0 {
				in.Parameters = leansqs.ZeroWait{ReceiveMessageInput: r}
			}
			return next.HandleSerialize(ctx, in)
		}), middleware.Before)
}
