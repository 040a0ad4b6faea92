// Package durations knows what users write as times. Who wants something for ever writes the
// longest Duration, and a sum must bear that. Who forgets the unit writes nanoseconds.
package durations

import (
	"fmt"
	"math"
	"time"
)

// Least is the shortest time that a user can have meant.
const Least = time.Millisecond

// IsBare reports whether d was written without its unit, such as 3 for 3 s. 0 and less are no bare
// times, because they mean a default, none, or a mistake of another kind.
func IsBare(d time.Duration) bool { return d > 0 && d < Least }

// AskUnit is what the user is asked about a bare time.
func AskUnit(d time.Duration) string { return Below(d, Least) }

// Below is AskUnit for a time whose least is another one.
func Below(d, least time.Duration) string {
	return fmt.Sprintf("%v is below %v; is its unit missing?", d, least)
}

// Sum is a + b, or the longest Duration where that is longer still; the same holds below zero.
func Sum(a, b time.Duration) time.Duration {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}
