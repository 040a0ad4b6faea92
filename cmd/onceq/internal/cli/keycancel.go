package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

func (a *app) cancelCommand() *cobra.Command {
	var queue, keep string
	c := &cobra.Command{
		Use: "cancel [SCOPE] KEY", Short: "Cancel a job: it shall not run, or not run on", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeScope,
		Long: "The record says failed, class cancelled. Its messages are acked as they come, without a letter. A\n" +
			"handler that runs it is told within some seconds, and cannot complete it in the store's database.\n" +
			"What it has done elsewhere stays. A job without a record, which was not delivered yet, needs its SCOPE.",
		RunE: a.run(func(ctx context.Context, args []string) error {
			spec := ops.CancelSpec{}
			if keep != "" {
				d, err := settings.ParseDuration(keep)
				if err != nil || d <= 0 {
					return exit(exitUsage, "--keep: %q, want a duration such as 62d", keep)
				}
				spec.Keep = d
			}
			return a.cancel(ctx, args, queue, spec)
		}),
	}
	c.Flags().StringVar(&queue, "queue", "", "look for the key in this queue's scopes")
	c.Flags().StringVar(&keep, "keep", "", "how long the record says so; longer than the job's messages may wait (default 62d)")
	a.reasonFlag(c)
	return c
}

func (a *app) cancel(ctx context.Context, args []string, queue string, spec ops.CancelSpec) (err error) {
	if spec.Reason, err = a.reason(ctx); err != nil {
		return err
	}
	w, err := a.openKeys(ctx, &queue)
	if err != nil {
		return err
	}
	defer w.close()
	if spec.Key, err = a.where(ctx, w, queue, args); err != nil {
		return err
	}
	k := spec.Key
	name := out.Text(k.Scope) + " " + out.Text(k.Key)
	plan := name + " has no record: its message, when it comes, finds it cancelled"
	switch l, err := w.Key(ctx, "", k, ops.KeyOptions{NoAudit: true}); {
	case errors.Is(err, ops.ErrNoKey):
	case err != nil:
		return usable(err)
	default:
		r := l.Record
		plan = fmt.Sprintf("%s is %v, attempt %d, fence %d", name, r.Status, r.Attempt, r.Fence)
		switch {
		case r.Status == dedupe.Claimed && r.LeaseUntil.After(time.Now()):
			plan += "; " + out.Text(r.Owner) + " runs it, and what it does outside of the store's database stays"
		case r.Status == dedupe.Failed && !ops.IsCancelled(r):
			plan += "; its letter, if it has one, reopens nothing then"
		}
	}
	if err := a.confirm(ctx, w, question{Plan: plan, Want: k.Key, Act: "cancel it", Bounded: true}); err != nil {
		return err
	}
	audit, err := w.Cancel(ctx, spec)
	if err != nil {
		return usable(err)
	}
	v := doneView{Scope: k.Scope, Key: k.Key, Status: "cancelled", Audit: audit}
	line := name + " is cancelled now   audit " + audit
	return a.show(out.Result{Lines: []string{line}, Value: v, IDs: []string{audit}, Next: suggest("key show", "", k.Scope, k.Key)})
}
