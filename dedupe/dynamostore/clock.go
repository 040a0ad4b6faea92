package dynamostore

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	pauses "github.com/onceq/onceq/internal/retry"
)

// clock is the service's time: the host's, corrected by what the Date headers of answers say. They are in whole seconds, so
// each one leaves an interval for the difference, and all of them together a narrower one. The zero value knows
// nothing yet.
type clock struct {
	// wall is time.Now; tests put it off.
	wall func() time.Time

	mu    sync.Mutex
	known bool
	// The service's time less the host's is between these.
	least, most time.Duration
	// When the last answer was looked at, by the host's wall clock and by its monotonic one. Where the two have gone apart
	// since, the host was suspended or its clock was set, and what was learnt before may be wrong.
	seenWall, seenMono time.Time
	// told is the latest time that was given, at toldAt by the host's monotonic clock. A better estimate does not go back behind it: the renewal just
	// after a claim would find a longer lease, and take two writes. Nor does the time stand still until the estimate has come up
	// to it, for then a record that was deleted would come again with its old fence; it goes at half its speed.
	told, toldAt time.Time
}

// learnTries bound how often the time is asked for where the answers come, but slowly.
const learnTries = 2

// maxStep is how far the two may go apart before the time is learnt anew.
const maxStep = time.Second

func (c *clock) host() time.Time {
	if c.wall != nil {
		return c.wall().Round(0)
	}
	return time.Now().Round(0)
}

// now is the service's time as far as it is known, and whether it is.
func (c *clock) now() (t time.Time, known bool) {
	w := c.host()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return micro(w), false
	}
	apart := w.Sub(c.seenWall) - time.Since(c.seenMono)
	t, mono := w.Add((c.least+c.most)/2), time.Now()
	if back := c.told.Sub(t); back >= 0 && back <= maxStep {
		if slow := c.told.Add(mono.Sub(c.toldAt) / 2); slow.After(t) {
			t = slow
		}
	}
	c.told, c.toldAt = t, mono
	return micro(t), apart.Abs() <= maxStep
}

func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// observe takes the Date of an answer to what was sent and answered at these times of the host's wall clock, and took so long by its
// monotonic one.
func (c *clock) observe(date, sent, answered time.Time, took time.Duration) {
	least, most := date.Sub(answered), date.Add(time.Second).Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if (answered.Sub(sent) - took).Abs() > maxStep {
		c.known = false // the host slept on the way, or its clock was set
		return
	}
	if c.known && least <= c.most && most >= c.least { // else the host's clock was set, or has run away
		least, most = max(least, c.least), min(most, c.most)
	}
	c.known, c.least, c.most = true, least, most
	c.seenWall, c.seenMono = answered, time.Now()
}

// assume takes the host's time for the service's: the answers have no Date.
func (c *clock) assume() {
	w := c.host()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.least, c.most = true, 0, 0
	c.seenWall, c.seenMono = w, time.Now()
}

// misled tells whether the time was far behind the service's when it was taken as now for what was sent at sent, by what the answer
// says, or may have been: the host was suspended, with one of its clocks or both.
func (c *clock) misled(now, sent time.Time) bool {
	t, known := c.now()
	return !known || t.Sub(now.Add(time.Since(sent))) > margin/2
}

// vague tells whether two clocks like this one may be further apart than the margin: the answer took more than a second.
func (c *clock) vague() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most-c.least > margin
}

// learn makes the first call of a process, and one after its host was suspended or its clock was set: a read of the record under k,
// for the Date of the answer, and to see once that the table has the right key. Every other answer keeps the time by the way. Where the answer was slow, as
// the first one over a new connection is, it asks once more.
func (s *Store) learn(ctx context.Context, k dedupe.Key) error {
	in := &dynamodb.GetItemInput{
		TableName: &s.table, Key: keyOf(k), ProjectionExpression: aws.String("#key"), ExpressionAttributeNames: map[string]string{"#key": attrKey},
	}
	var last error
	for n := 0; ; n++ {
		_, known := s.clock.now()
		if known && (n > 0 || s.keySeen.Load()) && (n == 0 || n >= learnTries || !s.clock.vague()) {
			return nil // a refusal has a Date, too, and the call itself will tell it better
		}
		if n > 0 && !pauses.Rest(ctx, pauses.Pause(n)) {
			return s.explain(ctx, "the first call", last)
		}
		_, err := s.client.GetItem(ctx, in, func(o *dynamodb.Options) { o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0 })
		switch _, known = s.clock.now(); {
		case isForeignKey(err):
			// A PutItem would not see that the table has no sort key, and mix up the scopes.
			return s.explain(ctx, "the first call", err)
		case err == nil:
			s.keySeen.Store(true)
			if !known {
				s.clock.assume() // the answers have no Date
			}
		case known:
		case n+1 == maxTries, !mayPass(err):
			return s.explain(ctx, "the first call", err)
		}
		last = err
	}
}

// sure is the time for what is decided by it, in the middle of a call: the host may have been suspended since the call began. sent is the host's own
// time just before.
func (s *Store) sure(ctx context.Context, k dedupe.Key) (sent, now time.Time, err error) {
	for range learnTries {
		sent = time.Now()
		if t, known := s.clock.now(); known {
			return sent, t, nil
		}
		if err := s.learn(ctx, k); err != nil {
			return sent, now, err
		}
	}
	return time.Now(), s.now(), nil
}

// now is the time for a call that has begun.
func (s *Store) now() time.Time {
	t, _ := s.clock.now()
	return t
}
