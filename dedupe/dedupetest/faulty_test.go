package dedupetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// shop is a small correct store with a user's table and transactions that are checked at their
// commit. With a fault, it breaks one rule.
type shop struct {
	fault string
	lag   time.Duration // how late this handle's clock is
	*data
}

// data is what all handles share.
type data struct {
	mu      sync.Mutex
	records map[dedupe.Key]*dedupe.Record
	fence   uint64
	rows    []string
	closed  bool
	calls   int
}

var _ dedupe.Store = (*shop)(nil)

const shopResult = 1000

func openShop(fault string) Subject {
	s := &shop{fault: fault, data: &data{records: make(map[dedupe.Key]*dedupe.Record)}}
	return Subject{
		Store: s,
		Second: func(testing.TB) dedupe.Store {
			other := &shop{fault: fault, data: s.data}
			if fault == "second clock late" {
				other.lag = 20 * time.Minute
			}
			return other
		},
		Begin: s.begin,
		Rows: func(testing.TB) []string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Clone(s.rows)
		},
		Close: func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.closed = true
			return nil
		},
	}
}

func (s *shop) is(fault string) bool { return s.fault == fault }

func (s *shop) now() time.Time { return time.Now().Add(-s.lag) }

func (s *shop) Limits() dedupe.Limits {
	l := dedupe.Limits{MaxResult: shopResult, MaxBatch: 50, Durable: true}
	if s.is("limits change") {
		s.calls++
		l.MaxBatch += s.calls
	}
	return l
}

// enter begins a call.
func (s *shop) enter(ctx context.Context) error {
	if ctx.Err() != nil && !s.is("cancellation ignored") {
		return ctx.Err()
	}
	s.mu.Lock()
	if s.closed && !s.is("close ignored") {
		s.mu.Unlock()
		return dedupe.ErrClosed
	}
	return nil
}

// under is the key under which k is kept.
func (s *shop) under(k dedupe.Key) dedupe.Key {
	switch s.fault {
	case "keys joined":
		return dedupe.Key{Key: k.Scope + ":" + k.Key}
	case "keys folded":
		return dedupe.Key{Scope: k.Scope, Key: strings.ToLower(k.Key)}
	case "keys trimmed":
		return dedupe.Key{Scope: k.Scope, Key: strings.TrimSpace(k.Key)}
	}
	return k
}

func (s *shop) at(k dedupe.Key) *dedupe.Record {
	r := s.records[s.under(k)]
	if r == nil {
		r = &dedupe.Record{}
		s.records[s.under(k)] = r
	}
	return r
}

// validate lets a bad entry pass, or fail the whole call, where that is the fault.
func (s *shop) validate(err error) (entry, call error) {
	switch {
	case err == nil:
		return nil, nil
	case s.is("bad entry fails the call"):
		return nil, err
	case s.is("bad request accepted") && errors.Is(err, dedupe.ErrBadRequest):
		return nil, nil
	}
	return err, nil
}

func (s *shop) size(b []byte) error {
	if len(b) > shopResult && !s.is("sizes not checked") || s.is("size limit one too low") && len(b) == shopResult {
		return dedupe.ErrResultSize
	}
	return nil
}

func (s *shop) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]dedupe.Claim, len(rs))
	for i := range rs {
		entry, call := s.validate(rs[i].Validate())
		if call != nil {
			return nil, call
		}
		if entry != nil {
			out[i].Err = entry
			continue
		}
		out[i] = s.claimOne(rs[i])
		if out[i].Outcome != dedupe.Won && s.is("a loser stops the batch") {
			break
		}
	}
	if s.is("answers reversed") {
		slices.Reverse(out)
	}
	return out, nil
}

func (s *shop) claimOne(q dedupe.ClaimRequest) dedupe.Claim {
	now := s.now()
	r := s.at(q.Key)
	row := claimRow(r, &q, now)
	switch s.fault {
	case "claim answers wrong: " + row:
		if row == "live claim of another" {
			return dedupe.Claim{Outcome: dedupe.Stale}
		}
		return dedupe.Claim{Outcome: dedupe.InProgress}
	case "claim does not write: " + row:
		r = r.Clone()
	case "own token not recognised":
		if row == "own claim again" && now.Before(r.LeaseUntil) {
			return dedupe.Claim{Outcome: dedupe.InProgress, Left: r.LeaseUntil.Sub(now), Age: now.Sub(r.ClaimedAt)}
		}
	case "live claim taken over":
		if row == "live claim of another" {
			r.LeaseUntil = now
		}
	case "dead lease wins for all":
		if row == "live claim of another" && r.Attempt > 1 {
			r.LeaseUntil = now
		}
	case "late packet wins":
		if row == "late packet" {
			r.Token = dedupe.Token{}
		}
	case "done wins again":
		if row == "done" {
			r.Status, r.Token = dedupe.Released, dedupe.Token{}
		}
	case "any fence reopens":
		if q.Reopen != 0 {
			q.Reopen = r.Fence
		}
	case "fingerprints ignored":
		q.Fingerprint = nil
	case "empty fingerprint is none":
		if len(q.Fingerprint) == 0 {
			q.Fingerprint = nil
		}
	case "only the record parks":
		if r.Status == dedupe.Claimed && !now.Before(r.LeaseUntil) && r.Policy == dedupe.Rerun {
			q.Policy = dedupe.Rerun
		}
	case "retention ignored":
		if r.Expired(now) {
			r.Expires = now.Add(time.Hour)
		}
	}
	was := r.Clone()
	c, changed := machine.ApplyClaim(r, &q, now, func() uint64 { return s.next(was) })
	if changed {
		s.spoilPast(r, was, &q, &c, row)
	}
	switch s.fault {
	case "freshness lost on a repeat":
		c.Fresh = c.Fresh && row != "own claim again"
	case "left counts from the claim":
		if c.Outcome == dedupe.InProgress {
			c.Left = r.LeaseUntil.Sub(r.ClaimedAt)
		}
	case "term counts from the claim":
		if c.Outcome == dedupe.InProgress {
			c.Term = r.LeaseUntil.Sub(r.ClaimedAt)
		}
	case "records shared":
		if c.Record != nil {
			c.Record = r
		}
	case "texts cut":
		r.Owner = r.Owner[:min(len(r.Owner), 1000)]
	}
	if c.Outcome == dedupe.Won {
		c.Lease.Deadline = now.Add(q.TTL)
		if s.is("deadline late") {
			c.Lease.Deadline = c.Lease.Deadline.Add(time.Second)
		}
	}
	return c
}

func (s *shop) next(was *dedupe.Record) uint64 {
	switch s.fault {
	case "fence does not rise":
		return max(1, was.Fence)
	case "fence forgotten":
		return was.Fence + 1
	}
	s.fence++
	return s.fence
}

func (s *shop) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	out := make([]dedupe.Renewed, len(rs))
	for i, n := range rs {
		entry, call := s.validate(n.Validate())
		if call != nil {
			return nil, call
		}
		if out[i].Err = cmpErr(entry, s.size(n.State)); out[i].Err != nil {
			continue
		}
		r := s.at(n.Key)
		until := r.LeaseUntil
		row := renewRow(r, n.Token, now)
		switch s.fault {
		case "renew answers wrong: " + row:
			out[i].Err = dedupe.ErrBusy
			continue
		case "renew does not write: " + row:
			r = r.Clone()
		case "stale renewal accepted":
			n.Token = r.Token
		case "dead lease not renewed":
			if !now.Before(r.LeaseUntil) {
				n.Token = dedupe.Token{}
			}
		case "empty state ignored":
			if len(n.State) == 0 {
				n.State = nil
			}
		case "late state accepted":
			n.StateNo = max(n.StateNo, r.StateNo+1)
		case "a key once in a batch":
			if slices.ContainsFunc(rs[:i], func(m dedupe.Renewal) bool { return m.Key == n.Key }) {
				continue
			}
		}
		out[i].Err = machine.ApplyRenew(r, &n, now)
		out[i].Deadline = now.Add(n.TTL)
		if s.is("renew shortens") && out[i].Err == nil && until.After(r.LeaseUntil.Add(-1)) {
			r.LeaseUntil = now.Add(n.TTL)
		}
	}
	return out, nil
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (s *shop) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]dedupe.Settled, len(ss))
	for i := range ss {
		entry, call := s.validate(ss[i].Validate())
		if call != nil {
			return nil, call
		}
		if out[i].Err = cmpErr(entry, s.size(ss[i].Result)); out[i].Err == nil {
			out[i] = s.settleOne(ss[i])
		}
	}
	return out, nil
}

func (s *shop) settleOne(t dedupe.Settlement) dedupe.Settled {
	now := s.now()
	r := s.at(t.Key)
	row := settleRow(r, &t, now)
	given := t.Result
	switch s.fault {
	case "settle answers wrong: " + row:
		return dedupe.Settled{Err: dedupe.ErrBusy}
	case "settle does not write: " + row:
		r = r.Clone()
	case "stale settlement accepted":
		t.Token = r.Token
	case "settled again":
		if row == "settled before" {
			r.Status = dedupe.Claimed
		}
	case "joined writes done":
		t.Joined = false
	case "late release released":
		t.Unparks = true
	case "operators do not release":
		t.Unparks = false
	case "late release says nothing":
		if row == "late release of the parked claim" {
			return dedupe.Settled{Status: r.Status}
		}
	case "below zero":
		if t.Uncounted && row == "settled before" {
			r.Attempt--
		}
	case "no result is an empty one":
		if t.Result == nil {
			t.Result = []byte{}
		}
	case "longest retention overflows":
		if t.Retain == math.MaxInt64 {
			t.Retain = 1
		}
	case "default retention of a day":
		if t.Retain == 0 {
			t.Retain = 24 * time.Hour
		}
	case "last error only":
		if t.ErrText != "" && row == "own claim" {
			r.FirstErr = ""
		}
	}
	was := r.Clone()
	a, changed := machine.ApplySettle(r, &t, now)
	switch {
	case s.is("done keeps the message") && changed:
		r.MessageID = was.MessageID
	case s.is("done keeps the steps") && changed:
		r.State, r.StateNo = was.State, was.StateNo
	case s.is("a settlement drops past") && changed:
		r.Past = nil
	}
	if s.is("results shared") && changed && t.To == dedupe.Done {
		r.Result = given
	}
	if s.is("parked expires") && r.Status == dedupe.Parked {
		r.Expires = now.Add(time.Hour)
	}
	return a
}
