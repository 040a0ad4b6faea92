package control

import (
	"fmt"
	"time"
)

// longestBack is the longest time for which a worker gives back a message whose scope or type is
// paused. It begins with a minute and doubles, so some receives come on top.
const (
	longestBack = 15 * time.Minute
	firstBacks  = 4
)

// BackFor is for how long a worker gives a message back that has been received so often, while its
// scope or type is paused and left is what is left of the rule: 1 min, doubled with each receive,
// at most 15 min. The worker adds a random part.
func BackFor(left time.Duration, receives int) time.Duration {
	return max(0, min(left, time.Minute<<min(max(0, receives-1), 10), longestBack))
}

// Price is what it costs to pause a scope or a type on a queue that others use, too: each message
// of it is received again and again. Pausing a whole queue costs nothing.
type Price struct {
	// For is how long the pause is.
	For time.Duration
	// MaxReceives is after how many receives the queue moves a message away, as
	// broker.RedrivePolicy tells; 0 = it never does.
	MaxReceives int
	// MaxAttempts is that of the workers' jobs; a negative one counts as 0.
	MaxAttempts int
	// Queue and Target are the names of the queue and of where it moves messages.
	Queue, Target string
}

// Receives is how often the pause has a message received, about.
func (p Price) Receives() int {
	return int((p.For+longestBack-1)/longestBack) + firstBacks
}

// Check refuses a pause that would use up the receives of the queue's messages: beyond those that
// the attempts of a job need, there must be as many as the pause costs. Then the queue would move
// jobs away that nobody has tried. The error is a *[PriceError].
func (p Price) Check() error {
	if p.MaxReceives <= 0 || p.MaxReceives-max(0, p.MaxAttempts) >= p.Receives() {
		return nil
	}
	return &PriceError{p}
}

// PriceError refuses a pause because of what it costs.
type PriceError struct{ Price Price }

// Error is the arithmetic, in a sentence.
func (e *PriceError) Error() string {
	p := &e.Price
	to := p.Target
	if to == "" {
		to = "its dead-letter queue"
	}
	return fmt.Sprintf("%s moves a message to %s after %d receives; a pause of %s costs about %d. Pause the queue, or raise maxReceiveCount",
		p.Queue, to, p.MaxReceives, hours(p.For), p.Receives())
}

// hours writes a duration without the parts that are zero.
func hours(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
