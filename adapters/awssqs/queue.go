package awssqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/broker"
)

// This file owns what is asked of a queue beside its messages: its URL, its depth and its
// attributes. Users call Find. Users, the worker and the other files of the driver call the rest.
// Nothing is locked, because no answer is kept here: who keeps one (receive.go, redrive.go) takes
// b.mu.

// Find gives the URL of a queue, by its name or its ARN (which may be another account's). A missing
// queue is broker.ErrNotFound. It needs sqs:GetQueueUrl.
func Find(ctx context.Context, client *sqs.Client, name string) (queueURL string, err error) {
	if client == nil {
		return "", errors.New("awssqs: find: the client is nil")
	}
	in := &sqs.GetQueueUrlInput{QueueName: &name}
	if strings.HasPrefix(name, "arn:") {
		a, err := parseARN(name)
		if err != nil {
			return "", fmt.Errorf("awssqs: find: %w", err)
		}
		in.QueueName, in.QueueOwnerAWSAccountId = &a.name, &a.account
	}
	out, err := client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", fmt.Errorf("awssqs: find %s: %w", name, classify(aboutQueue, err))
	}
	return deref(out.QueueUrl), nil
}

// arn is arn:aws:sqs:REGION:ACCOUNT:NAME.
type arn struct{ region, account, name string }

func parseARN(s string) (arn, error) {
	p := strings.Split(s, ":")
	if len(p) != 6 || p[0] != "arn" || p[2] != "sqs" || p[5] == "" {
		return arn{}, fmt.Errorf("%q is not of the form arn:aws:sqs:REGION:ACCOUNT:NAME", s)
	}
	return arn{region: p[3], account: p[4], name: p[5]}, nil
}

// Depth counts the messages, approximately. SQS may need a minute after the last send to be exact.
// A nacked message counts as in flight until its delay has passed. A follower of a held group
// counts as visible.
func (b *Broker) Depth(ctx context.Context) (broker.Depth, error) {
	as, err := b.ask(ctx, "depth", types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible, types.QueueAttributeNameApproximateNumberOfMessagesDelayed)
	if err != nil {
		return broker.Depth{}, err
	}
	return broker.Depth{
		Visible:  integer(as, types.QueueAttributeNameApproximateNumberOfMessages),
		InFlight: integer(as, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
		Delayed:  integer(as, types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
	}, nil
}

// Redrive tells after how many receives SQS moves a message to which dead-letter queue (its
// ARN), and how long this queue keeps messages.
func (b *Broker) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	const call = "redrive policy"
	as, err := b.ask(ctx, call, types.QueueAttributeNameRedrivePolicy, types.QueueAttributeNameMessageRetentionPeriod)
	if err != nil {
		return broker.RedrivePolicy{}, err
	}
	p, err := policy(as)
	if err != nil {
		return broker.RedrivePolicy{}, b.wrap(call, err)
	}
	return broker.RedrivePolicy{MaxReceives: p.receives, Target: p.target, Retention: retentionOf(as)}, nil
}

// VisibilityTimeout is the queue's own. It holds for receives that name none, such as Lambda's. It
// needs sqs:GetQueueAttributes.
func (b *Broker) VisibilityTimeout(ctx context.Context) (time.Duration, error) {
	as, err := b.ask(ctx, "visibility timeout", types.QueueAttributeNameVisibilityTimeout)
	if err != nil {
		return 0, err
	}
	return duration(as, types.QueueAttributeNameVisibilityTimeout), nil
}

func retentionOf(as attributes) time.Duration {
	return duration(as, types.QueueAttributeNameMessageRetentionPeriod)
}

// duration is what an attribute says in seconds. It is 0 if the attribute says nothing possible.
func duration(as attributes, name types.QueueAttributeName) time.Duration {
	n := integer(as, name)
	if n < 0 || n > int64(math.MaxInt64/second) {
		return 0
	}
	return time.Duration(n) * second
}

type redrivePolicy struct {
	target   string
	receives int
}

// policy reads the attribute, where the number may be a text.
func policy(as attributes) (redrivePolicy, error) {
	text := as[string(types.QueueAttributeNameRedrivePolicy)]
	if text == "" {
		return redrivePolicy{}, nil
	}
	var p struct {
		Target   string          `json:"deadLetterTargetArn"`
		Receives json.RawMessage `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return redrivePolicy{}, fmt.Errorf("the attribute RedrivePolicy: %w", err)
	}
	n, err := strconv.Atoi(strings.Trim(string(p.Receives), `"`))
	if err != nil {
		return redrivePolicy{}, fmt.Errorf("the attribute RedrivePolicy: maxReceiveCount: %w", err)
	}
	return redrivePolicy{target: p.Target, receives: n}, nil
}

// attributes are a queue's.
type attributes map[string]string

func integer(as attributes, name types.QueueAttributeName) int64 {
	n, _ := strconv.ParseInt(as[string(name)], 10, 64)
	return n
}

// ask is attributes as a call of its own.
func (b *Broker) ask(ctx context.Context, call string, names ...types.QueueAttributeName) (attributes, error) {
	if b.closed() {
		return nil, b.wrap(call, broker.ErrClosed)
	}
	as, err := b.attributes(ctx, names...)
	if err != nil {
		return nil, b.failed(ctx, call, err)
	}
	return as, nil
}

func (b *Broker) attributes(ctx context.Context, names ...types.QueueAttributeName) (attributes, error) {
	return b.attributesOf(ctx, b.url, names...)
}

func (b *Broker) attributesOf(ctx context.Context, url string, names ...types.QueueAttributeName) (attributes, error) {
	ctx, cancel := b.call(ctx)
	defer cancel()
	out, err := b.rest.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return nil, err
	}
	return out.Attributes, nil
}

// isDenied reports whether the caller may not ask. Repeating does not change that.
func isDenied(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	code := codeOf(api)
	return code == "AccessDenied" || code == "UnauthorizedOperation"
}
