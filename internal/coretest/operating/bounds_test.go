package operating

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/peak"
)

// TestLowestLimit: of the program's limit, an operator's and a breaker's the lowest one counts,
// whichever came first, and each ends by itself. They hold in the next Run, too.
func TestLowestLimit(t *testing.T) {
	var at peak.Gauge
	h := func(context.Context, *onceq.Job) error {
		at.In()
		defer at.Out()
		rig.Takes(time.Second)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		brake := r.W.Brake()
		r.W.Limit(4) // before Run
		r.Start()
		rig.Pass(time.Second)
		want := func(slots int, by string) {
			t.Helper()
			rig.Pass(rig.Bound)
			at.Reset()
			for n := range 12 {
				r.Send(fmt.Sprint(r.Since(), n))
			}
			rig.Pass(30 * time.Second)
			if got := r.W.Stats().Slots; got != slots || at.Top() != slots {
				t.Errorf("%d slots, %d ran at once; want %d, by %q", got, at.Top(), slots, by)
			}
			if ws := seatsOf(r); len(ws) == 0 || ws[0].Status == nil || ws[0].Status.LimitedBy != by || ws[0].Status.Slots != slots {
				t.Errorf("the cards say %+v, want %d by %q", ws, slots, by)
			}
		}
		want(4, "local")
		id := r.Orders(time.Hour, func(u *control.Rule) { u.Queue, u.Do, u.Slots = rig.Scope, control.Limit, 2 })
		want(2, "rules")
		brake(1)
		want(1, "breaker")
		r.W.Limit(3)
		want(1, "breaker")
		brake(-1)
		want(2, "rules")
		r.W.Limit(1)
		want(1, "local")
		r.W.Limit(3)
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		want(3, "local")
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		r.Start()
		want(3, "local")
		r.W.Limit(-5)
		want(10, "")
		r.W.Limit(1 << 40)
		want(10, "")
	}, rig.Steered)
}

// TestBrakes: the pauses of two breakers, the program's and an operator's are four. None ends
// another, and each has its event and its reason.
func TestBrakes(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		one, two := r.W.Brake(), r.W.Brake()
		r.Start()
		rig.Pass(time.Second)
		want := func(reasons ...string) {
			t.Helper()
			if got := r.W.Stats().Paused; !slices.Equal(got, reasons) {
				t.Errorf("paused for %q, want %q", got, reasons)
			}
		}
		one(0)
		two(0)
		want("breaker")
		if h := r.W.Health(); h.State != onceq.StatePaused || len(h.Reasons) != 1 || h.Reasons[0] != "paused by a breaker of the program" {
			t.Errorf("%+v", h)
		}
		one(-1)
		r.W.Resume()
		want("breaker")
		id := r.Orders(time.Hour, ofQueue)
		r.W.Pause()
		rig.Pass(rig.Bound)
		want("local", "rules", "breaker")
		two(1)
		want("local", "rules")
		two(0)
		two(0)
		r.W.Resume()
		r.Rules(func(rs *controlstore.Rules) { rs.Remove(id) })
		rig.Pass(rig.Bound + 10*time.Second)
		want("breaker")
		r.Send("a")
		rig.Pass(time.Minute)
		r.WantOutcomes("a")
		two(-1)
		rig.Pass(time.Minute)
		want()
		r.WantOutcomes("a", "done")
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		r.WantEvents("started", "paused breaker", "paused local", "paused rules", "resumed breaker", "paused breaker", "resumed local", "resumed rules", "resumed breaker", "draining", "drained")
	}, rig.Steered, rig.Watched)
}
