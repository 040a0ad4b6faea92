package dlq

import (
	"cmp"
	"errors"
)

// This file owns how a replay or a purge keeps to its plan. pass.go calls it for each letter, in
// the goroutine of the call, without a lock.

// The reasons why a letter that a plan is about stays.
var (
	errMoved    = errors.New("its job failed anew after the plan was made: make a plan of it")
	errNameless = errors.New("the broker gives it no id, so no plan can name it")
)

// planned is a plan at work.
type planned struct {
	plan *Plan
	left map[string]int    // by message id: letters and copies that were not met yet, by their place
	jobs map[string]uint64 // by job: the newest fence in the plan
	anew map[string]uint64 // by job: the newest fence that was met and is not in the plan
}

func newPlanned(p *Plan) *planned {
	w := &planned{plan: p, left: make(map[string]int), jobs: make(map[string]uint64), anew: make(map[string]uint64)}
	for i := range p.Letters {
		l := &p.Letters[i]
		w.left[l.MessageID] = i
		for _, id := range l.Copies {
			w.left[id] = i
		}
		if l.Fence != 0 {
			w.jobs[l.job()] = max(w.jobs[l.job()], l.Fence)
		}
	}
	return w
}

// isOver reports whether all letters of the plan were met. Without a plan it is false.
func (w *planned) isOver() bool { return w != nil && len(w.left) == 0 }

// keepTo makes the pass keep to a plan; nil = there is none.
func (p *pass) keepTo(of *Plan) {
	if of != nil {
		p.planned = newPlanned(of)
	}
}

// job tells jobs apart: by their record where the letter names it, else by type and key.
func (r *Ref) job() string {
	if r.Record != (Record{}) {
		return r.Record.Scope + "\x00" + r.Record.Key
	}
	return r.Source + "\x00" + r.Type + "\x00" + r.Key
}

// hasMoved reports whether a newer failure of the job was met.
func (w *planned) hasMoved(r *Ref) bool {
	return w != nil && r.Fence != 0 && len(w.anew) > 0 && w.anew[r.job()] > r.Fence
}

// lookPlanned decides a letter's fate by the plan.
func (p *pass) lookPlanned(l *item) error {
	w, ref := p.planned, refOf(l.m)
	i, ok := w.left[l.m.ID]
	if !ok {
		if most, planned := w.jobs[ref.job()]; planned && ref.Fence > most {
			w.anew[ref.job()] = max(w.anew[ref.job()], ref.Fence)
			p.tell(l, Skipped, errMoved)
			return nil
		}
		p.tell(l, Unchosen, nil)
		return nil
	}
	delete(w.left, l.m.ID)
	of := &w.plan.Letters[i]
	switch {
	case ref.Fence != of.Fence, w.hasMoved(&ref):
		p.tell(l, Skipped, errMoved)
	case of.Judgement == Leave:
		p.tell(l, Skipped, errors.New(cmp.Or(of.Why, "the plan leaves it")))
	case of.Judgement == Remove && p.remove != nil:
		p.remove(l)
	default:
		return p.choose(l)
	}
	return nil
}
