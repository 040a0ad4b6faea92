package letter

import (
	"errors"

	"github.com/onceq/onceq/broker"
)

// IsUnfit reports whether err says that a message will never be taken as it is.
func IsUnfit(err error) bool {
	return errors.Is(err, broker.ErrTooLarge) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrBadMeta)
}

// IsTooMuch reports whether a call for n messages was refused as a whole, because of their bytes in
// all, for example. Such an answer says nothing of each of them.
func IsTooMuch(err error, n int) bool {
	if n < 2 || !IsUnfit(err) {
		return false
	}
	_, answered := errors.AsType[*broker.BatchError](err)
	return !answered
}

// InParts calls do for n entries, from 0 up to n. If do reports that they were too much for one
// call, InParts goes on with each half of them, in order, until nothing is too much. do must not
// report that of one entry.
func InParts(n int, do func(from, to int) (tooMuch bool)) { inParts(0, n, do) }

func inParts(from, to int, do func(from, to int) bool) {
	if !do(from, to) || to-from < 2 {
		return
	}
	half := from + (to-from)/2
	inParts(from, half, do)
	inParts(half, to, do)
}
