package gocloudpubsub

import (
	"errors"
	"fmt"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq/broker"
)

// What a call is named in an error.
const (
	callReceive = "receive"
	callAck     = "ack"
	callNack    = "nack"
	callExtend  = "extend"
	callSend    = "send"
	callClose   = "close"
)

// classify wraps err in the sentinel that fits gocloud's code, if one does.
func classify(call string, err error) error {
	if errors.Is(err, batcher.ErrMessageTooLarge) {
		return fmt.Errorf("%w: %w", broker.ErrTooLarge, err)
	}
	var sentinel error
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		sentinel = broker.ErrNotFound
	case gcerrors.ResourceExhausted:
		sentinel = broker.ErrThrottled
	case gcerrors.InvalidArgument:
		if call == callSend {
			sentinel = broker.ErrUnsupported
		}
	case gcerrors.Unimplemented:
		sentinel = broker.ErrUnsupported
	default:
	}
	if sentinel == nil || errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}

func expired(text string) error { return fmt.Errorf("%w: %s", broker.ErrReceiptExpired, text) }
