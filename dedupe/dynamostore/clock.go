package dynamostore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the service's time: what is known of it, and how sure that is. The client's
// middleware (client.go) feeds it the Date of every answer. Claims, renewals and settlements take
// their time from it. clock.mu guards all fields but wall and is never held during a request.

// clock is the service's time: the host's time, corrected by the Date headers of answers. A Date is
// in whole seconds, so each one leaves an interval for the difference between the two. The
// intervals of all answers together leave a narrower one. The zero value knows nothing yet.
type clock struct {
	// wall is time.Now; tests put it off.
	wall func() time.Time

	mu    sync.Mutex
	known bool
	// The service's time less the host's is between these.
	least, most time.Duration
	// When the last answer was looked at, by the host's wall clock and by its monotonic one. If the
	// two have gone apart since, the host was suspended or its clock was set. Then what was learnt
	// before may be wrong.
	seenWall, seenMono time.Time
	// told is the latest time that was given, at toldAt by the host's monotonic clock. A better
	// estimate does not go back behind it, because the renewal just after a claim would then find
	// a longer lease and take two writes. While the estimate is behind, the time goes on at half
	// its speed. It does not stand still, because a record that was deleted meanwhile would come
	// again with its old fence.
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

// now is the service's time. It reports whether that is known. If it is not, now gives the host's
// time, or goes on from what was known before. A known time lies in the middle of what the answers
// leave open. It is never ahead of the service's by more than half a margin, so that nobody's lease
// ends by a guess.
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

// observe learns from the Date of an answer. sent and answered are times of the host's wall clock;
// took is the time between them by its monotonic clock.
func (c *clock) observe(date, sent, answered time.Time, took time.Duration) {
	least, most := date.Sub(answered), date.Add(time.Second).Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if (answered.Sub(sent) - took).Abs() > maxStep {
		c.known = false // the host slept on the way, or its clock was set
		return
	}
	// What contradicts the answers before it starts anew: the host's clock was set, or has run
	// away.
	if c.known && !c.stepped(answered) && least <= c.most && most >= c.least {
		least, most = max(least, c.least), min(most, c.most)
	}
	c.known, c.least, c.most = true, least, most
	c.seenWall, c.seenMono = answered, time.Now()
}

// assume takes the host's time for the service's if nothing else is known, because the answers have
// no Date.
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

// isMisled reports whether the reading was far from the service's time by what is known now, or may
// have been. It may have been if the service's time is still not known, or if the host was
// suspended meanwhile, with one of its clocks or both.
func (c *clock) isMisled(r reading) bool {
	t, known := c.now()
	return !known || t.Sub(r.now.Add(time.Since(r.sent))).Abs() > margin/2
}

// spread is how much the answers leave open. It is above the margin if they all took more than a
// second.
func (c *clock) spread() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most - c.least
}

// errMisled is an error whose answer has shown that the time in the request was wrong.
var errMisled = errors.New("the time in it is wrong")

type guessKey struct{}

// guessing marks a request whose time was not known. Such a request is not repeated once an answer
// has shown that its time is wrong. Nothing worse than five minutes is ever written, because AWS
// refuses what was signed more than that beside its own time.
func guessing(ctx context.Context, r reading) context.Context {
	return context.WithValue(ctx, guessKey{}, r)
}

// isDisproved reports whether the request under ctx was a guess, and is known to be a wrong one.
func (c *clock) isDisproved(ctx context.Context) bool {
	r, guess := ctx.Value(guessKey{}).(reading)
	_, known := c.now()
	return guess && known && c.isMisled(r)
}

// sure is a known time for a call of a claim's own. The time is not known in a process's first
// call, and after the host was suspended or its clock was set. Then sure makes a write that changes
// nothing but the version, because every answer has a Date.
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
