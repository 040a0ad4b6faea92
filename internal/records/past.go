package records

import (
	"slices"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// DecodePast is a column's Past. A program of version 1 leaves the column as it is when it makes
// the record anew, so what began before the record is of another one, and is left out.
func DecodePast(b []byte, created time.Time) []dedupe.Attempt {
	if b == nil {
		return nil
	}
	past := dedupe.DecodePast(b)
	from := created.Truncate(time.Microsecond)
	past = slices.DeleteFunc(past, func(a dedupe.Attempt) bool { return a.Claimed.Before(from) })
	if len(past) == 0 {
		return nil
	}
	return past
}
