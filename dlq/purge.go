package dlq

import (
	"context"
	"fmt"
)

// This file owns Purge: its options, and how letters are exported and removed. pass.go calls choose
// and flush in the goroutine of the call, without a lock.

// PurgeOptions say what a purge removes, and where it is kept.
type PurgeOptions struct {
	// Filter chooses the letters. Max is how many are removed at most, copies counted.
	Filter
	// Plan, when set, names the letters: these are removed, but for those of decision [Leave], and
	// no others. Of the Filter only Max may be set then. See [Queue.PlanPurge].
	Plan *Plan
	// All says that every letter is meant. It is required where the Filter chooses all, Max aside,
	// and refused where it does not.
	All bool
	// Export gets each letter before it is removed, in the goroutine of the call. It must have
	// stored the letter when it returns nil: see [ExportJSON]. If it returns an error, the letter
	// stays, and the purge ends with that error. Required, unless NoExport is set, which refuses
	// it.
	Export func(Entry) error
	// NoExport says that nothing is to be kept: the letters are lost.
	NoExport bool
	// DryRun exports and removes nothing; the report says what would be.
	DryRun bool
	// Each, when set, is called for each letter that was looked at, when its result is known, in
	// the goroutine of the call.
	Each func(Step)
	// Stop, once it is closed, ends the purge in order, as in [ReplayOptions].
	Stop <-chan struct{}
}

func (o *PurgeOptions) check(q *Queue) error {
	if err := o.Filter.check("PurgeOptions"); err != nil {
		return err
	}
	if o.Plan != nil {
		if err := o.Plan.check(q, ActPurge); err != nil {
			return err
		}
	}
	switch {
	case o.Plan != nil && (o.All || !o.isZero()):
		return bad("PurgeOptions.Plan", "is set, and so is a filter or All; the plan has chosen already")
	case o.All && !o.isZero():
		return bad("PurgeOptions.All", "is set, and so is a filter; which of the two is meant?")
	case o.Plan == nil && !o.All && o.isZero():
		return bad("PurgeOptions.Filter", "is empty; to remove every letter, set PurgeOptions.All")
	case o.Export == nil && !o.NoExport:
		return bad("PurgeOptions.Export", "is nil; to lose the letters, set PurgeOptions.NoExport")
	case o.Export != nil && o.NoExport:
		return bad("PurgeOptions.NoExport", "is set, and so is PurgeOptions.Export")
	}
	return nil
}

// Purge removes letters for good. It exports each letter first, and acks it only after Export has
// returned nil. A purge that dies may be run again. A letter that was exported and not removed is
// then exported twice, with the same message id. Copies are letters of their own here. The set is
// frozen, and what is not chosen is held and handed back, as in [Queue.Replay].
//
// An error is one of these:
//
//   - a mistake in o, and then nothing was done;
//   - Export's;
//   - the context's cause;
//   - [ErrStopped];
//   - [ErrIncomplete];
//   - the broker's, after Options.RetryFor.
func (q *Queue) Purge(ctx context.Context, o PurgeOptions) (Report, error) {
	if err := o.check(q); err != nil {
		return Report{}, err
	}
	p := newPurge(ctx, q, &o)
	err := p.removeAll(ctx)
	return p.report, err
}

// CheckPurge is the error with which Purge would refuse o before it does anything; nil = none. It
// does no I/O.
func (q *Queue) CheckPurge(o PurgeOptions) error { return o.check(q) }

// PlanPurge goes through the queue as a dry run of Purge does, and freezes the letters that o would
// remove. Give the plan to Purge as PurgeOptions.Plan. Export is not called. The rest is as in
// PlanReplay.
func (q *Queue) PlanPurge(ctx context.Context, o PurgeOptions) (*Plan, error) {
	if err := o.check(q); err != nil {
		return nil, err
	}
	if o.Plan != nil {
		return nil, bad("PurgeOptions.Plan", "is set; PlanPurge makes one")
	}
	o.DryRun = true
	p := newPurge(ctx, q, &o)
	return p.makePlan(ActPurge, func() error { return p.removeAll(ctx) })
}

func newPurge(ctx context.Context, q *Queue, o *PurgeOptions) *purge {
	o.Max = o.Plan.most(o.Max)
	p := &purge{pass: newPass(ctx, q, &o.Filter, o.Each, o.DryRun), o: o}
	p.pass.choose, p.pass.flush, p.pass.full = p.choose, p.flush, p.full
	p.keepTo(o.Plan)
	p.pass.stop = o.Stop
	return p
}

func (p *purge) removeAll(ctx context.Context) error {
	defer p.w.k.handBack() //nolint:contextcheck // it outlives the end of ctx
	return p.through(ctx)
}

type purge struct {
	pass
	o        *PurgeOptions
	exported []*item
}

func (p *purge) full() bool {
	return p.o.Max > 0 && p.report.Purged >= p.o.Max || p.planned.isOver()
}

func (p *purge) choose(l *item) error {
	if p.o.Max > 0 && p.report.Purged+len(p.exported) >= p.o.Max {
		p.tell(l, Unchosen, nil)
		return nil
	}
	if p.o.Export != nil && !p.o.DryRun {
		if err := p.o.Export(entryOf(l)); err != nil {
			ref := refOf(l.m)
			p.tell(l, Failed, err)
			return fmt.Errorf("dlq: exporting the letter of %s: %w", ref, err)
		}
	}
	p.exported = append(p.exported, l)
	return nil
}

// flush removes what was exported.
func (p *purge) flush(ctx context.Context) error {
	ls := p.exported
	p.exported = nil
	err := p.ack(ctx, names(ls))
	for _, l := range ls {
		p.tell(l, Purged, nil)
	}
	return err
}
