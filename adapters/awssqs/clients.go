package awssqs

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq/internal/sdkhttp"
)

// clients makes the three copies. Bodies are checked against their checksums here, unless the
// user's client is told not to, and not by the SDK, which throws away all ten messages of an answer
// for one damaged body.
func (b *Broker) clients(c *sqs.Client) (receives, leases, rest *sqs.Client) {
	o := c.Options()
	common := func(o *sqs.Options) {
		o.HTTPClient = sdkhttp.Sound(o.HTTPClient)
		o.DisableMessageChecksumValidation = true
		o.APIOptions = append(o.APIOptions, b.counts.middleware)
	}
	unretried := func(o *sqs.Options) {
		o.HTTPClient = separate(o.HTTPClient)
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		common(o)
		o.APIOptions = append(o.APIOptions, waitZero)
	}
	return sqs.New(o, unretried), sqs.New(o, unretried), sqs.New(o, common)
}

// separate gives a copy with connections of its own, of which as many stay open as callers are at
// once. What the user has built otherwise is shared.
func separate(c sqs.HTTPClient) sqs.HTTPClient {
	switch c := c.(type) {
	case *awshttp.BuildableClient:
		return c.WithTransportOptions(pool.Widen)
	case *http.Client:
		return pool.Separate(c)
	}
	return c
}

// checkTimeouts refuses a client that would cut every poll off before its end.
func checkTimeouts(c sqs.HTTPClient, longPoll time.Duration) error {
	check := func(name string, d time.Duration) error {
		if d > 0 && d <= longPoll {
			return fmt.Errorf("awssqs: New: the HTTP client's %s, %v, is not above Options.LongPoll, %v: each poll of an empty queue would fail", name, d, longPoll)
		}
		return nil
	}
	headers := func(t *http.Transport) error { return check("ResponseHeaderTimeout", t.ResponseHeaderTimeout) }
	switch c := c.(type) {
	case *awshttp.BuildableClient:
		d, _ := c.GetReadTimeout()
		return cmp.Or(check("timeout", c.GetTimeout()), check("read timeout", d), headers(c.GetTransport()))
	case *http.Client:
		if t, ok := sdkhttp.Transport(c); ok {
			return cmp.Or(check("Timeout", c.Timeout), headers(t))
		}
		return check("Timeout", c.Timeout)
	}
	return nil
}

// Stats counts what a Broker has asked of SQS since it was made.
type Stats struct {
	// Receives, Acks, Holds, Sends and Others are requests, retries of the user's client among
	// them. Holds are nacks and extensions, Others is administration. SQS bills each, and each 64
	// KB begun of a larger one.
	Receives, Acks, Holds, Sends, Others int64
	// Empty is how many of the Receives brought nothing.
	Empty int64
	// Received, Acked and Sent are messages. An ack that SQS answered may have done nothing.
	Received, Acked, Sent int64
	// Damaged is how many received messages were left to a later delivery because their body did
	// not match its checksum.
	Damaged int64
}

// PerMessage is how many requests an acked message has cost on the receiving side, 0 when there is
// none.
func (s Stats) PerMessage() float64 {
	if s.Acked == 0 {
		return 0
	}
	return float64(s.Receives+s.Acks+s.Holds) / float64(s.Acked)
}

// Stats tells the counts so far.
func (b *Broker) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	c := &b.counts
	return Stats{
		Receives: c.receives.Load(), Acks: c.acks.Load(), Holds: c.holds.Load(), Sends: c.sends.Load(), Others: c.others.Load(),
		Empty: c.empty.Load(), Received: c.received.Load(), Acked: c.acked.Load(), Sent: c.sent.Load(), Damaged: c.damaged.Load(),
	}
}

type counts struct {
	receives, acks, holds, sends, others  atomic.Int64
	empty, received, acked, sent, damaged atomic.Int64
}

// middleware counts each attempt of each call.
func (c *counts) middleware(s *middleware.Stack) error {
	return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("onceqCount",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			c.of(awsmiddleware.GetOperationName(ctx)).Add(1)
			return next.HandleDeserialize(ctx, in)
		}), middleware.After)
}

func (c *counts) of(operation string) *atomic.Int64 {
	switch operation {
	case "ReceiveMessage":
		return &c.receives
	case "DeleteMessageBatch":
		return &c.acks
	case "ChangeMessageVisibilityBatch":
		return &c.holds
	case "SendMessageBatch":
		return &c.sends
	}
	return &c.others
}
