package watermillonceq

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// FenceMetadata is the metadata in which the middleware writes which failure a message stands for,
// before it answers with a [*FinalError]. A message in a poison queue carries it on. See
// [ReopenFromMetadata].
const FenceMetadata = "onceq_fence"

// FinalError says that no delivery of the message will run its handler, unless an operator reopens
// the key. Err is the reason: what the handler returned, marked by [onceq.Permanent]; a
// *[onceq.FailedError] or *[onceq.ParkedError], which tells of another delivery; a
// *[onceq.MismatchError]; [ErrNoKey]; or an error that wraps [dedupe.ErrBadKey].
type FinalError struct {
	Key   dedupe.Key // the zero Key where none was found
	Fence uint64     // names the failure, for Options.Reopen; 0 = there is nothing to reopen
	Err   error
}

// Error is the reason.
func (e *FinalError) Error() string {
	if e.Key == (dedupe.Key{}) {
		return fmt.Sprintf("watermillonceq: no delivery will run this message: %v", e.Err)
	}
	return fmt.Sprintf("watermillonceq: no delivery will run %v: %v", e.Key, e.Err)
}

// Unwrap is the reason.
func (e *FinalError) Unwrap() error { return e.Err }

// ErrorClass is the reason's class.
func (e *FinalError) ErrorClass() string {
	if errors.Is(e.Err, ErrNoKey) {
		return onceq.ClassNoKey
	}
	if errors.Is(e.Err, dedupe.ErrBadKey) {
		return onceq.ClassBadKey
	}
	return onceq.ClassOf(e.Err)
}

// IsFinal reports whether err holds a [*FinalError]. It is the filter for Watermill's
// PoisonQueueWithFilter, which stands outside of this middleware.
func IsFinal(err error) bool {
	var final *FinalError
	return errors.As(err, &final)
}

// ReopenFromMetadata is an Options.Reopen that goes by [FenceMetadata]: a message that an operator
// takes from the poison queue and publishes again runs again, once for each failure. Use it only
// where nobody may publish to the topic whom you would not let run a failed job again.
func ReopenFromMetadata(msg *message.Message) uint64 {
	fence, err := strconv.ParseUint(msg.Metadata.Get(FenceMetadata), 10, 64)
	if err != nil {
		return 0
	}
	return fence
}

// final is err as a *FinalError where nothing will ever come of another delivery; else nil. fence
// is that of this delivery's own run; 0 = it has not run.
func final(k dedupe.Key, fence uint64, err error) *FinalError {
	var unsettled *onceq.UnsettledError
	var failed *onceq.FailedError
	var parked *onceq.ParkedError
	var mismatch *onceq.MismatchError
	var permanent *verdict.PermanentError
	switch {
	case errors.As(err, &unsettled) && unsettled.Key == k:
		return nil // whatever it says: it is not recorded
	case errors.As(err, &parked) && parked.Key == k: // else the handler tells of another key
		return &FinalError{k, parked.Fence, err}
	case errors.As(err, &failed) && fence == 0:
		return &FinalError{k, failed.Fence, err}
	case errors.As(err, &mismatch) && fence == 0, fence == 0 && (errors.Is(err, dedupe.ErrBadKey) || errors.Is(err, dedupe.ErrBadRequest)):
		return &FinalError{k, 0, err}
	case errors.As(err, &permanent) && fence > 0:
		return &FinalError{k, fence, err}
	}
	return nil
}

// mark writes into the message which failure it stands for.
func mark(msg *message.Message, e *FinalError) {
	if e.Fence == 0 {
		return
	}
	if msg.Metadata == nil {
		msg.Metadata = make(message.Metadata)
	}
	msg.Metadata.Set(FenceMetadata, strconv.FormatUint(e.Fence, 10))
}
