package awssqs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/broker"
)

// This file owns the redrives that SQS does by itself. Programs of operators call it, and no worker
// does. b.mu guards only the queue's ARN, which is asked for once.

// maxPerSecond is SQS's fastest fixed rate of a redrive.
const maxPerSecond = 500

// RedriveOptions set up a redrive. nil means the defaults.
type RedriveOptions struct {
	// To is the ARN of the queue that gets the messages. Default: each goes back to the queue that
	// SQS itself has moved it from. Workers send their letters, so SQS has moved none of them. For
	// letters To is needed, else the task ends with CouldNotDetermineMessageSource.
	To string
	// PerSecond is the rate, 1 to 500. Default 0: SQS chooses.
	PerSecond int
}

// RedriveTask is a task that moves messages out of a dead-letter queue.
type RedriveTask struct {
	// Handle names the task while it runs, for CancelRedrive; empty after.
	Handle string
	// Status is RUNNING, COMPLETED, CANCELLING, CANCELLED or FAILED; Failure says why it failed.
	Status, Failure string
	// To is the target's ARN; empty where each message goes back to its own queue.
	To string
	// Moved of Total messages, approximately. Total is 0 until SQS has counted them.
	Moved, Total int64
	// PerSecond is the fixed rate, 0 where SQS chooses.
	PerSecond int
	Started   time.Time
}

// StartRedrive lets SQS itself move the messages of this queue, which must be the dead-letter queue
// of another SQS queue, and returns the task's handle at once. One task per queue runs at a time.
//
// It moves all messages, without a filter, each under a new message ID. With onceq's letters that
// is safe, because a letter carries the permission to reopen exactly its own failure. A letter for
// which no claim was won is refused again and comes back as a letter, unless somebody has mended
// what was in its way: the worker's ProcessorConfig.Key, or its handlers.
//
// It needs sqs:StartMessageMoveTask, sqs:ReceiveMessage, sqs:DeleteMessage and
// sqs:GetQueueAttributes on this queue and sqs:SendMessage on the target.
func (b *Broker) StartRedrive(ctx context.Context, o *RedriveOptions) (handle string, err error) {
	const call = "start redrive"
	if o == nil {
		o = &RedriveOptions{}
	}
	in := &sqs.StartMessageMoveTaskInput{}
	if o.To != "" {
		if _, err := parseARN(o.To); err != nil {
			return "", b.wrap(call, unsupported("RedriveOptions.To: %v", err))
		}
		in.DestinationArn = &o.To
	}
	switch {
	case o.PerSecond < 0 || o.PerSecond > maxPerSecond:
		return "", b.wrap(call, unsupported("RedriveOptions.PerSecond: %d is not within 1 and %d", o.PerSecond, maxPerSecond))
	case o.PerSecond > 0:
		in.MaxNumberOfMessagesPerSecond = new(int32(o.PerSecond))
	}
	arn, err := b.queueARN(ctx, call)
	if err != nil {
		return "", err
	}
	in.SourceArn = &arn
	ctx, cancel, err := b.begin(ctx, call)
	if err != nil {
		return "", err
	}
	defer cancel()
	out, err := b.rest.StartMessageMoveTask(ctx, in)
	if err != nil {
		return "", b.failed(ctx, call, err)
	}
	return deref(out.TaskHandle), nil
}

// RedriveTasks lists the newest tasks of this queue, up to ten, the last one started first. It
// needs sqs:ListMessageMoveTasks.
func (b *Broker) RedriveTasks(ctx context.Context) ([]RedriveTask, error) {
	const call = "redrives"
	arn, err := b.queueARN(ctx, call)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := b.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	defer cancel()
	out, err := b.rest.ListMessageMoveTasks(ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &arn, MaxResults: new(int32(maxBatch))})
	if err != nil {
		return nil, b.failed(ctx, call, err)
	}
	rs := make([]RedriveTask, len(out.Results))
	for i, e := range out.Results {
		rs[i] = RedriveTask{
			Handle: deref(e.TaskHandle), Status: deref(e.Status), Failure: deref(e.FailureReason), To: deref(e.DestinationArn),
			Moved: e.ApproximateNumberOfMessagesMoved, Started: time.UnixMilli(e.StartedTimestamp),
		}
		if e.ApproximateNumberOfMessagesToMove != nil {
			rs[i].Total = *e.ApproximateNumberOfMessagesToMove
		}
		if e.MaxNumberOfMessagesPerSecond != nil {
			rs[i].PerSecond = int(*e.MaxNumberOfMessagesPerSecond)
		}
	}
	return rs, nil
}

// CancelRedrive ends a running task and returns how many messages it has moved, approximately. They
// stay moved. It needs sqs:CancelMessageMoveTask.
func (b *Broker) CancelRedrive(ctx context.Context, handle string) (moved int64, err error) {
	const call = "cancel redrive"
	ctx, cancel, err := b.begin(ctx, call)
	if err != nil {
		return 0, err
	}
	defer cancel()
	out, err := b.rest.CancelMessageMoveTask(ctx, &sqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
	if err != nil {
		return 0, b.failed(ctx, call, err)
	}
	return out.ApproximateNumberOfMessagesMoved, nil
}

// queueARN is asked for once.
func (b *Broker) queueARN(ctx context.Context, call string) (string, error) {
	if b.closed() {
		return "", b.wrap(call, broker.ErrClosed)
	}
	b.mu.Lock()
	have := b.arn
	b.mu.Unlock()
	if have != "" {
		return have, nil
	}
	as, err := b.ask(ctx, call, types.QueueAttributeNameQueueArn)
	if err != nil {
		return "", err
	}
	have = as[string(types.QueueAttributeNameQueueArn)]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arn = have
	return have, nil
}
