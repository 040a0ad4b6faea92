package dedupe

import (
	"bytes"
	"cmp"
	"fmt"
	"time"
)

// ApplyClaim runs [ClaimTable] on r, the record under q's key or the zero Record, and changes r in
// place. Where a claim is won anew, fence gives the next number; it must be higher than any that the key
// ever had. The answer's Record is a copy, and its Lease has no Deadline: only the caller knows when
// the request was sent. changed tells whether r must be written.
func ApplyClaim(r *Record, q *ClaimRequest, now time.Time, fence func() uint64) (c Claim, changed bool) {
	s := Meet(r, q, now)
	for i := range ClaimTable {
		row := &ClaimTable[i]
		if !row.Matches(s) {
			continue
		}
		c.Outcome = row.Outcome
		r.change(row.Change, q, now, fence)
		// The repeat of a fresh claim is fresh, too: the first answer may be lost.
		c.Fresh = row.Change == TakeFresh ||
			row.Change == Prolong && r.Attempt == 1 && r.Created.Equal(r.ClaimedAt)
		c.fill(r, now)
		return c, row.Change != Keep
	}
	return Claim{Err: fmt.Errorf("%w: record of %v has status %v", ErrBadRequest, q.Key, r.Status)}, false
}

func (r *Record) change(ch Change, q *ClaimRequest, now time.Time, fence func() uint64) {
	switch ch {
	case Keep:
		return
	case Write: // it stands in SettleTable only
	case Prolong:
		r.prolong(now.Add(q.TTL))
		r.Updated = now
		return
	case ParkIt:
		r.Status, r.Finished, r.Updated = Parked, now, now
		r.LeaseUntil, r.Expires = time.Time{}, time.Time{}
		r.ErrClass = ClassInterrupted
		return
	case TakeFresh:
		*r = Record{Key: q.Key, Created: now, Attempt: 1}
	case TakeNext:
		if r.untouched() {
			r.Fingerprint = nil
		}
		r.Attempt++
	case TakeReopen:
		r.Attempt = 1
		r.FirstErr, r.LastErr, r.ErrClass, r.Fingerprint = "", "", "", nil
	}
	r.Status, r.Fence, r.Token = Claimed, fence(), q.Token
	r.Started, r.Policy = false, q.Policy
	r.Owner, r.MessageID = q.Owner, q.MessageID
	if q.Fingerprint != nil {
		r.Fingerprint = bytes.Clone(q.Fingerprint)
	}
	r.ClaimedAt, r.Updated = now, now
	r.LeaseUntil = now.Add(q.TTL)
	r.Finished, r.Expires = time.Time{}, time.Time{}
}

// ClassInterrupted is the error class of a record that a takeover parked: its owner died, or
// went silent, after the handler had begun.
const ClassInterrupted = "interrupted"

func (r *Record) prolong(until time.Time) {
	if until.After(r.LeaseUntil) {
		r.LeaseUntil = until
	}
}

func (c *Claim) fill(r *Record, now time.Time) {
	switch c.Outcome {
	case Won:
		c.Lease = Lease{Key: r.Key, Token: r.Token, Fence: r.Fence, Attempt: r.Attempt}
		c.Created, c.FirstErr = r.Created, r.FirstErr
		c.State, c.StateNo = bytes.Clone(r.State), r.StateNo
	case InProgress:
		c.Left = max(0, r.LeaseUntil.Sub(now))
		c.Age = max(0, now.Sub(r.ClaimedAt))
		c.Term = max(0, r.LeaseUntil.Sub(r.Updated))
	case AlreadyDone, AlreadyFailed, IsParked, Mismatch:
		c.Record = r.Clone()
	case Stale: // the record is not its business
	}
}

// ApplyRenew runs [RenewTable] on r and changes it in place. Nothing changed when the error is not
// nil.
func ApplyRenew(r *Record, n *Renewal, now time.Time) error {
	s := Situation{At: at(r, now), Own: r.Token == n.Token}
	for i := range RenewTable {
		row := &RenewTable[i]
		if !row.Matches(s) {
			continue
		}
		if row.Change == Prolong {
			r.prolong(now.Add(n.TTL))
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
	return ErrLeaseLost
}

// ApplySettle runs [SettleTable] on r and changes it in place. changed tells whether r must be
// written.
func ApplySettle(r *Record, t *Settlement, now time.Time) (a Settled, changed bool) {
	s := Situation{At: at(r, now), Own: r.Token == t.Token}
	for i := range SettleTable {
		row := &SettleTable[i]
		if !row.Matches(s, t.To, t.Joined) {
			continue
		}
		switch {
		case row.Err != nil:
			return Settled{Err: row.Err}, false
		case row.AnswersHere:
			return Settled{Status: r.Status}, false
		}
		r.settle(t, now)
		return Settled{Status: r.Status}, true
	}
	return Settled{Err: ErrLeaseLost}, false
}

func (r *Record) settle(t *Settlement, now time.Time) {
	r.Status, r.Updated = t.To, now
	r.LeaseUntil, r.Finished, r.Expires = time.Time{}, now, time.Time{}
	if t.To != Parked {
		r.Expires = now.Add(cmp.Or(t.Retain, DefaultRetention))
	}
	switch t.To {
	case Done:
		r.Result = bytes.Clone(t.Result)
		r.ErrClass, r.FirstErr, r.LastErr = "", "", ""
		return
	case Released:
		r.Finished = time.Time{}
		r.Started = false
		if t.Uncounted {
			r.Attempt = max(0, r.Attempt-1)
		}
	case Failed, Parked: // the error below is all they add
	case Claimed: // no settlement goes there
	}
	if t.ErrClass != "" || t.ErrText != "" {
		r.ErrClass, r.LastErr = t.ErrClass, t.ErrText
		r.FirstErr = cmp.Or(r.FirstErr, t.ErrText)
	}
}

// ApplyForget tells whether f removes r, the record under its key or the zero Record, or why not. A record
// that is not there, or has expired, is no error.
func ApplyForget(r *Record, f *Forgotten, now time.Time) (remove bool, err error) {
	switch a := at(r, now); {
	case a == AtNone:
		return false, nil
	case r.Expired(now):
		return true, nil
	case r.Fence != f.Fence:
		return false, ErrLeaseLost
	case a == AtLive && !f.Force:
		return false, ErrBusy
	}
	return true, nil
}

// Validate checks the entry; the error wraps [ErrBadKey] or [ErrBadRequest].
func (n *Renewal) Validate() error {
	if err := n.Key.Validate(); err != nil {
		return err
	}
	if n.TTL <= 0 {
		return fmt.Errorf("%w: Renewal.TTL is %v, want more than 0", ErrBadRequest, n.TTL)
	}
	if n.State != nil && n.StateNo < 1 {
		return fmt.Errorf("%w: Renewal.StateNo is %d, want 1 or more beside a State", ErrBadRequest, n.StateNo)
	}
	return nil
}

// Validate checks the entry; the error wraps [ErrBadKey] or [ErrBadRequest].
func (t *Settlement) Validate() error {
	if err := t.Key.Validate(); err != nil {
		return err
	}
	switch t.To {
	case Done, Failed, Released, Parked:
	default:
		return fmt.Errorf("%w: Settlement.To is %v, want done, failed, released or parked", ErrBadRequest, t.To)
	}
	if t.Retain < 0 {
		return fmt.Errorf("%w: Settlement.Retain is %v, want 0 or more", ErrBadRequest, t.Retain)
	}
	return nil
}
