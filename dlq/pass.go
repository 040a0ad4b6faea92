package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file owns the way of a replay or a purge through the queue: which letters are of the set,
// and what is told of each. Both fill in choose, flush and full, and call through in the goroutine
// of the caller. A pass has no lock; the letters that it holds are the keeper's.

// pass is one way through the queue that takes letters out of it. A replay and a purge share it.
type pass struct {
	q       *Queue
	w       *walk
	f       *Filter
	each    func(Step)
	start   time.Time
	most    int // how many letters to receive at once
	unacked map[string]bool
	stuck   error // the error with which acks fail
	drained bool  // the whole queue was seen
	beyond  int   // about how many letters were not, while a plan is made
	report  Report

	planned *planned // the plan that is kept to; nil = the filter decides
	draft   *draft   // the plan that is made; nil = none

	meet   func(*item)                            // is shown each letter; may be nil
	judge  func(context.Context, []Planned) error // judges letters that the plan does not list; may be nil
	choose func(*item) error                      // takes a letter of the set; an error ends the pass
	remove func(*item)                            // takes a letter that is not to be sent; nil = choose does
	stop   <-chan struct{}                        // closed = end in order; may be nil
	flush  func(ctx context.Context) error        // does what choose has gathered
	full   func() bool                            // reports that nothing more is to be taken
}

func newPass(ctx context.Context, q *Queue, f *Filter, each func(Step), dry bool) pass {
	w := q.walk(ctx)
	w.eager = dry
	return pass{
		report: Report{DryRun: dry},
		q:      q, w: w, f: f, each: each, start: time.Now(), most: q.l.ReceiveBatch,
		unacked: make(map[string]bool),
	}
}

// through goes until the queue is drained, or full.
func (p *pass) through(ctx context.Context) error {
	p.planned.begin(ctx, p.w)
	defer func() {
		if p.draft != nil && !p.drained {
			depth, _ := p.w.depth(ctx)
			p.beyond = int(depth.Visible)
		}
	}()
	for !p.full() {
		if p.isStopped() {
			return ErrStopped
		}
		if p.planned != nil && p.w.room() <= 0 {
			p.makeRoom() //nolint:contextcheck // it outlives the end of ctx
		}
		drained, err := p.step(ctx, p.q.o.Wait)
		if e := p.flush(ctx); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		if drained {
			p.drained = true
			if p.planned != nil && !p.planned.open {
				p.report.Missing = len(p.planned.left)
			}
			p.report.Elsewhere, err = p.w.rest(ctx)
			return err
		}
	}
	if p.report.Unacked > 0 && ctx.Err() != nil {
		return context.Cause(ctx) // it cut off the last acks
	}
	return nil
}

// isStopped reports whether the caller has asked for the end.
func (p *pass) isStopped() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// ended is why nothing more may be sent; nil = it may.
func (p *pass) ended(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case p.isStopped():
		return ErrStopped
	}
	return nil
}

// rest waits for d, or until something ends it.
func (p *pass) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-p.stop:
	}
}

// step receives once, and looks at what came.
func (p *pass) step(ctx context.Context, wait time.Duration) (drained bool, err error) {
	fresh, again, drained, err := p.w.next(ctx, p.most, wait)
	if err != nil {
		return false, err
	}
	var ids []string
	for _, l := range again {
		if l.fate.takes() {
			ids = append(ids, l.name) // its first ack did not remove it
		}
	}
	if err := p.ack(ctx, ids); err != nil {
		return false, err
	}
	if err := p.judgeRest(ctx, fresh); err != nil {
		return false, err
	}
	for _, l := range fresh {
		if err := p.look(l); err != nil {
			return false, err
		}
	}
	return drained, nil
}

func (p *pass) look(l *item) error {
	p.report.Seen++
	if p.meet != nil {
		p.meet(l)
	}
	switch {
	case p.planned != nil:
		return p.lookPlanned(l)
	case p.draft != nil && l.m.ID == "":
		p.tell(l, Skipped, errNameless)
	case !p.f.chooses(l.m):
		p.tell(l, Unchosen, nil)
	case !failedAt(l.m).Before(p.start):
		p.tell(l, Newer, nil)
	default:
		return p.choose(l)
	}
	return nil
}

// makePlan makes a plan of what run takes.
func (p *pass) makePlan(act Act, run func() error) (*Plan, error) {
	if p.q.o.Name == "" {
		return nil, errNoName
	}
	p.draft = &draft{at: make(map[identity]int)}
	p.draft.plan = Plan{
		Act: act, Queue: p.q.o.Name, Made: p.start.UTC().Truncate(time.Millisecond), Skipped: make(map[string]int),
	}
	err := run()
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, err
	}
	plan, rep := &p.draft.plan, &p.report
	plan.Seen, plan.Unchosen, plan.Elsewhere, plan.Unsigned = rep.Seen, rep.Unchosen+rep.Newer, rep.Elsewhere, rep.Unsigned
	for _, l := range rep.Skipped {
		plan.Skipped[l.Reason]++
	}
	if !p.drained {
		plan.Rest = &Rest{Filter: *p.f, About: p.beyond, matched: p.f.Match != nil}
	}
	plan.ID = plan.name()
	return plan, err
}

// tell decides the fate of a letter, and reports it.
func (p *pass) tell(l *item, f Result, reason error) {
	l.fate = f
	s := Step{Entry: entryOf(l), Result: f}
	s.Entry.Copies = len(l.copies)
	if reason != nil {
		s.Reason = reason.Error()
	}
	if p.draft != nil {
		p.draft.add(l, f)
	}
	// Nobody needs these any more, and the item may be kept for long.
	l.m, l.out.Body, l.out.Meta, l.out.Attributes = nil, nil, nil, nil
	p.report.add(&s)
	if p.each != nil {
		p.each(s)
	}
}

// ack removes letters from the queue, and it alone does; a dry run removes none, whatever their
// fate. Where the broker takes no acks the pass ends, because it could not remove what it went on
// to send either.
func (p *pass) ack(ctx context.Context, ids []string) error {
	if len(ids) == 0 || p.stuck != nil || p.report.DryRun {
		return p.stuck
	}
	for _, id := range ids {
		delete(p.unacked, id)
	}
	left, err := p.w.k.ack(ctx, ids)
	for _, id := range left {
		p.unacked[id] = true
	}
	p.report.Unacked = len(p.unacked)
	if err != nil {
		p.stuck = fmt.Errorf("dlq: letters that were dealt with cannot be removed: %w", err)
	}
	return p.stuck
}
