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

// ErrChecksum tells that the body that came is not the one whose checksum SQS gave. A receive is
// answered so when it brought nothing else: repeating is safe. A send's entry is answered so when
// SQS has stored something else. That stays in the queue, and with the same key it may be what is
// done, so send it again under another one.
var ErrChecksum = errors.New("awssqs: a body does not match its checksum")

// wrap names the call and the queue.
func (b *Broker) wrap(call string, err error) error {
	return fmt.Errorf("awssqs: %s %s: %w", call, b.Name(), err)
}

// failed turns the error of a whole call into the contract's, with the SDK's own still within
// reach. ctx is the caller's.
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

// kind is what a call is about: one code means another thing to each.
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

// sentinels are the contract's words for SQS's codes; the package comment has them as a table. A
// code that is missing is one that may pass, or that somebody has to mend: access, keys, SQS's own
// faults. Repeating is safe.
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

// isTooLong tells whether a request was refused for what it holds in all, with nothing applied.
func isTooLong(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && codeOf(api) == "BatchRequestTooLong"
}

// codeOf is the code without what some answers put around it: AWS a prefix in its older protocol,
// emulators the name of a Java class.
func codeOf(api smithy.APIError) string {
	code := strings.TrimPrefix(api.ErrorCode(), "AWS.SimpleQueueService.")
	return strings.TrimSuffix(code, "Exception")
}

// invalidParameter tells apart what SQS puts under one code: of a receipt more than the 12 hours of
// a delivery, of a message that it is too large. What it says of a receipt otherwise is that it is
// no longer good; of a message, that SQS never takes it.
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
	}
	return nil
}

// entryError is the answer to one entry of a batch.
func (b *Broker) entryError(call string, e types.BatchResultErrorEntry) error {
	api := &smithy.GenericAPIError{Code: deref(e.Code), Message: deref(e.Message), Fault: smithy.FaultServer}
	if e.SenderFault {
		api.Fault = smithy.FaultClient
	}
	return b.wrap(call, classify(kinds[call], api))
}

// unanswered is an entry that SQS said nothing of: it may or may not have been applied.
func (b *Broker) unanswered(call string) error {
	return b.wrap(call, errors.New("the answer does not name the entry"))
}

// refused tells whether SQS has answered that it did nothing, as opposed to no answer, or a failure
// of its own after which everything may have been applied.
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
