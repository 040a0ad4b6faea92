package ops

import (
	"context"
	"fmt"
	"strconv"

	"github.com/onceq/onceq/dlq"
)

// This file owns purges of dead letters. Tools call PlanPurge, show the numbers, and call Purge.
// Nothing is locked.

// PurgeSpec says which letters are removed, and where they are kept.
type PurgeSpec struct {
	// PurgeOptions are dlq's. Plan and DryRun are left empty: the act gets its plan, and PlanPurge
	// is the dry run. Export or NoExport is required for the act.
	dlq.PurgeOptions
	// Queue is a Target's name.
	Queue string
	// By is who acts; default: Options.By. Reason is why. Both are required for the act.
	By, Reason string
	// Beside is as in [ReplaySpec].
	Beside bool
}

// checkPurge is the error where something is set that ops sets by itself.
func checkPurge(s *PurgeSpec) error {
	switch {
	case s.Plan != nil:
		return fmt.Errorf("%w: PurgeSpec.Plan is set; give the plan to Purge", ErrRefused)
	case s.DryRun:
		return fmt.Errorf("%w: PurgeSpec.DryRun is set; PlanPurge is the dry run", ErrRefused)
	}
	return nil
}

// PlanPurge freezes the letters that spec chooses. Nothing is removed. The errors are as in
// PlanReplay.
func (o *Ops) PlanPurge(ctx context.Context, spec PurgeSpec) (*dlq.Plan, error) {
	if err := checkPurge(&spec); err != nil {
		return nil, err
	}
	q, err := o.lettersOf(spec.Queue)
	if err != nil {
		return nil, err
	}
	return q.PlanPurge(ctx, dlq.PurgeOptions{Filter: spec.Filter, All: spec.All, NoExport: true})
}

// Purge removes the letters of a plan, and no others. Their jobs stay failed or parked in the
// store. The audit has the intent before, and the numbers after.
func (o *Ops) Purge(ctx context.Context, p *dlq.Plan, spec PurgeSpec) (rep dlq.Report, audit string, err error) {
	t, q, po, err := o.purging(p, &spec)
	if err != nil {
		return rep, "", err
	}
	detail := map[string]string{"letters": strconv.Itoa(p.Count(dlq.Take)), "export": strconv.FormatBool(!spec.NoExport)}
	if rest := restOf(p); rest != "" {
		detail["rest"] = rest
	}
	if all := unclaimedOf(p); all != "" {
		detail[detailUnclaimed] = all
	}
	audit, err = o.letterAct(ctx, t, p, dlq.ActPurge, spec.By, spec.Reason, spec.Beside, detail, func(ctx context.Context) (map[string]string, error) {
		var err error
		rep, err = q.Purge(ctx, po)
		return counted(&rep), err
	})
	return rep, audit, err
}

// purging is what an act by the plan needs, after everything was checked that can be.
func (o *Ops) purging(p *dlq.Plan, spec *PurgeSpec) (*target, *dlq.Queue, dlq.PurgeOptions, error) {
	po := spec.PurgeOptions
	if err := checkPurge(spec); err != nil {
		return nil, nil, po, err
	}
	t, err := o.target(spec.Queue)
	if err != nil {
		return nil, nil, po, err
	}
	q, err := t.letters()
	if err != nil {
		return nil, nil, po, err
	}
	po.Plan, po.Filter, po.All = p, dlq.Filter{Max: spec.Max}, false // the plan has chosen
	return t, q, po, q.CheckPurge(po)
}
