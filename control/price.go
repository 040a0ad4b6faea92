package control

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/internal/ahead"
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

// Price is what a pause costs. There are two costs:
//
//   - Under the pause of a scope or a type on a queue that others use, too, each message of it is
//     received again and again. The pause of a whole queue costs no receives.
//   - A queue that keeps messages for some days goes on counting, whatever is paused. What waits
//     for longer than that is deleted, and nobody is told.
type Price struct {
	// For is how long the pause is.
	For time.Duration
	// MaxReceives is after how many receives the queue moves a message away, as
	// broker.Redriver tells; 0 = it never does.
	MaxReceives int
	// MaxAttempts is that of the workers' jobs; a negative one counts as 0.
	MaxAttempts int
	// Queue and Target are the names of the queue and of where it moves messages.
	Queue, Target string
	// Kept is how long the queue keeps a message, as broker.Redriver tells; 0 = for ever, or
	// nobody knows.
	Kept time.Duration
	// Oldest is for how long the oldest message waits already; 0 = nobody knows.
	Oldest time.Duration
	// Unread says why the queue did not tell MaxReceives and Kept; nil = it did, or it has none.
	Unread error
}

// Receives is how often the pause has a message received, about.
func (p Price) Receives() int {
	return int((p.For+longestBack-1)/longestBack) + firstBacks
}

// Check refuses a pause that would lose jobs. There are two ways:
//
//   - It would use up the receives of the queue's messages: beyond those that the attempts of a job
//     need, there must be as many as the pause costs. Otherwise the queue would move jobs away that
//     nobody has tried.
//   - It would outlast the queue: a message may wait for seven eighths of Kept. The rest is left to
//     the workers, who have to work off what has gathered.
//
// The error is a *[PriceError].
func (p Price) Check() error {
	if p.outlasts() || !p.paysReceives() {
		return &PriceError{p}
	}
	return nil
}

func (p Price) paysReceives() bool {
	return p.MaxReceives <= 0 || p.MaxReceives-max(0, p.MaxAttempts) >= p.Receives()
}

// outlasts reports whether what waits now would be deleted before the workers can have done it.
func (p Price) outlasts() bool { return p.Kept > 0 && p.For+p.Oldest > p.waits() }

// waits is how long a message may wait in all.
func (p Price) waits() time.Duration { return p.Kept - p.Kept/8 }

// PriceError refuses a pause because of what it costs.
type PriceError struct{ Price Price }

// Error is the arithmetic, in a sentence.
func (e *PriceError) Error() string {
	p := &e.Price
	if p.outlasts() {
		return p.deletes()
	}
	to := p.Target
	if to == "" {
		to = "its dead-letter queue"
	}
	return fmt.Sprintf("%s moves a message to %s after %d receives; a pause of %s costs about %d. Pause the queue, or raise maxReceiveCount",
		p.Queue, to, p.MaxReceives, hours(p.For), p.Receives())
}

// deletes is the arithmetic of a pause that outlasts the queue.
func (p *Price) deletes() string {
	age, most := "", max(0, p.waits()-p.Oldest)
	if p.Oldest > 0 {
		age = fmt.Sprintf(", and its oldest has waited for %s", ahead.Days(p.Oldest))
	}
	s := fmt.Sprintf("%s keeps a message for %s, paused or not%s; a pause of %s deletes what waits. ", p.Queue, ahead.Days(p.Kept), age, ahead.Days(p.For))
	if most < time.Minute {
		return s + "Make the queue keep messages for longer"
	}
	return s + fmt.Sprintf("Pause for %s at most, or make the queue keep messages for longer", ahead.Days(most.Truncate(time.Minute)))
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
