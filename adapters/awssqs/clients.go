package awssqs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq/adapters/awssqs/internal/leansqs"
	"github.com/onceq/onceq/internal/sdkhttp"
)

// This file owns what New makes of the user's client: the copies, or the lean transport in their
// place, and what their requests are counted in. New calls connect once. The counts are atomic, and
// nothing is locked.

// calls are the busy ones, in which the two transports differ.
type calls interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
}

// connect makes the copies of the client. Bodies are checked against their checksums here, unless
// the user's client is told not to, and not by the SDK, which throws away all ten messages of an
// answer for one damaged body.
func (b *Broker) connect(c *sqs.Client) error {
	o := c.Options()
	common := func(o *sqs.Options) {
		o.HTTPClient = sdkhttp.Sound(o.HTTPClient)
		o.DisableMessageChecksumValidation = true
		o.APIOptions = append(o.APIOptions, b.counts.middleware)
	}
	unretried := func(o *sqs.Options) {
		o.HTTPClient = separate(o.HTTPClient)
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
	}
	b.rest = sqs.New(o, common)
	if b.o.Transport != TransportSDK {
		err := b.connectLean(o, unretried)
		if err == nil {
			return nil
		}
		if b.o.Transport == TransportLean {
			return fmt.Errorf("awssqs: New: Options.Transport: TransportLean: %w", err)
		}
		if b.o.Logger != nil {
			b.o.Logger.LogAttrs(context.Background(), slog.LevelDebug, "awssqs: the lean transport is not used", //nolint:contextcheck // New has none
				slog.String("queue", b.name), slog.String("reason", err.Error()))
		}
	}
	b.receives, b.leases, b.sends = sqs.New(o, unretried, common, zeroWaits), sqs.New(o, unretried, common), b.rest
	return nil
}

// connectLean makes the copies that do without the SDK's stack of middleware. It changes b only if
// all of them can.
func (b *Broker) connectLean(o sqs.Options, unretried func(*sqs.Options)) error {
	switch o.HTTPClient.(type) {
	case *http.Client, *awshttp.BuildableClient:
	default:
		if b.o.Transport != TransportLean {
			return fmt.Errorf("%w: the HTTPClient is a %T", leansqs.ErrUnfit, o.HTTPClient)
		}
	}
	var cs [3]*leansqs.Client
	for i, f := range [...]func(*sqs.Options){unretried, unretried, func(*sqs.Options) {}} {
		of := o.Copy()
		f(&of)
		var err error
		if cs[i], err = leansqs.New(of, func(operation string) { b.counts.of(operation).Add(1) }); err != nil {
			return err
		}
	}
	b.receives, b.leases, b.sends = cs[0], cs[1], cs[2]
	return nil
}

func zeroWaits(o *sqs.Options) { o.APIOptions = append(o.APIOptions, waitZero) }

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
