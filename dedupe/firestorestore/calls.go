package firestorestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the calls of the contract that write: what each makes of what is stored. Workers
// call them, with many entries at once. Nothing here is locked.

// Claim tries to win each key, all in one request: a document is created where there is none. What
// is there already is read, and written if the claim takes it over or reopens it.
func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := s.ready(ctx, len(rs)); err != nil {
		return nil, err
	}
	as, cs := make([]dedupe.Claim, len(rs)), make([]*change, len(rs))
	for i := range rs {
		q, a := &rs[i], &as[i]
		cs[i] = &change{key: q.Key, sure: true, lease: true}
		if err := checkClaim(q); err != nil {
			cs[i].finish(fmt.Errorf("firestorestore: %w", err))
			continue
		}
		cs[i].decide = func(found *stored, at reading) (*stored, error) {
			req := *q
			req.TTL = s.kept(q.TTL)
			var r dedupe.Record
			last := uint64(0)
			if found != nil {
				r, last = found.rec, found.fence
			}
			var changed bool
			*a, changed = machine.ApplyClaim(&r, &req, at.now, func() uint64 { return nextFence(last, at.now) })
			if !changed {
				return nil, a.Err
			}
			if a.Outcome == dedupe.Won {
				a.Lease.Deadline = at.sent.Add(q.TTL)
			}
			return s.encode(&r, found, ""), nil
		}
	}
	if err := s.run(ctx, "Claim", cs); err != nil {
		return nil, err
	}
	for i, c := range cs {
		switch {
		case c.err != nil:
			as[i] = dedupe.Claim{Err: c.err}
		case as[i].Outcome == dedupe.Won:
			s.claims.remember(rs[i].Token, c.next)
		}
	}
	return as, nil
}

func checkClaim(q *dedupe.ClaimRequest) error {
	if err := q.Validate(); err != nil {
		return err
	}
	if n := len(clean(q.Owner)) + len(clean(q.MessageID)) + len(q.Fingerprint); n > maxLabels {
		return fmt.Errorf("%w: ClaimRequest.Owner, MessageID and Fingerprint have %d bytes, the limit is %d", dedupe.ErrBadRequest, n, maxLabels)
	}
	return nil
}

// nextFence is above every fence that the key ever had: above the last one, and above the
// milliseconds since 1970. The clock is needed if nothing tells the last fence, because Firestore
// has deleted the document after its expiry, or the database was restored from a backup.
func nextFence(last uint64, now time.Time) uint64 {
	return max(last, uint64(max(0, now.UnixMilli()))) + 1
}

// Renew prolongs leases, all in one request. A record that a transaction holds for longer than some
// tens of milliseconds is [dedupe.ErrBusy].
func (s *Store) Renew(ctx context.Context, ns []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := s.ready(ctx, len(ns)); err != nil {
		return nil, err
	}
	as, cs := make([]dedupe.Renewed, len(ns)), make([]*change, len(ns))
	for i := range ns {
		n, a := &ns[i], &as[i]
		found := s.claims.recall(n.Token)
		cs[i] = &change{key: n.Key, found: found, sure: isOf(found, n.Key), lease: true}
		if err := cmp.Or(n.Validate(), records.CheckSize("Renewal.State", n.State, maxResult)); err != nil {
			cs[i].finish(fmt.Errorf("firestorestore: %w", err))
			continue
		}
		cs[i].decide = func(found *stored, at reading) (*stored, error) {
			req := *n
			req.TTL = s.kept(n.TTL)
			r := found.record()
			if err := machine.ApplyRenew(&r, &req, at.now); err != nil {
				return nil, err
			}
			a.Deadline = at.sent.Add(n.TTL)
			return s.encode(&r, found, ""), nil
		}
	}
	if err := s.run(ctx, "Renew", cs); err != nil {
		return nil, err
	}
	for i, c := range cs {
		if c.err != nil {
			as[i] = dedupe.Renewed{Err: c.err}
			continue
		}
		s.claims.remember(ns[i].Token, c.next)
	}
	return as, nil
}

// Settle ends claims, all in one request. A record that a transaction holds answers
// [dedupe.ErrBusy] after some tens of milliseconds. A joined settlement waits for the end of that
// transaction until ctx ends, because only that end tells what became of the job.
func (s *Store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := s.ready(ctx, len(ss)); err != nil {
		return nil, err
	}
	as, cs := make([]dedupe.Settled, len(ss)), make([]*change, len(ss))
	for i := range ss {
		t, a := &ss[i], &as[i]
		found := s.claims.recall(t.Token)
		cs[i] = &change{key: t.Key, found: found, sure: isOf(found, t.Key), patient: t.Joined, dated: true}
		if err := cmp.Or(t.Validate(), records.CheckSize("Settlement.Result", t.Result, maxResult)); err != nil {
			cs[i].finish(fmt.Errorf("firestorestore: %w", err))
			continue
		}
		cs[i].decide = func(found *stored, at reading) (*stored, error) {
			if found != nil && found == cs[i].next {
				return s.redated(found, t.Retain, at), nil
			}
			r := found.record()
			var changed bool
			*a, changed = machine.ApplySettle(&r, t, at.now)
			if a.Err != nil {
				return nil, a.Err
			}
			// A transaction that is being committed may come after what was read. This write comes
			// before it or after it: then the transaction is refused, or this write is.
			if open := t.Joined && t.To == dedupe.Done && a.Status != dedupe.Done; !changed && !open {
				return nil, nil
			}
			next := s.encode(&r, found, found.commit)
			if !changed {
				next.fields[fieldProbe] = toValue(rand.Text())
			}
			return next, nil
		}
	}
	if err := s.run(ctx, "Settle", cs); err != nil {
		return nil, err
	}
	for i, c := range cs {
		if c.err != nil {
			as[i] = dedupe.Settled{Err: c.err}
			continue
		}
		s.claims.forget(ss[i].Token)
	}
	return as, nil
}

// Forget removes records, with a read and a write of all together. A document of some hundred bytes
// stays for 31 days, because the fence must survive. If somebody changes the record all the time,
// the answer is [dedupe.ErrBusy].
func (s *Store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	if err := s.ready(ctx, len(fs)); err != nil {
		return nil, err
	}
	errs, cs := make([]error, len(fs)), make([]*change, len(fs))
	for i := range fs {
		f := &fs[i]
		cs[i] = &change{key: f.Key}
		if err := f.Key.Validate(); err != nil {
			cs[i].finish(fmt.Errorf("firestorestore: %w", err))
			continue
		}
		cs[i].decide = func(found *stored, at reading) (*stored, error) {
			r := found.record()
			remove, err := machine.ApplyForget(&r, f, at.now)
			if err != nil || !remove {
				return nil, err
			}
			return s.tombstone(f.Key, found.fence, at.now, at.now.Add(dedupe.DefaultRetention)), nil
		}
	}
	if err := s.run(ctx, "Forget", cs); err != nil {
		return nil, err
	}
	for i, c := range cs {
		errs[i] = c.err
	}
	return errs, nil
}

// redated is what was written by the time of a host that stood still, by the right time: it would
// expire too early. Nil where it does not expire.
func (s *Store) redated(was *stored, retain time.Duration, at reading) *stored {
	r := was.rec
	if r.Expires.IsZero() {
		return nil
	}
	r.Updated, r.Expires = at.now, at.now.Add(cmp.Or(retain, dedupe.DefaultRetention))
	if !r.Finished.IsZero() {
		r.Finished = at.now
	}
	return s.encode(&r, was, was.commit)
}

// record is a copy of what is stored, the zero Record where nothing is.
func (st *stored) record() (r dedupe.Record) {
	if st == nil {
		return r
	}
	return st.rec
}

// isOf reports whether what is remembered under a token is k's: a caller may mix them up.
func isOf(st *stored, k dedupe.Key) bool { return st != nil && st.rec.Key == k }
