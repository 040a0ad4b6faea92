package control

import (
	"fmt"
	"time"

	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/backoff"
)

// Cost is what a pause costs. There are two costs:
//
//   - Under the pause of a scope or a type on a queue that others use, too, each message of it is
//     received again and again. The pause of a whole queue costs no receives.
//   - A queue that keeps messages for some days goes on counting, whatever is paused. What waits
//     for longer than that is deleted, and nobody is told.
type Cost struct {
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
func (p Cost) Receives() int {
	return backoff.Receives(p.For)
}

// Check refuses a pause that would lose jobs. There are two ways:
//
//   - It would use up the receives of the queue's messages: beyond those that the attempts of a job
//     need, there must be as many as the pause costs. Otherwise the queue would move jobs away that
//     nobody has tried.
//   - It would outlast the queue: a message may wait for seven eighths of Kept. The rest is left to
//     the workers, who have to work off what has gathered.
//
// The error is a *[CostError].
func (p Cost) Check() error {
	if p.outlasts() || !p.paysReceives() {
		return &CostError{p}
	}
	return nil
}

func (p Cost) paysReceives() bool {
	return p.MaxReceives <= 0 || p.MaxReceives-max(0, p.MaxAttempts) >= p.Receives()
}

// outlasts reports whether what waits now would be deleted before the workers can have done it.
func (p Cost) outlasts() bool { return p.Kept > 0 && p.For+p.Oldest > p.patience() }

// patience is how long a message may wait in all.
func (p Cost) patience() time.Duration { return p.Kept - p.Kept/8 }

// CostError refuses a pause because of what it costs.
type CostError struct{ Cost Cost }

// Error is the arithmetic, in a sentence.
func (e *CostError) Error() string {
	p := &e.Cost
	if p.outlasts() {
		return p.explainLoss()
	}
	to := p.Target
	if to == "" {
		to = "its dead-letter queue"
	}
	return fmt.Sprintf("%s moves a message to %s after %d receives; a pause of %s costs about %d. Pause the queue, or raise maxReceiveCount",
		p.Queue, to, p.MaxReceives, hours(p.For), p.Receives())
}

// explainLoss is the arithmetic of a pause that outlasts the queue.
func (p *Cost) explainLoss() string {
	age, most := "", max(0, p.patience()-p.Oldest)
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
