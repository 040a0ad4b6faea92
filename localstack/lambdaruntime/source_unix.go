//go:build unix

package lambdaruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Source is an event source mapping of an SQS queue.
type Source struct {
	// Client and QueueURL name the queue, ARN is what its records say. Required.
	Client        *sqs.Client
	QueueURL, ARN string
	// BatchSize is the most records of an invocation. Default 10; 1 to 10.
	BatchSize int
	// Concurrency is how many batches are received and invoked at once. Default 1.
	Concurrency int
	// IgnoreAnswer is a mapping without ReportBatchItemFailures: what the function answers is not looked at, and the whole batch is
	// deleted, unless it fails.
	IgnoreAnswer bool
	// Answered is told of each invocation and of what was deleted; nil = nobody.
	Answered func(e events.SQSEvent, r Result, deleted int)
}

func is(err, target error) bool { return errors.Is(err, target) }

// Poll receives from the queue, with its own visibility timeout, invokes the function with each batch, and deletes what it did not
// report as failed, until ctx ends. As Lambda's poller it changes no visibility. It answers what hinders it.
func (f *Function) Poll(ctx context.Context, s Source) error {
	if s.BatchSize == 0 {
		s.BatchSize = 10
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
	out, err := s.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &s.QueueURL, MaxNumberOfMessages: int32(s.BatchSize), WaitTimeSeconds: 1,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}, MessageAttributeNames: []string{"All"},
	})
	if err != nil {
		return err
	}
	if len(out.Messages) == 0 {
		return nil
	}
	var e events.SQSEvent
	for i := range out.Messages {
		e.Records = append(e.Records, Record(s.ARN, &out.Messages[i]))
	}
	payload, err := json.Marshal(e)
	if err != nil {
		return err
	}
	res := f.Invoke(ctx, payload)
	gone, err := s.deletes(e, res)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		// Lambda deletes what a function has answered, whatever becomes of the mapping.
		if _, err := s.Client.DeleteMessageBatch(context.WithoutCancel(ctx), &sqs.DeleteMessageBatchInput{QueueUrl: &s.QueueURL, Entries: gone}); err != nil {
			return err
		}
	}
	if s.Answered != nil {
		s.Answered(e, res, len(gone))
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

// deletes are the records that Lambda deletes: all that the answer does not name. An answer that is not of the form, or that names an id which is
// none or empty, fails the whole batch.
func (s *Source) deletes(e events.SQSEvent, res Result) (gone []types.DeleteMessageBatchRequestEntry, err error) {
	if res.Err != nil {
		return nil, nil //nolint:nilerr // the whole batch comes again
	}
	failed := map[string]bool{}
	if !s.IgnoreAnswer {
		var r events.SQSEventResponse
		if text := strings.TrimSpace(string(res.Payload)); text != "" && json.Unmarshal(res.Payload, &r) != nil {
			return nil, nil //nolint:nilerr // as above
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
