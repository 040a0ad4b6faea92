package gocloudpubsub

import (
	"context"
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

// wrap names the call and, where it is known, the queue.
func (b *Broker) wrap(call string, err error) error {
	if b == nil || b.name == "" {
		return fmt.Errorf("gocloudpubsub: %s: %w", call, err)
	}
	return fmt.Errorf("gocloudpubsub: %s %s: %w", call, b.name, err)
}

// failed turns the error of a whole call into the contract's. errors.As still reaches gocloud's and
// the SDK's own.
func (b *Broker) failed(ctx context.Context, call string, err error) error {
	switch {
	case b.closed():
		return b.wrap(call, broker.ErrClosed)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return b.wrap(call, classify(call, err))
}

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
