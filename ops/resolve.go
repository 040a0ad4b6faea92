package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// This file owns what becomes of a parked job's letter. Resolve (records.go) is a word on the
// record alone, and a job whose message was acked runs by its letter, or not at all. Tools call
// PlanLetters, show the numbers, call Resolve, and then Replay with the plan. Nothing is locked.

// PlanLetters is PlanReplay of the letters of some failures alone; the Filter of spec means
// nothing. Where none of them has a letter the plan is empty. A letter of an older version, which
// does not name its record, is found by its own key and fence. It is left, and says why, where not
// exactly one record of the queue's scopes and of those failures has both.
func (o *Ops) PlanLetters(ctx context.Context, spec ReplaySpec, of []Failure) (*ReplayPlan, error) {
	asked := make(map[Failure]bool, len(of))
	for _, f := range of {
		asked[f] = true
		asked[Failure{dedupe.Key{Key: f.Key.Key}, f.Fence}] = true
	}
	spec.Filter = dlq.Filter{Match: func(m *broker.Message) bool {
		f, ok := failureOf(m)
		return ok && asked[f]
	}}
	p, err := o.PlanReplay(ctx, spec)
	if p != nil {
		if e := o.leaveStrays(ctx, p, of); e != nil {
			return nil, e
		}
	}
	return p, err
}

// leaveStrays leaves letters that name no record, and may be another's than those that were asked
// for: where fences count per record, two scopes may share a key and a fence.
func (o *Ops) leaveStrays(ctx context.Context, p *ReplayPlan, of []Failure) error {
	var scopes []string
	for i := range p.Letters {
		l := &p.Letters[i]
		if l.Record != (dlq.RecordKey{}) || l.Decision != dlq.Take {
			continue
		}
		if scopes == nil {
			known, err := o.Scopes(ctx, p.Spec.Queue)
			if err != nil && !errors.Is(err, ErrMissing) {
				return err
			}
			scopes = known
			for _, f := range of {
				scopes = append(scopes, f.Key.Scope)
			}
			slices.Sort(scopes)
			scopes = slices.Compact(scopes)
		}
		rs, err := o.Find(ctx, p.Spec.Queue, scopes, l.Key)
		if err != nil {
			return err
		}
		rs = slices.DeleteFunc(rs, func(r *dedupe.Record) bool { return r.Fence != l.Fence })
		if len(rs) == 1 && slices.Contains(of, Failure{rs[0].Key, l.Fence}) {
			continue
		}
		p.Unknown--
		p.Moved++
		l.Decision = dlq.Leave
		l.Why = fmt.Sprintf("it names no record, as letters of older versions, and %d scopes have its key and fence: show it, and replay it by its id", len(rs))
	}
	return nil
}

// Of is the place of a failure's letter in the plan's Letters; -1 = it has none there.
func (p *ReplayPlan) Of(f Failure) int {
	for i := range p.Letters {
		l := &p.Letters[i]
		named := l.Record == dlq.RecordKey(f.Key) || l.Record == dlq.RecordKey{} && l.Key == f.Key.Key && l.Decision != dlq.Leave
		if named && l.Fence == f.Fence {
			return i
		}
	}
	return -1
}
