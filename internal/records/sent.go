package records

import "time"

// Sent is a job's time of sending as every store can hold it: zero, not known, where it lies
// outside the years 1 to 9999. It comes from the sender, and must not fail the claims beside its
// own.
func Sent(t time.Time) time.Time {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}
