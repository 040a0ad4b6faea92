package ops

import (
	"context"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// This file owns what becomes of a parked job's letter. Resolve (records.go) is a word on the
// record alone, and a job whose message was acked runs by its letter, or not at all. Tools call
// PlanLetters, show the numbers, call Resolve, and then Replay with the plan. Nothing is locked.

// PlanLetters is PlanReplay of the letters of some failures alone; the Filter of spec means
// nothing. Where none of them has a letter the plan is empty. A letter of an older version, which
// does not name its record, is found by its own key.
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
	return o.PlanReplay(ctx, spec)
}

// Of is the place of a failure's letter in the plan's Letters; -1 = it has none there.
func (p *ReplayPlan) Of(f Failure) int {
	for i := range p.Letters {
		l := &p.Letters[i]
		named := l.Record == dlq.Record(f.Key) || l.Record == dlq.Record{} && l.Key == f.Key.Key
		if named && l.Fence == f.Fence {
			return i
		}
	}
	return -1
}
