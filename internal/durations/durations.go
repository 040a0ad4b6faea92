// Package durations adds times of any length: a user who wants something for ever writes the
// longest Duration.
package durations

import (
	"math"
	"time"
)

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
