package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/retry"
)

// claimTries bound the rounds of a claim. The first inserts. The second writes what the table makes
// of what the first has found. The others are for a record that somebody changes all the time.
const claimTries = 8

// Claim tries to win each key. That is one write if there is no record, or if the record stays as
// it is, and two if the claim takes it over or reopens it. All entries go out at once.
func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return answers(ctx, s, rs, func(q *dedupe.ClaimRequest) (dedupe.Claim, error) {
		c, err := s.claim(ctx, q)
		if err != nil {
			c = dedupe.Claim{Err: err}
		}
		return c, c.Err
	})
}

func (s *Store) claim(ctx context.Context, q *dedupe.ClaimRequest) (dedupe.Claim, error) {
	if err := q.Validate(); err != nil {
		return dedupe.Claim{}, fmt.Errorf("dynamostore: %w", err)
	}
	if n := len(q.Owner) + len(q.MessageID) + len(q.Fingerprint); n > maxLabels {
		return dedupe.Claim{}, fmt.Errorf("dynamostore: %w: ClaimRequest.Owner, MessageID and Fingerprint have %d bytes, the limit is %d",
			dedupe.ErrBadRequest, n, maxLabels)
	}
	req := *q
	var found *stored   // nothing, as far as is known
	var guess time.Time // of an insertion while the service's time was not known
	tight := false
	for round := range claimTries {
		if round > 2 && !retry.Rest(ctx, conflictPause(round)) {
			break
		}
		sent := time.Now()
		now, known := s.clock.now()
		at, send := reading{now, sent}, ctx
		if !known {
			// This is the first call of a process, or its host was suspended, or its clock was
			// set. By such a time only an insertion is tried, because it takes nothing from
			// anybody. Its answer tells the time, even if it is a refusal.
			found, send = nil, guessing(ctx, at)
			if guess.IsZero() {
				guess = now
			}
		}
		if found != nil && found.version == 1 && found.rec.Token == q.Token &&
			(found.rec.ClaimedAt.Equal(guess) || found.rec.ClaimedAt.After(now.Add(s.kept(0, true)))) {
			// Our own insertion, whose answer was lost: in this call, or in one before it from a
			// host that was ahead.
			found.discardUnproven()
		}
		var after dedupe.Record
		version := uint64(1)
		if found != nil {
			after, version = found.rec, found.version+1
		}
		req.TTL = s.kept(q.TTL, known)
		c, changed := machine.ApplyClaim(&after, &req, now, func() uint64 { return nextFence(found, now) })
		if !changed {
			if c.Err != nil {
				c.Err = foreign("Claim", c.Err)
			}
			return c, nil
		}
		if tight {
			after.Past = nil
			after.ErrClass, after.FirstErr, after.LastErr = short(after.ErrClass), short(after.FirstErr), short(after.LastErr)
		}
		no, err := s.swap(send, q.Key, found, s.encode(&after, version))
		switch {
		case errors.Is(err, errMisled):
			continue
		case isTooLarge(err) && !tight:
			// What an earlier attempt has left, such as an error's text, leaves no room.
			tight = true
			continue
		case err != nil:
			return dedupe.Claim{}, s.explain(ctx, "Claim", err)
		case no == nil && c.Outcome == dedupe.Won && (s.clock.isMisled(at) || !known && s.clock.spread() > margin):
			// The lease was written by a wrong time: to others it may end early, have ended, or go
			// on for long. The same claim is written again with the right time.
			again := &stored{rec: after, fence: after.Fence, last: after.Fence, version: version}
			if found == nil || found.last == 0 {
				again.discardUnproven()
			}
			found = again
			continue
		case no == nil:
			if c.Outcome == dedupe.Won {
				c.Lease.Deadline = sent.Add(q.TTL)
			}
			return c, nil
		}
		if found, err = s.decode(no.item); err != nil {
			return dedupe.Claim{}, foreign("Claim", err)
		}
	}
	return dedupe.Claim{}, fmt.Errorf("dynamostore: Claim: the record changes all the time: %w", dedupe.ErrBusy)
}

// discardUnproven discards a claim that was inserted by a time that may be wrong and has been
// reported to nobody. What takes its place begins anew, with times and a fence of the right time.
// That fence may be lower, which is harmless because the discarded claim was never reported as won.
// A fence that is ten minutes ahead must not stay: after DynamoDB has deleted the record, the next
// one would be lower.
func (st *stored) discardUnproven() { st.rec, st.last = dedupe.Record{}, 0 }

// kept is how long a lease of ttl is kept in the table. While the time is unknown, half a margin is
// added. The store lets a guess stand that is up to half a margin behind its estimate of the
// service's time, and the estimate may be another half behind. The usual margin would be used up by
// that, and nothing would be left for the clocks of others.
func (s *Store) kept(ttl time.Duration, known bool) time.Duration {
	m := max(margin, s.clock.spread())
	if !known {
		m += margin / 2
	}
	return min(ttl, math.MaxInt64-m) + m
}

// nextFence is above every fence that the key ever had: above the last one, and above the
// milliseconds since 1970. The clock is needed if nothing tells the last fence, because DynamoDB
// has deleted the record after its expiry, or the table was restored from a backup. This assumes
// that no key is claimed more than once a millisecond on average, and that the service's clock does
// not go back by a retention.
func nextFence(found *stored, now time.Time) uint64 {
	n := uint64(max(0, now.UnixMilli()))
	if found != nil {
		n = max(n, found.last)
	}
	return n + 1
}
