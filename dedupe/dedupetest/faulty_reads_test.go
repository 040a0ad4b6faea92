package dedupetest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

func (s *shop) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]*dedupe.Record, len(ks))
	for i, k := range ks {
		out[i] = s.read(s.records[s.under(k)])
	}
	return out, nil
}

// read is r as others see it; nil where it is absent.
func (s *shop) read(r *dedupe.Record) *dedupe.Record {
	now := s.now()
	switch {
	case r == nil || r.Status == 0, r.Expired(now):
		return nil
	case s.is("parked expires") && r.Status == dedupe.Parked && !now.Before(r.Expires):
		return nil
	case s.is("records shared"):
		return r
	}
	return r.Clone()
}

func (s *shop) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) {
		if err := s.enter(ctx); err != nil {
			yield(nil, err)
			if s.is("list goes on after its error") {
				yield(nil, err)
			}
			return
		}
		var rs []*dedupe.Record
		if q.After != (dedupe.Key{}) && q.After.Validate() != nil && !s.is("after any text") {
			s.mu.Unlock()
			yield(nil, fmt.Errorf("Query.After: %w", q.After.Validate()))
			return
		}
		for _, r := range s.records {
			if r = s.read(r); r != nil && s.selects(&q, r) && s.isAfter(&q, r) {
				rs = append(rs, r)
			}
		}
		s.mu.Unlock()
		slices.SortFunc(rs, func(a, b *dedupe.Record) int {
			if s.is("list ignores case in its order") {
				return compareKeys(dedupe.Key{Scope: strings.ToLower(a.Key.Scope), Key: strings.ToLower(a.Key.Key)},
					dedupe.Key{Scope: strings.ToLower(b.Key.Scope), Key: strings.ToLower(b.Key.Key)})
			}
			return compareKeys(a.Key, b.Key)
		})
		if s.is("list by pages of 1000") {
			rs = rs[:min(len(rs), 1000)]
		}
		if s.is("list repeats") && len(rs) > 1 {
			rs = append(rs, rs[0])
		}
		for i, r := range rs {
			if q.Limit > 0 && i >= q.Limit && !s.is("limit ignored") || !yield(r, nil) {
				return
			}
		}
		if s.is("list repeats what came") {
			s.listCame(&q, rs, yield)
		}
	}
}

// isAfter reports whether a record stands behind where the list is to go on.
func (s *shop) isAfter(q *dedupe.Query, r *dedupe.Record) bool {
	if q.After == (dedupe.Key{}) || s.is("after ignored") {
		return true
	}
	c := compareKeys(r.Key, q.After)
	if s.is("after looks at the key alone") {
		c = strings.Compare(r.Key.Key, q.After.Key)
	}
	return c > 0 || c == 0 && s.is("after gives the last one again")
}

// listCame gives twice what has come since rs were listed, as a list does that goes by positions.
func (s *shop) listCame(q *dedupe.Query, rs []*dedupe.Record, yield func(*dedupe.Record, error) bool) {
	var came []*dedupe.Record
	s.mu.Lock()
	for _, r := range s.records {
		if r = s.read(r); r != nil && s.selects(q, r) && !slices.ContainsFunc(rs, func(old *dedupe.Record) bool { return old.Key == r.Key }) {
			came = append(came, r, r)
		}
	}
	s.mu.Unlock()
	for _, r := range came {
		if !yield(r, nil) {
			return
		}
	}
}

func (s *shop) selects(q *dedupe.Query, r *dedupe.Record) bool {
	k, prefix := r.Key.Key, q.Prefix
	if s.is("prefix as LIKE does") {
		k, prefix = strings.ToLower(k), strings.TrimRight(strings.ToLower(prefix), "%")
	}
	return (q.Scope == "" || q.Scope == r.Key.Scope) && strings.HasPrefix(k, prefix) &&
		(q.Status == 0 || q.Status == r.Status || s.is("status ignored")) &&
		(q.Before.IsZero() || r.Updated.Before(q.Before) || s.is("before ignored")) &&
		(q.LeaseBefore.IsZero() || (r.Status == dedupe.Claimed || s.is("old leases of any status")) && r.LeaseUntil.Before(q.LeaseBefore) || s.is("lease before ignored"))
}

func (s *shop) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]error, len(fs))
	for i, f := range fs {
		entry, call := s.validate(f.Key.Validate())
		if call != nil {
			return nil, call
		}
		if out[i] = entry; entry != nil {
			continue
		}
		r := s.at(f.Key)
		switch s.fault {
		case "forget ignores the fence":
			f.Fence = r.Fence
		case "forget takes live claims":
			f.Force = true
		}
		var gone bool
		if gone, out[i] = machine.ApplyForget(r, &f, s.now()); gone {
			*r = dedupe.Record{}
		}
	}
	return out, nil
}

// begin gathers a transaction, which is checked and applied at its commit.
func (s *shop) begin(testing.TB) Tx {
	var rows []string
	var job dedupe.Owned
	var result []byte
	return Tx{
		Insert: func(row string) error { rows = append(rows, row); return nil },
		Complete: func(_ context.Context, o dedupe.Owned, b []byte) error {
			if !s.is("not joined") {
				o.Join()
			}
			job, result = o, b
			return nil
		},
		Rollback: func() error {
			if s.is("rollback completes") {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.completeTx(job, result)
			}
			return nil
		},
		Commit: func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := s.completeTx(job, result); err != nil && !s.is("rows without completion") {
				return err
			}
			s.rows = append(s.rows, rows...)
			return nil
		},
	}
}

func (s *shop) completeTx(o dedupe.Owned, result []byte) error {
	l, now := o.Lease(), s.now()
	r := s.at(l.Key)
	ours := r.Token == l.Token && (r.Status == dedupe.Claimed || r.Status == dedupe.Parked)
	switch s.fault {
	case "overtaken completes":
		ours = ours || r.Status == dedupe.Claimed
		l.Token = r.Token
	case "completed twice":
		ours = ours || r.Token == l.Token && r.Status == dedupe.Done
	case "dead lease cannot complete":
		ours = ours && now.Before(r.LeaseUntil)
	case "gone record completes":
		ours = ours || r.Status == 0
	case "parked cannot complete":
		ours = ours && r.Status == dedupe.Claimed
	case "completion lost":
		return nil
	}
	if !ours {
		return fmt.Errorf("shop: %w", dedupe.ErrLeaseLost)
	}
	machine.ApplySettle(r, &dedupe.Settlement{Key: l.Key, Token: l.Token, To: dedupe.Done, Result: result, Retain: o.Retain()}, now)
	return nil
}

// The rows that decide, by the tables.

func claimRow(r *dedupe.Record, q *dedupe.ClaimRequest, now time.Time) string {
	s := machine.Meet(r, q, now)
	rows := machine.ClaimTable()
	return rows[slices.IndexFunc(rows, func(row machine.ClaimRow) bool { return row.Matches(s) })].Name
}

func found(r *dedupe.Record, t dedupe.Token, now time.Time) machine.Situation {
	s := machine.Meet(r, &dedupe.ClaimRequest{}, now)
	s.Own = r.Token == t
	return s
}

func renewRow(r *dedupe.Record, t dedupe.Token, now time.Time) string {
	s := found(r, t, now)
	rows := machine.RenewTable()
	return rows[slices.IndexFunc(rows, func(row machine.RenewRow) bool { return row.Matches(s) })].Name
}

func settleRow(r *dedupe.Record, t *dedupe.Settlement, now time.Time) string {
	s := found(r, t.Token, now)
	s.Unparks = t.Unparks
	rows := machine.SettleTable()
	return rows[slices.IndexFunc(rows, func(row machine.SettleRow) bool { return row.Matches(s, t.To, t.Joined) })].Name
}
