package awssqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/onceq/onceq/broker"
)

// ErrChecksum tells that the body that came is not the one whose checksum SQS gave. A receive is answered so when it brought nothing
// else: repeating is safe. A send's entry is answered so when SQS has stored something else. That stays in the queue, and with the same
// key it may be what is done, so send it again under another one.
var ErrChecksum = errors.New("awssqs: a body does not match its checksum")

// wrap names the call and the queue.
func (b *Broker) wrap(call string, err error) error {
	return fmt.Errorf("awssqs: %s %s: %w", call, b.name, err)
}

// failed turns the error of a whole call into the contract's, with the SDK's own still within reach. ctx is the caller's.
func (b *Broker) failed(ctx context.Context, call string, err error) error {
	switch {
	case b.closed():
		return b.wrap(call, broker.ErrClosed)
	case ctx.Err() != nil:
		// The SDK may say that the request was cancelled, which hides a deadline.
		return b.wrap(call, fmt.Errorf("%w: %w", ctx.Err(), err))
	}
	return b.wrap(call, classify(err))
}

// classify wraps err in the sentinel that fits, if one does.
func classify(err error) error {
	if s := sentinel(err); s != nil {
		return fmt.Errorf("%w: %w", s, err)
	}
	return err
}

// sentinel reads the error code. In the Go SDK some codes have a type and others, such as InvalidParameterValue, have none, so it looks
// at the code alone.
func sentinel(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return nil
	}
	code := codeOf(api)
	switch code {
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidIdFormat":
		return broker.ErrReceiptExpired
	case "InvalidParameterValue":
		return invalidParameter(api.ErrorMessage())
	case "QueueDoesNotExist", "NonExistentQueue", "InvalidAddress":
		return broker.ErrNotFound
	case "OverLimit", "KmsThrottled", "KMS.Throttling":
		return broker.ErrThrottled
	case "BatchRequestTooLong":
		return broker.ErrTooLarge
	case "UnsupportedOperation", "InvalidMessageContents":
		return broker.ErrUnsupported
	}
	for _, c := range [...]string{code, api.ErrorCode()} {
		if _, ok := retry.DefaultThrottleErrorCodes[c]; ok {
			return broker.ErrThrottled
		}
	}
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) && re.HTTPStatusCode() == http.StatusTooManyRequests {
		return broker.ErrThrottled
	}
	return nil
}

// isTooLong tells whether a request was refused for what it holds in all, with nothing applied.
func isTooLong(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && codeOf(api) == "BatchRequestTooLong"
}

// codeOf is the code without what some answers put around it: AWS a prefix in its older protocol, emulators the name of a Java class.
func codeOf(api smithy.APIError) string {
	code := strings.TrimPrefix(api.ErrorCode(), "AWS.SimpleQueueService.")
	return strings.TrimSuffix(code, "Exception")
}

// invalidParameter tells apart what SQS puts under one code: a receipt that is no longer good, more than the 12 hours of a
// delivery, a message that is too large.
func invalidParameter(message string) error {
	m := strings.ToLower(message)
	switch {
	case strings.Contains(m, "receipt"), strings.Contains(m, "does not exist"), strings.Contains(m, "not available for visibility"):
		return broker.ErrReceiptExpired
	case strings.Contains(m, "must be shorter than"), strings.Contains(m, "number of message attributes"):
		return broker.ErrTooLarge
	case strings.Contains(m, "visibilitytimeout"), strings.Contains(m, "beyond the limit"):
		return broker.ErrUnsupported
	}
	return nil
}

// entryError is the answer to one entry of a batch.
func (b *Broker) entryError(call string, e types.BatchResultErrorEntry) error {
	api := &smithy.GenericAPIError{Code: deref(e.Code), Message: deref(e.Message), Fault: smithy.FaultServer}
	if e.SenderFault {
		api.Fault = smithy.FaultClient
	}
	return b.wrap(call, classify(api))
}

// unanswered is an entry that SQS said nothing of: it may or may not have been applied.
func (b *Broker) unanswered(call string) error {
	return b.wrap(call, errors.New("the answer does not name the entry"))
}

// refused tells whether SQS has answered that it did nothing, as opposed to no answer, or a failure of its own after
// which everything may have been applied.
func refused(err error) bool {
	var re *smithyhttp.ResponseError
	return sentinel(err) != nil || errors.As(err, &re) && re.HTTPStatusCode() >= 400 && re.HTTPStatusCode() < 500
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
