package dynamostore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

// clock is the service's time: the host's, corrected by what the Date headers of answers say. They
// are in whole seconds, so each one leaves an interval for the difference, and all of them together
// a narrower one. The zero value knows nothing yet.
type clock struct {
	// wall is time.Now; tests put it off.
	wall func() time.Time

	mu    sync.Mutex
	known bool
	// The service's time less the host's is between these.
	least, most time.Duration
	// When the last answer was looked at, by the host's wall clock and by its monotonic one. Where
	// the two have gone apart since, the host was suspended or its clock was set, and what was
	// learnt before may be wrong.
	seenWall, seenMono time.Time
	// told is the latest time that was given, at toldAt by the host's monotonic clock. A better
	// estimate does not go back behind it: the renewal just after a claim would find a longer
	// lease, and take two writes. Nor does the time stand still until the estimate has come up to
	// it, for then a record that was deleted would come again with its old fence; it goes at half
	// its speed.
	told, toldAt time.Time
}

// maxStep is how far the two may go apart before the time is learnt anew.
const maxStep = time.Second

func (c *clock) host() time.Time {
	if c.wall != nil {
		return c.wall().Round(0)
	}
	return time.Now().Round(0)
}

// now is the service's time as far as it is known, and whether it is; else it is the host's, or
// what it was believed to be before. What is known is in the middle of what the answers leave open,
// but never ahead of the service's by more than half a margin: nobody's lease ends by a guess.
func (c *clock) now() (t time.Time, known bool) {
	w := c.host()
	c.mu.Lock()
	defer c.mu.Unlock()
	known = c.known && !c.stepped(w)
	t, mono := w.Add(c.least+min(c.most-c.least, margin)/2), time.Now()
	if back := c.told.Sub(t); back >= 0 && back <= maxStep {
		slow := c.told.Add(mono.Sub(c.toldAt) / 2)
		if most := w.Add(c.least + margin/2); known && slow.After(most) {
			slow = most // what was told was a guess
		}
		if slow.After(t) {
			t = slow
		}
	}
	c.told, c.toldAt = t, mono
	return micro(t), known
}

// stepped reports whether the host was suspended, or its clock set, between the last answer and w.
// c.mu is held.
func (c *clock) stepped(w time.Time) bool {
	return (w.Sub(c.seenWall) - time.Since(c.seenMono)).Abs() > maxStep
}

func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// observe takes the Date of an answer to what was sent and answered at these times of the host's
// wall clock, and took so long by its monotonic one.
func (c *clock) observe(date, sent, answered time.Time, took time.Duration) {
	least, most := date.Sub(answered), date.Add(time.Second).Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if (answered.Sub(sent) - took).Abs() > maxStep {
		c.known = false // the host slept on the way, or its clock was set
		return
	}
	if c.known && !c.stepped(answered) && least <= c.most && most >= c.least { // else the host's clock was set, or has run away
		least, most = max(least, c.least), min(most, c.most)
	}
	c.known, c.least, c.most = true, least, most
	c.seenWall, c.seenMono = answered, time.Now()
}

// assume takes the host's time for the service's, where nothing else is known: the answers have no
// Date.
func (c *clock) assume() {
	if _, known := c.now(); known {
		return
	}
	w := c.host()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.least, c.most = true, 0, 0
	c.seenWall, c.seenMono = w, time.Now()
}

// reading is a time that was taken for the service's, and the host's own just before it.
type reading struct{ now, sent time.Time }

// misled reports whether that time was far from the service's, by what is known now, or may have
// been: the service's is not known, or the host was suspended, with one of its clocks or both.
func (c *clock) misled(r reading) bool {
	t, known := c.now()
	return !known || t.Sub(r.now.Add(time.Since(r.sent))).Abs() > margin/2
}

// spread is how much the answers leave open. It is above the margin where they all took more than a
// second.
func (c *clock) spread() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most - c.least
}

// errMisled is an error whose answer tells that the time in the request was wrong.
var errMisled = errors.New("the time in it is wrong")

type guessKey struct{}

// guessing marks a request with a time that was not known. It is not repeated when an answer has
// told that it is wrong: AWS refuses what was signed more than five minutes beside its time, so
// that nothing worse is written.
func guessing(ctx context.Context, r reading) context.Context {
	return context.WithValue(ctx, guessKey{}, r)
}

// disproves reports whether the request under ctx was a guess, and is known to be a wrong one.
func (c *clock) disproves(ctx context.Context) bool {
	r, guess := ctx.Value(guessKey{}).(reading)
	_, known := c.now()
	return guess && known && c.misled(r)
}

// sure is the time for a call of a claim's own. It is not known in a process's first call, and
// after its host was suspended or its clock was set. Then a write that changes nothing but the
// version asks for it: every answer has a Date.
func (s *Store) sure(ctx context.Context, k dedupe.Key, t dedupe.Token, patient bool) (reading, error) {
	if _, known := s.clock.now(); !known {
		if _, _, err := s.touch(t).update(ctx, k, patient, types.ReturnValueNone); err != nil {
			return reading{}, err
		}
	}
	sent := time.Now()
	return reading{s.now(), sent}, nil
}

// now is the time for a call that has begun.
func (s *Store) now() time.Time {
	t, _ := s.clock.now()
	return t
}
