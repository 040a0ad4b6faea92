//go:build unix

package lambdaruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// This file owns an event source mapping: it receives, invokes, and deletes what did not fail. A
// test calls Poll, which runs as many goroutines as Concurrency says. They share the Source, which
// none of them changes, and Invoke, which many may call. So nothing is locked here. gather_unix.go
// gathers a batch and cuts it into events.

// Source is an event source mapping of an SQS queue.
type Source struct {
	// Client and QueueURL name the queue, ARN is what its records say. Required.
	Client        *sqs.Client
	QueueURL, ARN string
	// BatchSize is the most records of an invocation: 1 to 10,000, on FIFO queues 1 to 10. Default
	// 10. An event of more than 6 MB is cut into several, each with an invocation of its own.
	BatchSize int
	// Window is how long a batch is gathered, counted from its first message. The visibility
	// timeouts of its messages run meanwhile. 0 to 5 min; FIFO queues have none. Default: 0 up to a
	// BatchSize of 10, and 1 s above, because Lambda wants a window there.
	Window time.Duration
	// Concurrency is how many batches are received and invoked at once. Default 1.
	Concurrency int
	// IgnoreAnswer is a mapping without ReportBatchItemFailures: what the function answers is not
	// looked at, and the whole batch is deleted, unless it fails.
	IgnoreAnswer bool
	// Twice is asked whether an event shall be invoked a second time, at the same time where there
	// are sandboxes, as Lambda itself does now and then. nil = never. It is called by as many
	// goroutines as Concurrency says.
	Twice func(e events.SQSEvent) bool
	// Answered is told of each invocation and of what was deleted; nil = nobody. It is called by as
	// many goroutines as invoke.
	Answered func(e events.SQSEvent, r Result, deleted int)
}

func is(err, target error) bool { return errors.Is(err, target) }

// Poll receives from the queue, with its own visibility timeout, invokes the function with each
// batch, and deletes what it did not report as failed, until ctx ends. As Lambda's poller it
// changes no visibility. It answers what hinders it.
func (f *Function) Poll(ctx context.Context, s Source) error {
	if err := s.complete(); err != nil {
		return err
	}
	var pollers sync.WaitGroup
	errs := make([]error, max(1, s.Concurrency))
	for i := range errs {
		pollers.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = f.poll(ctx, &s)
			}
		})
	}
	pollers.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is how it ends
	}
	return errors.Join(errs...)
}

func (f *Function) poll(ctx context.Context, s *Source) error {
	ms, err := s.gather(ctx)
	if err != nil {
		return err
	}
	batches, err := s.events(ms)
	if err != nil {
		return err
	}
	for _, b := range batches {
		invocations := 1
		if s.Twice != nil && s.Twice(b.event) {
			invocations = 2
		}
		var both sync.WaitGroup
		errs := make([]error, invocations)
		for i := range errs {
			both.Go(func() { errs[i] = f.run(ctx, s, b) })
		}
		both.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// run is one invocation, and what becomes of its messages.
func (f *Function) run(ctx context.Context, s *Source, b batch) error {
	res := f.Invoke(ctx, b.payload)
	var gone []types.DeleteMessageBatchRequestEntry
	gone, res.Rejected = s.toDelete(b.event, res)
	for part := range slices.Chunk(gone, receiveMost) {
		// Lambda deletes what a function has answered, whatever becomes of the mapping.
		if _, err := s.Client.DeleteMessageBatch(context.WithoutCancel(ctx), &sqs.DeleteMessageBatchInput{QueueUrl: &s.QueueURL, Entries: part}); err != nil {
			return err
		}
	}
	if s.Answered != nil {
		s.Answered(b.event, res, len(gone))
	}
	return nil
}

// Record is a message as Lambda's events have it.
func Record(arn string, m *types.Message) events.SQSMessage {
	r := events.SQSMessage{
		MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Md5OfBody: *m.MD5OfBody,
		Attributes: m.Attributes, EventSourceARN: arn, EventSource: "aws:sqs", AWSRegion: "us-east-1",
		MessageAttributes: map[string]events.SQSMessageAttribute{},
	}
	for name, v := range m.MessageAttributes {
		r.MessageAttributes[name] = events.SQSMessageAttribute{
			StringValue: v.StringValue, BinaryValue: v.BinaryValue, DataType: *v.DataType,
			StringListValues: []string{}, BinaryListValues: [][]byte{},
		}
	}
	return r
}

// toDelete are the records that Lambda deletes: all that the answer does not name. The whole batch
// fails if the answer is not of the form, or if it names an id that is empty or not in the batch.
// Lambda tells nobody, and rejected says it here.
func (s *Source) toDelete(e events.SQSEvent, res Result) (gone []types.DeleteMessageBatchRequestEntry, rejected error) {
	if res.Err != nil {
		return nil, nil //nolint:nilerr // the whole batch comes again
	}
	failed := map[string]bool{}
	if !s.IgnoreAnswer {
		var r events.SQSEventResponse
		if text := strings.TrimSpace(string(res.Payload)); text != "" {
			if err := json.Unmarshal(res.Payload, &r); err != nil {
				return nil, fmt.Errorf("lambdaruntime: the answer is not of the form: %w", err)
			}
		}
		ids := map[string]bool{}
		for i := range e.Records {
			ids[e.Records[i].MessageId] = true
		}
		for _, f := range r.BatchItemFailures {
			if !ids[f.ItemIdentifier] {
				return nil, fmt.Errorf("lambdaruntime: the function reports %q as failed, which is no message of the batch", f.ItemIdentifier)
			}
			failed[f.ItemIdentifier] = true
		}
	}
	for i := range e.Records {
		if m := &e.Records[i]; !failed[m.MessageId] {
			gone = append(gone, types.DeleteMessageBatchRequestEntry{Id: new(strconv.Itoa(i)), ReceiptHandle: &m.ReceiptHandle})
		}
	}
	return gone, nil
}
