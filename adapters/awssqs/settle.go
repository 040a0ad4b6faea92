package awssqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/broker"
)

// entryIDs name the entries of a batch by position. All calls share them; the SDK only reads them.
var entryIDs = func() (ids [maxBatch]*string) {
	for i := range ids {
		ids[i] = new(strconv.Itoa(i))
	}
	return ids
}()

// Ack deletes the messages. Success proves nothing: with the receipt of a message that was delivered again, a standard queue says
// yes and may delete nothing. A FIFO queue answers a late one ErrReceiptExpired.
func (b *Broker) Ack(ctx context.Context, rs []broker.Receipt) error {
	const call = "ack"
	if len(rs) == 0 {
		return nil
	}
	if err := b.checkBatch(call, len(rs)); err != nil {
		return err
	}
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &b.url, Entries: make([]types.DeleteMessageBatchRequestEntry, len(rs))}
	for i, r := range rs {
		in.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: entryIDs[i], ReceiptHandle: (*string)(&r)}
	}
	ctx, cancel, err := b.begin(ctx, call)
	if err != nil {
		return err
	}
	defer cancel()
	out, err := b.leases.DeleteMessageBatch(ctx, in)
	if err != nil {
		return lease(b.failed(ctx, call, err))
	}
	an := b.answers(call, len(rs), lease)
	for _, e := range out.Successful {
		an.applied(e.Id)
	}
	for _, e := range out.Failed {
		an.failed(e)
	}
	b.counts.acked.Add(int64(an.n))
	return an.err()
}

// Nack makes the messages visible after their delay, 0 to Limits.MaxNack, rounded up to whole seconds. The delay also has to end within 12 h of the
// receive: beyond, SQS refuses it, and it is answered ErrUnsupported.
func (b *Broker) Nack(ctx context.Context, hs []broker.Hold) error {
	return b.hold(ctx, "nack", hs, 0, b.limits.MaxNack)
}

// Extend hides the messages for their time from now, 1 s to Limits.MaxHold, rounded up to whole seconds, and in all up to 12 h since the receive: beyond,
// SQS refuses it, and it is answered ErrUnsupported. On a standard queue one that comes after
// the deadline is answered with success and does nothing.
func (b *Broker) Extend(ctx context.Context, hs []broker.Hold) error {
	return b.hold(ctx, "extend", hs, second, b.limits.MaxHold)
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
	an := b.answers(call, len(hs), lease)
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &b.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, 0, len(hs))}
	for i := range hs {
		if d := hs[i].For; d < least || d > most {
			an.set(i, b.wrap(call, unsupported("%v; it is within %v and %v", d, least, most)))
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
		err = lease(b.failed(ctx, call, err))
		if len(in.Entries) == len(hs) {
			return err
		}
		an.rest(err)
		return an.err()
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

// lease reads an answer to a call about receipts: an invalid parameter that is nothing else is the receipt.
func lease(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) && codeOf(api) == "InvalidParameterValue" && sentinel(api) == nil {
		return fmt.Errorf("%w: %w", broker.ErrReceiptExpired, err)
	}
	return err
}
