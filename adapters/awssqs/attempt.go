package awssqs

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
)

// attempt is one logical receive: with the same id and the same options SQS answers the same
// messages again, as long as their visibility timeout lasts and nobody has changed them.
type attempt struct {
	id         string // empty on standard queues, which know no such thing
	max        int
	visibility time.Duration
	until      time.Time // when its messages are visible again, at the latest
}

// maxAttemptsKept bounds the receives that wait to be asked again. It is enough, because more
// pollers than this do not fail at once.
const maxAttemptsKept = 64

// attempt is the receive to make for o: the oldest unanswered one whose messages o has room for,
// else a new one.
func (b *Broker) attempt(o *broker.ReceiveOptions) attempt {
	a := attempt{max: o.Max, visibility: o.Visibility}
	if !b.fifo {
		return a
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts = slices.DeleteFunc(b.attempts, func(a attempt) bool { return !now.Before(a.until) })
	for i, old := range b.attempts {
		if old.max <= o.Max && old.visibility == o.Visibility {
			b.attempts = slices.Delete(b.attempts, i, i+1)
			return old
		}
	}
	a.id = rand.Text()
	a.until = now.Add(min(a.visibility, attemptTTL))
	return a
}

// unanswer keeps a receive of which nobody knows what it did.
func (b *Broker) unanswer(a attempt) {
	if a.id == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.attempts) < maxAttemptsKept {
		b.attempts = append(b.attempts, a)
	}
}
