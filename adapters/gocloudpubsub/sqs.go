package gocloudpubsub

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/broker"
)

// This file owns the calls past gocloud on SQS, and what its answers mean. settle.go and receive.go
// call it, from many goroutines and without a lock. gcp.go is the same for Pub/Sub, and sqsform.go
// has the form of messages.

// sqsQueue settles on SQS, with gocloud's client.
type sqsQueue struct {
	client *sqs.Client
	url    string
}

func newSQS(c *sqs.Client, address string) (*service, error) {
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, fmt.Errorf("gocloudpubsub: Options.Queue: %q is not the queue's URL, https://sqs.REGION.amazonaws.com/ACCOUNT/NAME", address)
	}
	q := sqsQueue{c, address}
	return &service{hold: q.change, nacks: true, ack: q.remove, visibility: q.timeout}, nil
}

func (q sqsQueue) change(ctx context.Context, ds []*delivery, times []time.Duration) error {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.url}
	for i, d := range ds {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: new(strconv.Itoa(i)), ReceiptHandle: handleOf(d.m), VisibilityTimeout: seconds(times[i]),
		})
	}
	out, err := q.client.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		return classifySQS(err)
	}
	return positions(len(ds), len(out.Successful), out.Failed)
}

func (q sqsQueue) remove(ctx context.Context, ds []*delivery) error {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &q.url}
	for i, d := range ds {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: new(strconv.Itoa(i)), ReceiptHandle: handleOf(d.m)})
	}
	out, err := q.client.DeleteMessageBatch(ctx, in)
	if err != nil {
		return classifySQS(err)
	}
	return positions(len(ds), len(out.Successful), out.Failed)
}

// positions reads the answer to a batch of n entries, whose ids are their positions.
func positions(n, successful int, failed []types.BatchResultErrorEntry) error {
	if successful+len(failed) != n {
		return fmt.Errorf("the answer has %d entries for %d", successful+len(failed), n)
	}
	errs := make([]error, n)
	for _, f := range failed {
		i, err := strconv.Atoi(deref(f.Id))
		if err != nil || i < 0 || i >= n {
			return fmt.Errorf("the answer names the entry %q", deref(f.Id))
		}
		api := &smithy.GenericAPIError{Code: deref(f.Code), Message: deref(f.Message), Fault: smithy.FaultServer}
		errs[i] = classifySQS(api)
	}
	return broker.JoinEntries(errs)
}

// classifySQS knows what SQS says of receipt handles. For other codes gocloud's are read.
func classifySQS(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	code := strings.TrimSuffix(strings.TrimPrefix(api.ErrorCode(), "AWS.SimpleQueueService."), "Exception") // so emulators say it
	switch {
	case code == "ReceiptHandleIsInvalid", code == "MessageNotInflight", code == "InvalidIdFormat":
	case code == "InvalidParameterValue" && strings.Contains(strings.ToLower(api.ErrorMessage()), "visibilitytimeout") &&
		!strings.Contains(strings.ToLower(api.ErrorMessage()), "parameter receipthandle"):
		return fmt.Errorf("%w: %w", broker.ErrUnsupported, err)
	case code == "InvalidParameterValue":
	case code == "QueueDoesNotExist", code == "NonExistentQueue":
		return fmt.Errorf("%w: %w", broker.ErrNotFound, err)
	default:
		return err
	}
	return fmt.Errorf("%w: %w", broker.ErrReceiptExpired, err)
}

// defaultSQS is the timeout of a queue that was made without one.
const defaultSQS = 30 * time.Second

func (q sqsQueue) timeout(ctx context.Context) (time.Duration, error) {
	const name = types.QueueAttributeNameVisibilityTimeout
	out, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{name}})
	if err != nil {
		var api smithy.APIError
		if errors.As(err, &api) && strings.Contains(api.ErrorCode(), "AccessDenied") {
			return defaultSQS, nil
		}
		return 0, classifySQS(err)
	}
	n, err := strconv.Atoi(out.Attributes[string(name)])
	if err != nil || n <= 0 {
		return defaultSQS, nil
	}
	return time.Duration(n) * time.Second, nil
}

// sqsMessage is nil for a message of another driver.
func sqsMessage(m *pubsub.Message) *types.Message {
	var s types.Message
	if !m.As(&s) {
		return nil
	}
	return &s
}

func handleOf(m *pubsub.Message) *string {
	if s := sqsMessage(m); s != nil {
		return s.ReceiptHandle
	}
	return nil
}

// firstReceived is when the service says that it gave out the message for the first time, where
// that was this time; zero elsewhere.
func firstReceived(m *pubsub.Message) time.Time {
	s := sqsMessage(m)
	if s == nil || s.Attributes["ApproximateReceiveCount"] != "1" {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(s.Attributes["ApproximateFirstReceiveTimestamp"], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
