package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/pubsubwire"
)

// This file owns receives: one pull, its end in time, the first extension where one is needed, and
// the messages that both give. A worker's pollers and dlq call Receive, each in a goroutine of its
// own. Nothing is locked here; the ack deadline of the subscription is subscription.go's, and how a
// message is read is internal/pubsubwire's.

// Receive brings up to o.Max messages. Pub/Sub counts in whole seconds, so a Visibility is rounded
// up. Deadline tells what holds.
//
// A pull carries a deadline, its wait and a second, and the server answers before that. The pull is
// never cut off, because what it finds then is delivered to nobody and stays hidden: when ctx ends,
// Receive waits for the answer, 10 s at most, and returns what it brought. Only Close ends it at
// once. With a Wait of 0 Pub/Sub is asked to answer at once, and may then say that there is nothing
// although there is.
//
// Messages come as the pull has brought them where they are hidden for the Visibility already: the
// subscription's ack deadline is no longer than that, three quarters of the Visibility are left at
// least, and the pull took 5 s at most. Their Deadline then counts from the beginning of the pull,
// so it is early. All others are extended to the Visibility before Receive returns. Where that
// fails, they come with the Deadline that the subscription's own setting gives. Receive asks for
// that setting each 10 minutes, because it may change.
//
// A pull that has no answer by its deadline may come from an empty queue, because a server may end
// idle pulls so. Unless ctx has ended, Pub/Sub is then asked for an answer at once. Without one
// within 5 s, Receive returns an error that wraps context.DeadlineExceeded, and so does a Receive
// with a Wait of 0. An answer that was lost on its way has hidden what it held until the
// subscription's ack deadline, and nobody can tell.
func (b *Broker) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	const call = callReceive
	if err := b.check(call, 0); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, b.wrap(call, err)
	}
	if err := b.completeReceive(&o); err != nil {
		return nil, b.wrap(call, err)
	}
	if o.Visibility == 0 {
		var err error
		if o.Visibility, err = b.visibility(ctx); err != nil {
			return nil, err
		}
	}
	b.refresh(ctx)
	if err := ctx.Err(); err != nil { // a pull would go on all the same
		return nil, b.wrap(call, err)
	}
	ms, err := b.receive(ctx, &o, o.Wait)
	if o.Wait > 0 && errors.Is(err, errUnanswered) {
		// One empty answer is enough for dlq to take the queue for empty.
		return b.receive(ctx, &o, 0)
	}
	return ms, err
}

// receive is one pull.
func (b *Broker) receive(ctx context.Context, o *broker.ReceiveOptions, wait time.Duration) ([]*broker.Message, error) {
	const call = callReceive
	started := time.Now()
	in, err := b.pulls.pull(ctx, o.Max, wait)
	switch {
	case b.closed():
		return nil, b.wrap(call, broker.ErrClosed)
	case errors.Is(err, errUnanswered):
		b.counts.empty.Add(1)
		b.counts.unanswered.Add(1)
		n := b.silent.Add(1)
		if ctx.Err() != nil {
			return nil, b.wrap(call, ctx.Err())
		}
		return nil, b.wrap(call, fmt.Errorf("no answer to %d pulls in a row, of which the last one asked for an answer at once: %w", n, err))
	case err != nil:
		b.silent.Store(0) // an error is an answer, too
		err = classify(call, err)
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, b.wrap(call, err)
	default:
		b.silent.Store(0)
	}
	if len(in) > 0 {
		return b.messages(ctx, in, started, o.Visibility), nil
	}
	if err := ctx.Err(); err != nil {
		return nil, b.wrap(call, err)
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
	case o.Visibility != 0 && (o.Visibility < minDeadline || o.Visibility > maxDeadline):
		return unsupported("a Visibility of %v; it is within %v and %v", o.Visibility, minDeadline, maxDeadline)
	}
	if o.Wait < 0 {
		o.Wait = b.limits.MaxWait
	}
	o.Visibility = time.Duration(seconds(o.Visibility)) * second
	return nil
}

// puller brings messages. Now there is one that makes a call for each pull.
type puller interface {
	// pull brings up to most messages, and waits so long for the first; with 0 it asks for an
	// answer at once. None without an error means that none came. It ends by itself, whenever ctx
	// does.
	pull(ctx context.Context, most int, wait time.Duration) ([]*pubsubpb.ReceivedMessage, error)
}

// unary pulls by the call Pull.
type unary struct{ b *Broker }

func (u unary) pull(ctx context.Context, most int, wait time.Duration) ([]*pubsubpb.ReceivedMessage, error) {
	b := u.b
	bound := wait + pullMargin
	if wait == 0 {
		bound = immediately
	}
	// The caller's end does not cut it off, and its deadline does not travel: see Receive.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	stop := context.AfterFunc(b.closing, cancel)
	defer stop()
	b.counts.pulls.Add(1)
	in := &pubsubpb.PullRequest{Subscription: b.subscription, MaxMessages: int32(most)}
	//lint:ignore SA1019 it is what a wait of 0 asks for
	in.ReturnImmediately = wait == 0 //nolint:staticcheck // see above
	out, err := b.api.Pull(ctx, in)
	if err != nil && (codeOf(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)) {
		return nil, fmt.Errorf("%w within %v: %w", errUnanswered, bound, err)
	}
	return out.GetReceivedMessages(), err
}

// errUnanswered says that a pull ended by its deadline. No code tells whether a server was idle or
// silent.
var errUnanswered = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// messages makes the contract's messages of Pub/Sub's, and extends them where that is needed.
func (b *Broker) messages(ctx context.Context, in []*pubsubpb.ReceivedMessage, started time.Time, visibility time.Duration) []*broker.Message {
	b.counts.received.Add(int64(len(in)))
	answered := time.Now()
	deadlines, err := b.hiddenUntil(started, answered, visibility), error(nil)
	if deadlines.IsZero() {
		deadlines = answered.Add(visibility)
		err = b.firstHold(ctx, in, visibility)
	}
	ms := make([]*broker.Message, len(in))
	for i, r := range in {
		p := r.GetMessage()
		m := &broker.Message{
			ID: p.GetMessageId(), Receipt: broker.Receipt(r.GetAckId()), Group: p.GetOrderingKey(),
			Attempt: int(r.GetDeliveryAttempt()), Deadline: deadlines,
		}
		switch err := broker.ErrAt(err, i); {
		case err == nil:
		case errors.Is(err, broker.ErrReceiptExpired):
			m.Deadline = answered // it is not ours any more
		default:
			m.Deadline = b.unextended(started, answered)
		}
		var published time.Time
		if t := p.GetPublishTime(); t != nil {
			published = t.AsTime()
		}
		pubsubwire.Decode(m, p.GetData(), p.GetAttributes(), published)
		ms[i] = m
	}
	return ms
}

// hiddenUntil returns the time until which this pull's messages are certainly hidden. It returns
// the zero time if that is shorter than the visibility asked for, less the slack that broker's doc
// allows.
//
// The server counts from its own send, which is not before the pull began. A longer ack deadline
// will not do, because the messages of a worker that dies would be hidden for longer than asked.
func (b *Broker) hiddenUntil(started, answered time.Time, visibility time.Duration) time.Time {
	own, took := b.ownDeadline(), answered.Sub(started)
	if own > visibility || took > mostSlack || !isAsLong(own-took, visibility) {
		return time.Time{}
	}
	return started.Add(own)
}

// isAsLong reports whether a message that is hidden for d need not be extended to a visibility.
func isAsLong(d, visibility time.Duration) bool {
	return d <= visibility && d >= visibility-visibility/4
}

// firstHold extends what a pull has brought. Then the deadline counts from before this call, so it
// is early however long the pull's answer has travelled.
func (b *Broker) firstHold(ctx context.Context, in []*pubsubpb.ReceivedMessage, visibility time.Duration) error {
	hs := make([]broker.Hold, len(in))
	for i, r := range in {
		hs[i] = broker.Hold{Receipt: broker.Receipt(r.GetAckId()), For: visibility}
	}
	// It goes on when ctx has ended: who drains has to hand these messages back in time.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), firstTimeout)
	defer cancel()
	return b.Extend(call, hs)
}

// unextended is the deadline of messages whose extension has failed.
func (b *Broker) unextended(started, answered time.Time) time.Time {
	own := max(b.ownDeadline(), minDeadline)
	return answered.Add(own - min(answered.Sub(started), mostSlack, own/4))
}
