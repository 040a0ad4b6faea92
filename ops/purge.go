package ops

import (
	"context"
	"strconv"

	"github.com/onceq/onceq/dlq"
)

// This file owns purges of dead letters. Tools call PlanPurge, show the numbers, and call Purge.
// Nothing is locked.

// PurgeSpec says which letters are removed, and where they are kept.
type PurgeSpec struct {
	// Queue is a Target's name. Filter chooses the letters; All says that the empty one is meant.
	Queue  string
	Filter dlq.Filter
	All    bool
	// Export and NoExport are those of [dlq.PurgeOptions]: one of the two is required for the act.
	Export   func(dlq.Entry) error
	NoExport bool
	// Beside is as in [ReplaySpec]; By is who acts, by default Options.By, and Reason is why.
	Beside     bool
	By, Reason string
}

// PlanPurge freezes the letters that spec chooses. Nothing is removed. The errors are as in
// PlanReplay.
func (o *Ops) PlanPurge(ctx context.Context, spec PurgeSpec) (*dlq.Plan, error) {
	q, err := o.lettersOf(spec.Queue)
	if err != nil {
		return nil, err
	}
	return q.PlanPurge(ctx, dlq.PurgeOptions{Filter: spec.Filter, All: spec.All, NoExport: true})
}

// Purge removes the letters of a plan, and no others. Their jobs stay failed or parked in the
// store. The audit has the intent before, and the numbers after.
func (o *Ops) Purge(ctx context.Context, p *dlq.Plan, spec PurgeSpec, each func(dlq.Step)) (rep dlq.Report, audit string, err error) {
	t, err := o.target(spec.Queue)
	if err != nil {
		return rep, "", err
	}
	q, err := t.letters()
	if err != nil {
		return rep, "", err
	}
	po := dlq.PurgeOptions{Plan: p, Filter: dlq.Filter{Max: spec.Filter.Max}, Export: spec.Export, NoExport: spec.NoExport, Each: each}
	if err := q.CheckPurge(po); err != nil {
		return rep, "", err
	}
	detail := map[string]string{"letters": strconv.Itoa(p.Count(dlq.Take)), "export": strconv.FormatBool(!spec.NoExport)}
	if rest := restOf(p); rest != "" {
		detail["rest"] = rest
	}
	audit, err = o.letterAct(ctx, t, p, ActPurge, spec.By, spec.Reason, spec.Beside, detail, func(ctx context.Context) (map[string]string, error) {
		var err error
		rep, err = q.Purge(ctx, po)
		return counted(&rep), err
	})
	return rep, audit, err
}
