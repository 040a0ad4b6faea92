package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

// This file owns what a call does to a record: it runs the tables and changes the record in place.
// Stores, the conformance suite and the model call it. The caller holds the record's lock; the
// functions keep nothing.

// ApplyClaim runs [ClaimTable] on r, the record under q's key or the zero Record, and changes r in
// place. Where a claim is won anew, fence gives the next number; it must be higher than any that
// the key ever had. The answer's Record is a copy, and its Lease has no Deadline: only the caller
// knows when the request was sent. changed reports whether r must be written.
func ApplyClaim(r *dedupe.Record, q *dedupe.ClaimRequest, now time.Time, fence func() uint64) (c dedupe.Claim, changed bool) {
	s := Meet(r, q, now)
	for i := range claimTable {
		row := &claimTable[i]
		if !row.Matches(s) {
			continue
		}
		c.Outcome = row.Outcome
		change(r, row.Change, q, now, fence)
		// The repeat of a fresh claim is fresh, too: the first answer may be lost.
		c.Fresh = row.Change == TakeFresh || row.Change == ParkIt ||
			row.Change == Prolong && r.Attempt == 1 && r.Created.Equal(r.ClaimedAt)
		fill(&c, r, now)
		return c, row.Change != Keep
	}
	return dedupe.Claim{Err: fmt.Errorf("%w: record of %v has status %v", dedupe.ErrBadRequest, q.Key, r.Status)}, false
}

// remember folds the attempt that r shows into its Past, before the next claim takes its place.
// What is kept is what every store can hold: [dedupe.EncodePast] cuts it.
func remember(r *dedupe.Record, reopened bool) {
	a := dedupe.Attempt{
		Number: r.Attempt, Fence: r.Fence, Owner: r.Owner, Claimed: r.ClaimedAt, Ended: r.Updated,
		End: r.Status, Class: r.ErrClass, Err: r.LastErr, Reopened: reopened,
	}
	if r.Status == dedupe.Claimed {
		a.Ended, a.Class, a.Err = r.LeaseUntil, "", "" // what the record has is of an attempt before it
	}
	past := append(r.Past[:len(r.Past):len(r.Past)], a)
	r.Past = dedupe.DecodePast(dedupe.EncodePast(past))
}

func change(r *dedupe.Record, ch Change, q *dedupe.ClaimRequest, now time.Time, fence func() uint64) {
	switch ch {
	case Keep:
		return
	case Write, Note: // they stand in SettleTable only
	case Prolong:
		prolong(r, now.Add(q.TTL))
		r.Updated = now
		return
	case ParkIt:
		r.Status, r.Finished, r.Updated = dedupe.Parked, now, now
		r.LeaseUntil, r.Expires = time.Time{}, time.Time{}
		r.ErrClass = dedupe.ClassInterrupted
		return
	case TakeFresh:
		*r = dedupe.Record{Key: q.Key, Created: now, Attempt: 1}
	case TakeNext:
		remember(r, false)
		if untouched(r) {
			r.Fingerprint = nil
		}
		r.Attempt++
	case TakeReopen:
		remember(r, true)
		r.Attempt = 1
		r.FirstErr, r.LastErr, r.ErrClass, r.Fingerprint = "", "", "", nil
	}
	r.Status, r.Fence, r.Token = dedupe.Claimed, fence(), q.Token
	r.Started, r.Policy = false, q.Policy
	r.Owner, r.MessageID = q.Owner, q.MessageID
	if r.Sent.IsZero() {
		r.Sent = records.Sent(q.Sent)
	}
	if q.Fingerprint != nil {
		r.Fingerprint = bytes.Clone(q.Fingerprint)
	}
	r.ClaimedAt, r.Updated = now, now
	r.LeaseUntil = now.Add(q.TTL)
	r.Finished, r.Expires = time.Time{}, time.Time{}
}

func prolong(r *dedupe.Record, until time.Time) {
	if until.After(r.LeaseUntil) {
		r.LeaseUntil = until
	}
}

func fill(c *dedupe.Claim, r *dedupe.Record, now time.Time) {
	switch c.Outcome {
	case dedupe.Won:
		c.Lease = dedupe.Lease{Key: r.Key, Token: r.Token, Fence: r.Fence, Attempt: r.Attempt}
		c.Created, c.FirstErr = r.Created, r.FirstErr
		c.State, c.StateNo = bytes.Clone(r.State), r.StateNo
		before(c, r)
	case dedupe.InProgress:
		c.Left = max(0, r.LeaseUntil.Sub(now))
		c.Age = max(0, now.Sub(r.ClaimedAt))
		c.Term = max(0, r.LeaseUntil.Sub(r.Updated))
	case dedupe.AlreadyDone, dedupe.AlreadyFailed, dedupe.IsParked, dedupe.Mismatch:
		c.Record = r.Clone()
	case dedupe.Stale: // the record is not its business
	}
}

// before tells what the attempt before this one came to. It goes by what the claim has written, and
// the repeat of a claim whose answer was lost finds the same.
func before(c *dedupe.Claim, r *dedupe.Record) {
	c.ErrClass = r.ErrClass // of a reopened job it is cleared
	for i := len(r.Past) - 1; i >= 0 && c.ErrClass == ""; i-- {
		c.ErrClass = r.Past[i].Class
	}
	if n := len(r.Past); n > 0 {
		last := &r.Past[n-1]
		c.LastEnd = last.Ended
		if last.End == dedupe.Claimed {
			c.From, c.DeadFor = last.Owner, max(0, r.ClaimedAt.Sub(last.Ended))
		}
	}
}

// ApplyRenew runs [RenewTable] on r and changes it in place. Nothing changed when the error is not
// nil.
func ApplyRenew(r *dedupe.Record, n *dedupe.Renewal, now time.Time) error {
	s := Situation{At: at(r, now), Own: r.Token == n.Token}
	for i := range renewTable {
		row := &renewTable[i]
		if !row.Matches(s) {
			continue
		}
		if row.Change == Prolong {
			prolong(r, now.Add(n.TTL))
			r.Updated = now
			if n.Started {
				r.Started = true
			}
			if n.State != nil && n.StateNo > r.StateNo {
				r.State, r.StateNo = bytes.Clone(n.State), n.StateNo
			}
		}
		return row.Err
	}
	return dedupe.ErrLeaseLost
}

// ApplySettle runs [SettleTable] on r and changes it in place. changed reports whether r must be
// written.
func ApplySettle(r *dedupe.Record, t *dedupe.Settlement, now time.Time) (a dedupe.Settled, changed bool) {
	s := Situation{At: at(r, now), Own: r.Token == t.Token, Unparks: t.Unparks}
	for i := range settleTable {
		row := &settleTable[i]
		if !row.Matches(s, t.To, t.Joined) {
			continue
		}
		switch {
		case row.Err != nil:
			return dedupe.Settled{Err: row.Err}, false
		case row.Change == Note:
			note(r, t, now)
			return dedupe.Settled{Status: r.Status}, true
		case row.AnswersHere:
			return dedupe.Settled{Status: r.Status}, false
		}
		settle(r, t, now)
		return dedupe.Settled{Status: r.Status}, true
	}
	return dedupe.Settled{Err: dedupe.ErrLeaseLost}, false
}

func settle(r *dedupe.Record, t *dedupe.Settlement, now time.Time) {
	r.Status, r.Updated = t.To, now
	r.LeaseUntil, r.Finished, r.Expires = time.Time{}, now, time.Time{}
	if t.To != dedupe.Parked {
		r.Expires = now.Add(cmp.Or(t.Retain, dedupe.DefaultRetention))
	}
	switch t.To {
	case dedupe.Done:
		r.Result = bytes.Clone(t.Result)
		// Nobody asks a done record for the rest, and most records are done.
		r.ErrClass, r.FirstErr, r.LastErr = "", "", ""
		r.MessageID, r.State, r.StateNo = "", nil, 0
		return
	case dedupe.Released:
		r.Finished = time.Time{}
		r.Started = false
		if t.Uncounted {
			r.Attempt = max(0, r.Attempt-1)
		}
	case dedupe.Failed, dedupe.Parked: // the error below is all they add
	case dedupe.Claimed: // no settlement goes there
	}
	if t.ErrClass != "" || t.ErrText != "" {
		r.ErrClass, r.LastErr = t.ErrClass, t.ErrText
		r.FirstErr = cmp.Or(r.FirstErr, t.ErrText)
	}
}

// note keeps what a worker says of a claim that was parked meanwhile.
func note(r *dedupe.Record, t *dedupe.Settlement, now time.Time) {
	r.Updated, r.LastErr = now, t.LateText()
	r.FirstErr = cmp.Or(r.FirstErr, t.ErrText)
}

// ApplyForget reports whether f removes r, the record under its key or the zero Record, or why not.
// A record that is not there, or has expired, is no error.
func ApplyForget(r *dedupe.Record, f *dedupe.Forgotten, now time.Time) (remove bool, err error) {
	switch a := at(r, now); {
	case a == AtNone:
		return false, nil
	case r.Expired(now):
		return true, nil
	case r.Fence != f.Fence:
		return false, dedupe.ErrLeaseLost
	case a == AtLive && !f.Force:
		return false, dedupe.ErrBusy
	}
	return true, nil
}
