package snippets

import (
	"context"
	"iter"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// reconcileNightly compares yesterday's orders with what ran. It may be called by each process of a
// fleet, from a timer or a cron job: one of them does it.
func reconcileNightly(ctx context.Context, o *ops.Ops, s dedupe.Store, day time.Time, orders iter.Seq2[ops.Expected, error], tell func(ops.Finding)) error {
	name := "reconcile/" + day.Format(time.DateOnly)
	_, err := control.RunOnce(ctx, s, name, 0, func(ctx context.Context) error {
		e, err := o.Reconcile(ctx, ops.ReconcileOptions{Queue: "orders", Expected: orders, Letters: true, Each: tell})
		if err != nil {
			return err // another process may do it
		}
		_, _, err = o.Resend(ctx, ops.ResendSpec{Evidence: e, PerSecond: 50, Reason: "the nightly reconciliation"})
		return err
	})
	return err
}
