package broker

import (
	"errors"
	"fmt"
	"strings"
)

// A driver's errors wrap one of these where it fits; errors.As still reaches the SDK's own.
var (
	// ErrReceiptExpired: the delivery is no longer the caller's. Repeating cannot help.
	ErrReceiptExpired = errors.New("broker: receipt expired")
	// ErrThrottled: the service is busy. Nothing was applied; repeat later.
	ErrThrottled = errors.New("broker: throttled")
	// ErrNotFound: the queue is not there.
	ErrNotFound = errors.New("broker: queue not found")
	// ErrUnsupported: the driver or the queue cannot do this; see Limits.
	ErrUnsupported = errors.New("broker: not supported")
	// ErrTooLarge: the message does not fit, by bytes or by number of attributes.
	ErrTooLarge = errors.New("broker: message too large")
	// ErrClosed: the broker was closed by its owner.
	ErrClosed = errors.New("broker: closed")
	// ErrBadMeta: our metadata attribute could not be read or written.
	ErrBadMeta = errors.New("broker: bad metadata")
)

// BatchError answers a batch call by position: Errs[i] belongs to entry i, nil = applied.
type BatchError struct{ Errs []error }

// Error names how many entries failed, and the first failure.
func (e *BatchError) Error() string {
	failed, first := 0, -1
	for i, err := range e.Errs {
		if err != nil {
			failed++
			if first < 0 {
				first = i
			}
		}
	}
	if failed == 0 {
		return "broker: batch error without a failed entry"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "broker: %d of %d entries failed; entry %d: %v", failed, len(e.Errs), first, e.Errs[first])
	return b.String()
}

// Unwrap returns the entries' errors, nils among them.
func (e *BatchError) Unwrap() []error { return e.Errs }

// ErrAt is the answer for entry i of a batch call that returned err. It is nil where the entry was
// applied. Where a BatchError is too short to have an entry i, nothing is known of that entry.
func ErrAt(err error, i int) error {
	if err == nil {
		return nil
	}
	var b *BatchError
	switch {
	case !errors.As(err, &b):
		return err
	case i < len(b.Errs):
		return b.Errs[i]
	}
	// It must not unwrap: what was answered for other entries says nothing of this one.
	return fmt.Errorf("broker: no answer for entry %d: %v", i, err) //nolint:errorlint // see above
}

// JoinEntries returns errs as the error of a batch call: nil when every entry is nil, else a
// *BatchError.
func JoinEntries(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return &BatchError{Errs: errs}
		}
	}
	return nil
}
