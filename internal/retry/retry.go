// Package retry has the pauses between the tries of a call that fails.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause is the one before the n-th repeat of a call: 50 ms doubled up to 5 s, half of it at random.
func Pause(n int) time.Duration { return Within(50*time.Millisecond, 5*time.Second, n) }

// Within is Pause for calls of another length: first doubled up to most. It doubles ten times at
// the most.
func Within(first, most time.Duration, n int) time.Duration {
	d := min(most, first<<min(max(0, n-1), 10))
	return d/2 + rand.N(d/2+1)
}

// Rest waits for d, and tells whether ctx goes on. Where d is not above zero there is no timer: in
// a bubble of testing/synctest such a one fires on the goroutine that sets it, and two at once
// crash the race detector (golang/go#78156).
func Rest(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
