package dynamostore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
)

// claimTries bound the rounds of a claim. The first inserts, the second writes what the table makes of what the first has found;
// the others are for a record that somebody changes all the time.
const claimTries = 8

// Claim tries to win each key: one write where there is no record, and where the present one stays as it is; two where the claim
// takes it over or reopens it. The entries go out at once.
func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	key := func(q *dedupe.ClaimRequest) dedupe.Key { return q.Key }
	return answers(ctx, s, rs, key, func(q *dedupe.ClaimRequest) (dedupe.Claim, error) {
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
	req.TTL = kept(q.TTL)
	var found *stored // nothing, as far as is known
	tight := false
	for round := range claimTries {
		if round > 2 && !retry.Rest(ctx, conflictPause(round)) {
			break
		}
		sent, now, err := s.sure(ctx, q.Key)
		if err != nil {
			return dedupe.Claim{}, err
		}
		var after dedupe.Record
		version := uint64(1)
		if found != nil {
			after, version = found.rec, found.version+1
		}
		c, changed := dedupe.ApplyClaim(&after, &req, now, func() uint64 { return nextFence(found, now) })
		if !changed {
			if c.Err != nil {
				c.Err = foreign("Claim", c.Err)
			}
			return c, nil
		}
		if tight {
			after.ErrClass, after.FirstErr, after.LastErr = short(after.ErrClass), short(after.FirstErr), short(after.LastErr)
		}
		no, err := s.swap(ctx, found, s.encode(&after, version))
		switch {
		case isTooLarge(err) && !tight:
			// What an earlier attempt has left, an error's text among it, leaves no room for the claim.
			tight = true
			continue
		case err != nil:
			return dedupe.Claim{}, s.explain(ctx, "Claim", err)
		case no == nil && c.Outcome == dedupe.Won && s.clock.misled(now, sent):
			// To others this lease may end early, or have ended. The same claim again has the right time.
			found = &stored{rec: after, fence: after.Fence, version: version}
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

// kept is how long a lease of ttl is kept.
func kept(ttl time.Duration) time.Duration { return min(ttl, math.MaxInt64-margin) + margin }

// nextFence is above every fence that the key ever had. Where nothing tells the last one, because DynamoDB has deleted the record after its
// expiry, the milliseconds since 1970 are: a key is not claimed more than once a millisecond on the average, and the service's
// clock does not go back by a retention.
func nextFence(found *stored, now time.Time) uint64 {
	if found != nil {
		return found.fence + 1
	}
	return uint64(now.UnixMilli()) + 1
}
