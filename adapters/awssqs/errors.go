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

// This file owns what errors become: the call and the queue are named, and SQS's codes become the
// contract's sentinels. Every call of the driver uses it. It locks nothing, because its tables
// never change.

// ErrChecksum says that a body does not match the checksum that SQS gave.
//
//   - A receive is answered so when it brought nothing else. Repeating it is safe.
//   - A send's entry is answered so when SQS has stored another body than was sent. That message
//     stays in the queue, and under the same key a worker may do it instead of a second one. So
//     send the right one under another key.
var ErrChecksum = errors.New("awssqs: a body does not match its checksum")

// wrap names the call and the queue.
func (b *Broker) wrap(call string, err error) error {
	return fmt.Errorf("awssqs: %s %s: %w", call, b.Name(), err)
}

// failed turns the error of a whole call into the contract's. errors.As still reaches the SDK's
// own. ctx is the one whose end may have ended the call.
func (b *Broker) failed(ctx context.Context, call string, err error) error {
	switch {
	case b.closed():
		return b.wrap(call, broker.ErrClosed)
	case ctx.Err() != nil:
		// The SDK may say that the request was cancelled, which hides a deadline, or what SQS
		// answered just then.
		return b.wrap(call, fmt.Errorf("%w: %w", ctx.Err(), classify(kinds[call], err)))
	}
	return b.wrap(call, classify(kinds[call], err))
}

// kind is what a call is about. The same code means something else for each kind.
type kind int

const (
	aboutQueue kind = iota
	aboutReceipts
	aboutMessages
)

// kinds are those of the calls that are not about the queue alone.
var kinds = map[string]kind{callAck: aboutReceipts, callNack: aboutReceipts, callExtend: aboutReceipts, callSend: aboutMessages}

// What a call is named in an error.
const (
	callReceive = "receive"
	callAck     = "ack"
	callNack    = "nack"
	callExtend  = "extend"
	callSend    = "send"
)

// sentinels are the contract's words for SQS's codes. The package comment has them as a table.
// After a code that is missing here, repeating is safe. Its cause may pass by itself, or somebody
// has to mend it: access, keys, SQS's own faults.
var sentinels = map[string]error{
	"QueueDoesNotExist": broker.ErrNotFound,
	"NonExistentQueue":  broker.ErrNotFound,
	"InvalidAddress":    broker.ErrNotFound,
	"ResourceNotFound":  broker.ErrNotFound,

	"OverLimit":      broker.ErrThrottled,
	"KmsThrottled":   broker.ErrThrottled,
	"KMS.Throttling": broker.ErrThrottled,

	"BatchRequestTooLong": broker.ErrTooLarge,

	"UnsupportedOperation":         broker.ErrUnsupported,
	"InvalidMessageContents":       broker.ErrUnsupported,
	"InvalidAttributeName":         broker.ErrUnsupported,
	"InvalidAttributeValue":        broker.ErrUnsupported,
	"InvalidParameterCombination":  broker.ErrUnsupported,
	"MissingParameter":             broker.ErrUnsupported,
	"MissingRequiredParameter":     broker.ErrUnsupported,
	"Validation":                   broker.ErrUnsupported,
	"ValidationError":              broker.ErrUnsupported,
	"InvalidBatchEntryId":          broker.ErrUnsupported,
	"BatchEntryIdsNotDistinct":     broker.ErrUnsupported,
	"EmptyBatchRequest":            broker.ErrUnsupported,
	"TooManyEntriesInBatchRequest": broker.ErrUnsupported,
}

// classify wraps err in the sentinel that fits, if one does.
func classify(k kind, err error) error {
	if s := sentinel(k, err); s != nil {
		return fmt.Errorf("%w: %w", s, err)
	}
	return err
}

// sentinel reads the error code. In the Go SDK some codes have a type and others, such as
// InvalidParameterValue, have none, so it looks at the code alone.
func sentinel(k kind, err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return nil
	}
	code := codeOf(api)
	switch code {
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidIdFormat":
		if k == aboutReceipts {
			return broker.ErrReceiptExpired
		}
	case "InvalidParameterValue":
		return invalidParameter(k, api.ErrorMessage())
	}
	if s := sentinels[code]; s != nil {
		return s
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

// isTooLong reports whether SQS refused a request because its entries are too long together. Then
// none of them was applied.
func isTooLong(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && codeOf(api) == "BatchRequestTooLong"
}

// codeOf is the code without what some answers put around it. AWS has a prefix in its older
// protocol, and emulators have the name of a Java class.
func codeOf(api smithy.APIError) string {
	code := strings.TrimPrefix(api.ErrorCode(), "AWS.SimpleQueueService.")
	return strings.TrimSuffix(code, "Exception")
}

// invalidParameter tells apart, by their texts, what SQS puts under one code:
//
//   - of a receipt: it would be held for more than the 12 hours of a delivery, or else it is no
//     longer good;
//   - of a message: it is too large, or else SQS never takes it.
func invalidParameter(k kind, message string) error {
	m := strings.ToLower(message)
	switch k {
	case aboutReceipts:
		if strings.Contains(m, "visibilitytimeout") && !strings.Contains(m, "parameter receipthandle") {
			return broker.ErrUnsupported
		}
		return broker.ErrReceiptExpired
	case aboutMessages:
		if strings.Contains(m, "message must be shorter than") || strings.Contains(m, "number of message attributes") {
			return broker.ErrTooLarge
		}
		return broker.ErrUnsupported
	default: // of a queue there is no parameter that says more than the code
		return nil
	}
}

// entryError is the answer to one entry of a batch.
func (b *Broker) entryError(call string, e types.BatchResultErrorEntry) error {
	api := &smithy.GenericAPIError{Code: deref(e.Code), Message: deref(e.Message), Fault: smithy.FaultServer}
	if e.SenderFault {
		api.Fault = smithy.FaultClient
	}
	return b.wrap(call, classify(kinds[call], api))
}

// unanswered is the answer to an entry that SQS does not name. It may or may not have been applied.
func (b *Broker) unanswered(call string) error {
	return b.wrap(call, errors.New("the answer does not name the entry"))
}

// refused reports whether SQS has answered that it did nothing. After no answer, or after a failure
// of SQS's own, everything may have been applied.
func refused(err error) bool {
	var re *smithyhttp.ResponseError
	return sentinel(aboutQueue, err) != nil || errors.As(err, &re) && re.HTTPStatusCode() >= 400 && re.HTTPStatusCode() < 500
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
