package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
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

	open   bool               // the plan's Rest counts
	judged map[string]Planned // by message id: letters of the Rest that are not to be taken
	until  time.Time          // when the call ends that meets nothing of the plan; zero = nothing was let go
}

// letGoFor is how long a letter stays hidden that a call with a plan had to let go.
const letGoFor = 10 * time.Minute

func newPlanned(p *Plan) *planned {
	w := &planned{plan: p, left: make(map[string]int), jobs: make(map[string]uint64), anew: make(map[string]uint64), judged: make(map[string]Planned)}
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

// isOver reports whether all letters of the plan were met. Without a plan, and by a plan's Rest, it
// is false.
func (w *planned) isOver() bool { return w != nil && !w.open && len(w.left) == 0 }

// begin lets the plan's Rest count at once, where the queue has more letters than can be held.
func (w *planned) begin(ctx context.Context, of *walk) {
	if w == nil || !w.plan.Rest.isUsable() || len(w.left) == 0 {
		return
	}
	if depth, ok := of.depth(ctx); ok && depth.Visible > int64(of.q.o.MaxHeld) {
		w.open = true
	}
}

// fits reports whether a letter that the plan does not list is of its Rest. The time alone that the
// letter names would not do, because its worker's clock may be behind.
func (w *planned) fits(m *broker.Message) bool {
	return w.open && m.ID != "" && w.plan.Rest.Filter.chooses(m) && failedAt(m).Before(w.plan.Made) && m.Published.Before(w.plan.Made)
}

// makeRoom lets letters go that the plan is not about, because no more can be held. From now on the
// plan's Rest counts: what was met of it is met again.
func (p *pass) makeRoom() {
	w, now := p.planned, time.Now()
	if !w.open && w.plan.Rest.isUsable() {
		w.open = true
		p.clearOut(p.q.o.MaxHeld, 0)
		return
	}
	after := letGoFor
	if most := p.q.l.MaxNack; most < after {
		after = most
	}
	if w.until.IsZero() {
		w.until = now.Add(PlanTTL)
	}
	if after < time.Second || now.After(w.until) {
		return // the walk says that there is no room
	}
	p.clearOut(max(1, p.q.o.MaxHeld/4), after)
}

// clearOut is the walk's letGo. The letters are counted when they come again.
func (p *pass) clearOut(n int, after time.Duration) {
	n = p.w.letGo(n, after)
	p.report.Seen -= n
	p.report.Unchosen -= n
}

// judgeRest asks what is to become of new letters that the plan does not list.
func (p *pass) judgeRest(ctx context.Context, fresh []*item) error {
	w := p.planned
	if p.judge == nil || w == nil || !w.open {
		return nil
	}
	var of []Planned
	for _, l := range fresh {
		if _, listed := w.left[l.m.ID]; !listed && w.fits(l.m) {
			of = append(of, Planned{Ref: refOf(l.m)})
		}
	}
	if len(of) == 0 {
		return nil
	}
	if err := p.judge(ctx, of); err != nil {
		return fmt.Errorf("dlq: ReplayOptions.Judge: %w", err)
	}
	for _, l := range of {
		if l.Decision != Take {
			w.judged[l.MessageID] = l
		}
	}
	return nil
}

// keepTo makes the pass keep to a plan; nil = there is none.
func (p *pass) keepTo(of *Plan) {
	if of != nil {
		p.planned = newPlanned(of)
	}
}

// job tells jobs apart: by their record where the letter names it, else by type and key.
func (r *Ref) job() string {
	if r.Record != (RecordKey{}) {
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
	}
	of := Planned{Ref: ref}
	switch judged, is := w.judged[l.m.ID]; {
	case ok:
		of = w.plan.Letters[i]
		delete(w.left, l.m.ID)
	case is:
		of = judged
		delete(w.judged, l.m.ID)
	case !w.fits(l.m):
		p.tell(l, Unchosen, nil)
		return nil
	}
	w.until = time.Time{}
	switch {
	case ref.Fence != of.Fence, w.hasMoved(&ref):
		p.tell(l, Skipped, errMoved)
	case of.Decision == Leave:
		p.tell(l, Skipped, errors.New(cmp.Or(of.Why, "the plan leaves it")))
	case of.Decision == Remove && p.remove != nil:
		p.remove(l)
	default:
		return p.choose(l)
	}
	return nil
}
