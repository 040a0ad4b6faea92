// Package leansqs makes the four busy calls of SQS (receive, and delete, change visibility and send
// in batches) at less cost than the SDK's client. Requests and answers are the same.
//
// The SDK builds its stack of middleware anew for each call. Here the SDK's own parts are put
// together once: its credentials, its retry loop, its protocol. What is common is done here: the
// signature (sign.go), plain bodies (body.go) and usual answers (scan.go). All else is left to the
// SDK's parts. Where a client carries something that this way would pass over, New says so, and the
// caller keeps the SDK.
package leansqs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync/atomic"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/schemas"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/auth"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/onceq/onceq/internal/sdkhttp"
)

// This file owns the Client and its calls. The driver calls it from many goroutines. New sets all
// fields, and only the clock's skew changes after it, which is atomic. attempt.go has one try of a
// call, plan.go what all requests share, unfit.go when the SDK is used instead.

// Client makes the calls. Its methods have the signatures of sqs.Client's. They ignore functional
// options.
type Client struct {
	o          sqs.Options
	plan       *plan
	identities auth.IdentityResolver
	signer     smithyhttp.Signer
	properties smithy.Properties // of the signature
	attempts   *retry.Attempt
	timing     awsmiddleware.RecordResponseTiming
	count      func(operation string)
	again      bool         // net/http may send a body a second time, because no redirect is followed
	skew       atomic.Int64 // the service's clock against ours, in nanoseconds
}

// ErrUnfit says that the client carries what this package would pass over. Its text names it.
var ErrUnfit = errors.New("the SDK makes the calls")

// New makes a Client of a client's options; it does no I/O. They come from sqs.Client.Options, so
// they are complete. count is called for each request, before it is sent. Its error wraps ErrUnfit.
func New(o sqs.Options, count func(operation string)) (*Client, error) {
	if err := unfit(&o); err != nil {
		return nil, err
	}
	p, err := makePlan(o)
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, plan: p, count: count}
	c.o.HTTPClient, c.again = sdkhttp.Unredirected(o.HTTPClient)
	c.identities, c.signer = o.AuthSchemes[0].IdentityResolver(o), adapted(p.signer)
	smithyhttp.SetSigV4SigningName(&c.properties, p.service)
	smithyhttp.SetSigV4SigningRegion(&c.properties, p.region)
	c.timing.DisableClockSkewCorrection = o.DisableClockSkewCorrection
	c.attempts = retry.NewAttemptMiddleware(o.Retryer, eachAnew, func(a *retry.Attempt) {
		a.ClientSkew, a.DisableClockSkewCorrection = &c.skew, o.DisableClockSkewCorrection
	})
	return c, nil
}

// adapted is the SDK's own adapter around s. It brings the time, corrected by the skew.
func adapted(s sqs.HTTPSignerV4) smithyhttp.Signer {
	o := sqs.New(sqs.Options{Region: "us-east-1", HTTPSignerV4: s}).Options()
	return o.AuthSchemes[0].Signer()
}

// operation is one of the calls.
type operation struct {
	name   string
	target []string // the header that names it
	schema *smithy.OperationSchema
}

func makeOperation(name string, schemas ...*smithy.Schema) operation {
	return operation{name, []string{"AmazonSQS." + name}, smithy.NewOperationSchema(schemas[0], schemas[1], schemas[2])}
}

var (
	receive = makeOperation("ReceiveMessage",
		schemas.ReceiveMessage, schemas.ReceiveMessageRequest, schemas.ReceiveMessageResult)
	deletes = makeOperation("DeleteMessageBatch",
		schemas.DeleteMessageBatch, schemas.DeleteMessageBatchRequest, schemas.DeleteMessageBatchResult)
	changes = makeOperation("ChangeMessageVisibilityBatch",
		schemas.ChangeMessageVisibilityBatch, schemas.ChangeMessageVisibilityBatchRequest, schemas.ChangeMessageVisibilityBatchResult)
	sends = makeOperation("SendMessageBatch",
		schemas.SendMessageBatch, schemas.SendMessageBatchRequest, schemas.SendMessageBatchResult)
)

// ReceiveMessage is sqs.Client's. A wait of 0 is sent as such.
func (c *Client) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out := &sqs.ReceiveMessageOutput{}
	err := c.do(ctx, &receive, ZeroWait{in}, receiveBody(in), func() smithy.Deserializable {
		*out = sqs.ReceiveMessageOutput{}
		return out
	}, func(text string) bool { return scanReceived(text, out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DeleteMessageBatch is sqs.Client's.
func (c *Client) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	out := &sqs.DeleteMessageBatchOutput{}
	err := c.do(ctx, &deletes, in, deleteBody(in), func() smithy.Deserializable {
		*out = sqs.DeleteMessageBatchOutput{}
		return out
	}, func(text string) bool { return scanDeleted(text, out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ChangeMessageVisibilityBatch is sqs.Client's.
func (c *Client) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	err := c.do(ctx, &changes, in, changeBody(in), func() smithy.Deserializable {
		*out = sqs.ChangeMessageVisibilityBatchOutput{}
		return out
	}, func(text string) bool { return scanChanged(text, out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SendMessageBatch is sqs.Client's, but for the checksums, which the caller compares.
func (c *Client) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	out := &sqs.SendMessageBatchOutput{}
	err := c.do(ctx, &sends, in, nil, func() smithy.Deserializable {
		*out = sqs.SendMessageBatchOutput{}
		return out
	}, nil)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// do makes one call, in as many tries as the client's retryer says. Without a body the SDK writes
// one.
func (c *Client) do(ctx context.Context, op *operation, in smithy.Serializable, body []byte, fresh func() smithy.Deserializable, scan func(text string) bool) error {
	k := &call{c: c, op: op, fresh: fresh, scan: scan, body: body, invocation: newUUID()}
	var err error
	if body == nil {
		err = k.write(ctx, in)
	}
	if err == nil {
		sum := sha256.Sum256(k.body)
		ctx = v4.SetPayloadHash(middleware.ClearStackValues(ctx), hex.EncodeToString(sum[:]))
		_, _, err = c.attempts.HandleFinalize(ctx, middleware.FinalizeInput{Request: k}, k)
	}
	if err != nil {
		return &smithy.OperationError{ServiceID: sqs.ServiceID, OperationName: op.name, Err: err}
	}
	return nil
}

// write makes the body as the SDK's protocol does.
func (k *call) write(ctx context.Context, in smithy.Serializable) error {
	r := smithyhttp.NewStackRequest().(*smithyhttp.Request)
	if err := k.c.o.Protocol.SerializeRequest(ctx, k.op.schema, in, r); err != nil {
		return err
	}
	n, _, err := r.StreamLength()
	if err != nil {
		return err
	}
	k.body = make([]byte, n)
	_, err = io.ReadFull(r.GetStream(), k.body)
	return err
}

// ZeroWait writes a receive's wait of 0. The SDK leaves it out, and then a queue with a wait of its
// own would use that one.
type ZeroWait struct{ *sqs.ReceiveMessageInput }

// Serialize writes the request.
func (z ZeroWait) Serialize(s smithy.ShapeSerializer) {
	s.WriteStruct(schemas.ReceiveMessageRequest)
	z.SerializeMembers(s)
	if z.WaitTimeSeconds == 0 {
		s.WriteInt32(schemas.ReceiveMessageRequest_WaitTimeSeconds, 0)
	}
	s.CloseStruct()
}
