package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/broker"
)

// This file owns what errors become: the call and its target are named, and gRPC's codes become the
// contract's sentinels. Every call of the driver uses it. It locks nothing, because its tables
// never change.

// What a call is named in an error.
const (
	callReceive = "receive"
	callAck     = "ack"
	callNack    = "nack"
	callExtend  = "extend"
	callSend    = "send"
)

// wrap names the call and its target.
func (b *Broker) wrap(call string, err error) error {
	target := b.Subscription()
	if call == callSend || target == "" {
		target = b.Topic()
	}
	return fmt.Errorf("gcppubsub: %s %s: %w", call, last(target), err)
}

// failed turns the error of a whole call into the contract's. errors.As still reaches gRPC's own.
// ctx is the one whose end may have ended the call, and caller the one that it was made of.
func (b *Broker) failed(caller, ctx context.Context, call string, err error) error {
	switch {
	case b.closed():
		return b.wrap(call, broker.ErrClosed)
	case caller.Err() != nil:
		return b.wrap(call, fmt.Errorf("%w: %w", caller.Err(), classify(call, err)))
	case ctx.Err() != nil && codeOf(err) == codes.DeadlineExceeded:
		return b.wrap(call, fmt.Errorf("no answer within %v, which Options.CallTimeout sets: %w: %w", b.o.CallTimeout, context.DeadlineExceeded, err))
	}
	return b.wrap(call, classify(call, err))
}

// statusOf is what gRPC says, also where a client has wrapped it; nil = it says nothing.
func statusOf(err error) *status.Status {
	if g, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return g.GRPCStatus()
	}
	return nil
}

// codeOf is gRPC's code. An error that is none of gRPC's is codes.Unknown.
func codeOf(err error) codes.Code {
	if s := statusOf(err); s != nil {
		return s.Code()
	}
	return codes.Unknown
}

// classify wraps err in the sentinel that fits, if one does, or in the words that are missing.
func classify(call string, err error) error {
	s := statusOf(err)
	if s == nil {
		return err
	}
	switch s.Code() {
	case codes.NotFound:
		return fmt.Errorf("%w: %w", broker.ErrNotFound, err)
	case codes.ResourceExhausted:
		if call == callSend && isTooMuch(s) {
			return fmt.Errorf("%w: %w", broker.ErrTooLarge, err)
		}
		return fmt.Errorf("%w: %w", broker.ErrThrottled, err)
	case codes.InvalidArgument:
		return invalidArgument(call, s, err)
	case codes.OutOfRange:
		return fmt.Errorf("%w: %w", broker.ErrUnsupported, err)
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("access denied; it needs %s: %w", roles[call], err)
	case codes.FailedPrecondition:
		if call != callSend {
			return fmt.Errorf("the subscription cannot be used; it may be detached from its topic, or not be a pull subscription: %w", err)
		}
	}
	return err
}

// roles are what each call needs at least.
var roles = map[string]string{
	callReceive: "roles/pubsub.subscriber on the subscription", callAck: "roles/pubsub.subscriber on the subscription",
	callNack: "roles/pubsub.subscriber on the subscription", callExtend: "roles/pubsub.subscriber on the subscription",
	callSend: "roles/pubsub.publisher on the topic", callPolicy: "roles/pubsub.viewer on the subscription",
	callCheck: "roles/pubsub.viewer on the subscription",
}

// invalidArgument tells apart what Pub/Sub puts under one code:
//
//   - of ack ids: they are no longer good, or never were;
//   - of messages: they are too large, or else Pub/Sub never takes them.
func invalidArgument(call string, s *status.Status, err error) error {
	switch call {
	case callAck, callNack, callExtend:
		return fmt.Errorf("%w: %w", broker.ErrReceiptExpired, err)
	case callSend:
		if isTooMuch(s) {
			return fmt.Errorf("%w: %w", broker.ErrTooLarge, err)
		}
		return fmt.Errorf("%w: %w", broker.ErrUnsupported, err)
	}
	return err
}

// isTooMuch reads in the text whether a publish had too many bytes, because no code says so.
func isTooMuch(s *status.Status) bool {
	m := strings.ToLower(s.Message())
	for _, words := range [...]string{"too large", "too long", "larger than max", "exceeds the limit", "exceeds the maximum"} {
		if strings.Contains(m, words) {
			return true
		}
	}
	return false
}

// What ErrorInfo says of ack ids on a subscription with exactly-once delivery.
const (
	reasonAckIDs     = "EXACTLY_ONCE_ACKID_FAILURE"
	permanentInvalid = "PERMANENT_FAILURE_INVALID_ACK_ID"
	transient        = "TRANSIENT_"
)

// failedIDs are the ack ids that Pub/Sub names as failed, each with how; nil = it names none.
// others reports whether the call was applied to those that it does not name.
func failedIDs(err error) (how map[string]string, others bool) {
	s := statusOf(err)
	if s == nil {
		return nil, false
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == reasonAckIDs && len(info.GetMetadata()) > 0 {
			return info.GetMetadata(), s.Code() == codes.InvalidArgument || s.Code() == codes.FailedPrecondition
		}
	}
	return nil, false
}

// errTransient is the answer to an ack id that failed for now. Repeating is safe, and helps.
var errTransient = errors.New("it failed for now; repeating is safe")

// idError is the answer to an ack id that failed.
func (b *Broker) idError(call, how string, err error) error {
	switch {
	case how == permanentInvalid:
		return b.wrap(call, fmt.Errorf("%w: %s: %w", broker.ErrReceiptExpired, how, err))
	case strings.HasPrefix(how, transient):
		return b.wrap(call, fmt.Errorf("%w: %s: %w", errTransient, how, err))
	}
	return b.wrap(call, fmt.Errorf("%s: %w", how, err))
}

// isDenied reports whether the caller may not ask. Repeating does not change that.
func isDenied(err error) bool {
	c := codeOf(err)
	return c == codes.PermissionDenied || c == codes.Unauthenticated
}
