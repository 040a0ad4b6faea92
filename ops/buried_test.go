package ops_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

// TestBuried: a worker that died is dead as long as it may have left jobs, and has left when others
// have them all. A job whose record is not found, and jobs that no card names, keep it dead.
func TestBuried(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		sits := func(owner string, change func(*control.WorkerStatus)) {
			c := &control.WorkerStatus{At: time.Now(), State: "running", Scope: "orders", Slots: 10, Busy: 1, Jobs: []control.RunningJob{{Key: key.Key, At: time.Now()}}}
			change(c)
			if err := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: "orders", Owner: owner})).Beat(r.Context(), c); err != nil {
				r.Fatal(err)
			}
		}
		states := func() map[string]string {
			m := map[string]string{}
			for _, s := range must(r.ops.Workers(r.Context(), "orders")) {
				m[s.Owner] = s.State
			}
			return m
		}
		l := r.claim(time.Minute, "w-1")
		sits("w-1", func(*control.WorkerStatus) {})
		sits("idle", func(c *control.WorkerStatus) { c.Busy, c.Jobs = 0, nil })
		sits("nameless", func(c *control.WorkerStatus) { c.Jobs = nil })
		sits("more", func(c *control.WorkerStatus) { c.More = 3 })
		sits("elsewhere", func(c *control.WorkerStatus) { c.Jobs[0].Key = "never" })
		<-time.After(2 * time.Minute)
		want := func(w map[string]string) {
			t.Helper()
			got := states()
			for owner, state := range w {
				if got[owner] != state {
					t.Errorf("%s is %s, want %s", owner, got[owner], state)
				}
			}
		}
		want(map[string]string{"w-1": ops.StateDead, "idle": ops.StateLeft, "nameless": ops.StateDead, "more": ops.StateDead, "elsewhere": ops.StateDead})
		if found := must(r.ops.Stalled(r.Context(), "orders", ops.StalledOptions{})); len(found) != 1 {
			t.Errorf("%+v", found)
		}
		again := r.claim(time.Hour, "w-2")
		if again.Fence <= l.Fence {
			t.Fatal("it was not taken over")
		}
		want(map[string]string{"w-1": ops.StateLeft, "more": ops.StateDead, "elsewhere": ops.StateDead})
		r.settle(again, dedupe.Done, "")
		<-time.After(time.Hour)
		want(map[string]string{"w-1": ops.StateLeft, "nameless": ops.StateDead, "more": ops.StateLeft, "elsewhere": ops.StateDead})
	})
}
