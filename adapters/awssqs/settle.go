package awssqs

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
)

// entryIDs name the entries of a batch by position. All calls share them; the SDK only reads them.
var entryIDs = func() (ids [maxBatch]*string) {
	for i := range ids {
		ids[i] = new(strconv.Itoa(i))
	}
	return ids
}()

// Ack deletes the messages. Success proves nothing: after a message was delivered again, a standard
// queue returns success for an old receipt, and may delete the message or not. A FIFO queue answers
// a late one ErrReceiptExpired.
func (b *Broker) Ack(ctx context.Context, rs []broker.Receipt) error {
	if len(rs) == 0 {
		return nil
	}
	if err := b.checkBatch(callAck, len(rs)); err != nil {
		return err
	}
	ctx, cancel, err := b.begin(ctx, callAck)
	if err != nil {
		return err
	}
	defer cancel()
	an := b.answers(callAck, len(rs))
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &b.url, Entries: make([]types.DeleteMessageBatchRequestEntry, 0, len(rs))}
	for i, r := range rs {
		if an.names(i, r) {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: entryIDs[i], ReceiptHandle: (*string)(&r)})
		}
	}
	if len(in.Entries) == 0 {
		return an.err()
	}
	out, err := b.leases.DeleteMessageBatch(ctx, in)
	if err != nil {
		return an.whole(b.failed(ctx, callAck, err), len(in.Entries))
	}
	for _, e := range out.Successful {
		an.applied(e.Id)
	}
	for _, e := range out.Failed {
		an.failed(e)
	}
	b.counts.acked.Add(an.done())
	return an.err()
}

// Nack makes the messages visible after their delay, 0 to Limits.MaxNack, rounded up to whole
// seconds. The delay also has to end within 12 h of the receive. A longer one is refused by SQS and
// answered ErrUnsupported.
func (b *Broker) Nack(ctx context.Context, hs []broker.Hold) error {
	return b.hold(ctx, callNack, hs, 0, b.Limits().MaxNack)
}

// Extend hides the messages for their time from now, 1 s to Limits.MaxHold, rounded up to whole
// seconds. In all a delivery lasts up to 12 h since its receive. What goes beyond is refused by SQS
// and answered ErrUnsupported.
//
// On a standard queue an extension that comes after the deadline is answered with success and does
// nothing. If the message was delivered again by then, the extension may do nothing, or hide the
// message for the new delivery's owner as well.
func (b *Broker) Extend(ctx context.Context, hs []broker.Hold) error {
	return b.hold(ctx, callExtend, hs, second, b.Limits().MaxHold)
}

// hold changes the visibility of those entries whose time is within the bounds.
func (b *Broker) hold(ctx context.Context, call string, hs []broker.Hold, least, most time.Duration) error {
	if len(hs) == 0 {
		return nil
	}
	if err := b.checkBatch(call, len(hs)); err != nil {
		return err
	}
	ctx, cancel, err := b.begin(ctx, call)
	if err != nil {
		return err
	}
	defer cancel()
	an := b.answers(call, len(hs))
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &b.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, 0, len(hs))}
	for i := range hs {
		if d := hs[i].For; d < least || d > most {
			an.set(i, b.wrap(call, unsupported("%v; it is within %v and %v", d, least, most)))
			continue
		}
		if !an.names(i, hs[i].Receipt) {
			continue
		}
		r := string(hs[i].Receipt)
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: entryIDs[i], ReceiptHandle: &r, VisibilityTimeout: seconds(hs[i].For),
		})
	}
	if len(in.Entries) == 0 {
		return an.err()
	}
	out, err := b.leases.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		return an.whole(b.failed(ctx, call, err), len(in.Entries))
	}
	for _, e := range out.Successful {
		an.applied(e.Id)
	}
	for _, e := range out.Failed {
		an.failed(e)
	}
	return an.err()
}

// begin bounds a call, unless there is none to make.
func (b *Broker) begin(ctx context.Context, call string) (context.Context, context.CancelFunc, error) {
	if b.closed() {
		return nil, nil, b.wrap(call, broker.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, b.wrap(call, err)
	}
	ctx, cancel := b.call(ctx)
	return ctx, cancel, nil
}
