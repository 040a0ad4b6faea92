// Package backoff says for how long a worker gives back a message whose job is paused, and how many
// receives that costs.
package backoff

import "time"

// longest is the longest time for which a worker gives back a message whose scope or type is
// paused. It begins with a minute and doubles, so some receives come on top.
const (
	longest = 15 * time.Minute
	first   = 4
)

// For is for how long a worker gives a message back that has been received so often, while its
// scope or type is paused and left is what is left of the rule: 1 min, doubled with each receive,
// at most 15 min. The worker adds a random part.
func For(left time.Duration, receives int) time.Duration {
	return max(0, min(left, time.Minute<<min(max(0, receives-1), 10), longest))
}

// Receives is how often a pause of that length has a message received, about.
func Receives(pause time.Duration) int { return int((pause+longest-1)/longest) + first }
