package ops

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

// This file owns lists of records, and the two acts on a single one. Tools call its methods;
// nothing is locked, because a record's fence decides.

// ScanError says that a list would read a whole scope or table, and what that costs. Ask for it
// with scan, or for the failed, parked or released records alone.
type ScanError struct {
	// Records are about as many as would be read; -1 = nobody knows without reading them.
	Records int64
	// Units are read units of DynamoDB, and Dollars their price on demand in us-east-1. 0 = the
	// store does not bill reads; -1 = not known.
	Units   int64
	Dollars float64
}

// Error is the price in a sentence.
func (e *ScanError) Error() string {
	var b strings.Builder
	b.WriteString("ops: no index answers this: it reads ")
	if e.Records < 0 {
		b.WriteString("all records")
	} else {
		fmt.Fprintf(&b, "about %d records", e.Records)
	}
	switch {
	case e.Units > 0:
		fmt.Fprintf(&b, ", %d read units, %.2f $", e.Units, e.Dollars)
	case e.Units < 0:
		b.WriteString(", and the service bills each read")
	}
	return b.String()
}

// attention are the statuses that a store finds without a scan.
func attention(s dedupe.Status) bool {
	return s == dedupe.Failed || s == dedupe.Parked || s == dedupe.Released
}

// KeysQuery asks [Ops.Keys] for records.
type KeysQuery struct {
	dedupe.Query
	// Scan lets the store read its table where no index answers the query. Without it the answer is
	// a *[ScanError] then.
	Scan bool
}

// Keys lists records of a target's store; an empty queue is the first target. The records of
// onceq's own scopes, which begin with a ':', are left out. With a Limit it is a page: the last
// record's key as After gives the next one.
func (o *Ops) Keys(ctx context.Context, queue string, kq KeysQuery) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) {
		s, err := o.storeOf(queue)
		q := kq.Query
		if err == nil && !kq.Scan {
			err = priced(ctx, s, &q)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		limit, after, n := q.Limit, q.After, 0
		q.Limit = 0 // what is left out does not count
		for r, err := range s.List(ctx, q) {
			if err == nil && (strings.HasPrefix(r.Key.Scope, ":") || records.Compare(r.Key, after) <= 0) {
				continue // a store of somebody else's may not know After
			}
			if !yield(r, err) || err != nil {
				return
			}
			if n++; n == limit {
				return
			}
		}
	}
}

// priced is nil where an index answers the query.
func priced(ctx context.Context, s dedupe.Store, q *dedupe.Query) error {
	if i, ok := broker.As[dedupe.Indexed](s); ok {
		if i.Indexed(*q) {
			return nil
		}
	} else if attention(q.Status) {
		return nil
	}
	e := &ScanError{Records: -1}
	if t, ok := broker.As[dedupe.Sized](s); ok {
		e.Units, e.Dollars = -1, -1
		if size, err := t.Size(ctx); err == nil {
			e.Records = size.Records
			e.Units = max(1, (size.Bytes+scanUnit-1)/scanUnit)
			e.Dollars = float64(e.Units) * scanDollars / 1e6
		}
		return e
	}
	if c, ok := broker.As[dedupe.Counter](s); ok {
		if counts, err := c.Count(ctx, dedupe.Query{Scope: q.Scope}); err == nil {
			e.Records = 0
			for _, n := range counts {
				e.Records += n.N
			}
		}
	}
	return e
}

// A scan of DynamoDB takes a read unit each 4 KB, because List is strongly consistent; a million of
// them cost scanDollars on demand in us-east-1.
const (
	scanUnit    = 4 << 10
	scanDollars = 0.125
)

// storeOf is a target's store; an empty name is the first target's.
func (o *Ops) storeOf(queue string) (dedupe.Store, error) {
	if queue == "" {
		return o.ts[0].store()
	}
	t, err := o.target(queue)
	if err != nil {
		return nil, err
	}
	return t.store()
}

// ResolveSpec is an operator's word on a parked record.
type ResolveSpec struct {
	// Queue is a Target's name; empty = the first one. Key and Fence are the record's.
	Queue string
	Key   dedupe.Key
	Fence uint64
	// To is what the record is to be: done, failed or released. Result is that of a done one.
	To     dedupe.Status
	Result []byte
	// Reason is why. Required.
	Reason string
}

// Resolve is an operator's word on a parked record, as [dedupe.Resolve] has it. The id is that of
// the act in the audit. A record that is not parked under that fence is not touched; the error
// wraps [dedupe.ErrLeaseLost]. The job's letter is not touched either: a released job runs by it,
// so plan it with PlanLetters, and replay the plan.
func (o *Ops) Resolve(ctx context.Context, spec ResolveSpec) (audit string, err error) {
	s, err := o.storeOf(spec.Queue)
	if err != nil {
		return "", err
	}
	if err := own(spec.Key); err != nil {
		return "", err
	}
	to := spec.To.String()
	return o.act(ctx, s, recordAct("resolve", spec.Key, spec.Fence, spec.Reason, "to", to), func(ctx context.Context) (map[string]string, error) {
		if err := dedupe.Resolve(ctx, s, spec.Key, spec.Fence, spec.To, spec.Result); err != nil {
			return nil, err
		}
		return map[string]string{"status": to}, nil
	})
}

// ForgetSpec names a record that is to be removed.
type ForgetSpec struct {
	// Queue is a Target's name; empty = the first one. Key and Fence are the record's.
	Queue string
	Key   dedupe.Key
	Fence uint64
	// Force also removes the record of a live claim, whose run then cannot record its end.
	Force bool
	// Reason is why. Required.
	Reason string
}

// Forget removes a record, so that the next message of its key runs as if it were the first. The id
// is that of the act in the audit.
func (o *Ops) Forget(ctx context.Context, spec ForgetSpec) (audit string, err error) {
	s, err := o.storeOf(spec.Queue)
	if err != nil {
		return "", err
	}
	k := spec.Key
	if err := own(k); err != nil {
		return "", err
	}
	return o.act(ctx, s, recordAct("forget", k, spec.Fence, spec.Reason, "force", strconv.FormatBool(spec.Force)), func(ctx context.Context) (map[string]string, error) {
		r, err := get(ctx, s, k)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, fmt.Errorf("%w: %v", ErrNoKey, k)
		}
		errs, err := s.Forget(ctx, []dedupe.Forgotten{{Key: k, Fence: spec.Fence, Force: spec.Force}})
		switch {
		case err != nil:
			return nil, err
		case len(errs) != 1:
			return nil, fmt.Errorf("ops: the store answered %d of 1 entries", len(errs))
		case errs[0] != nil:
			return nil, fmt.Errorf("%v is %v with fence %d: %w", k, r.Status, r.Fence, errs[0])
		}
		return map[string]string{"was": r.Status.String()}, nil
	})
}

// own refuses the keys of onceq itself: by these an operator would take a worker's seat, or the
// rules away.
func own(k dedupe.Key) error {
	if strings.HasPrefix(k.Scope, ":") {
		return fmt.Errorf("%w: the scope %q begins with a ':', and such scopes are onceq's own", dedupe.ErrBadKey, k.Scope)
	}
	return k.Validate()
}

func recordAct(what string, k dedupe.Key, fence uint64, reason, name, value string) AuditEntry {
	return AuditEntry{
		Act: what, Reason: reason, Object: k.String(),
		Detail: map[string]string{"fence": strconv.FormatUint(fence, 10), name: value},
	}
}
