package ops_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// TestPlanLetters: the letters of some failures are found by their records and fences, or by the
// key where a letter names no record; no other letter is touched.
func TestPlanLetters(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		of := func(key string, fence uint64) ops.Failure {
			return ops.Failure{Key: dedupe.Key{Scope: "orders:charge", Key: key}, Fence: fence}
		}
		named := r.died("named")
		r.died("other")
		earlier := r.died("again", func(d *broker.Dead) { d.Fence-- })
		old := r.died("old", func(d *broker.Dead) { d.Scope, d.Key = "", "" })
		r.died("none", func(d *broker.Dead) { d.Fence = 0 })
		asked := []ops.Failure{of("named", named.Fence), of("again", earlier.Fence), of("old", old.Fence), of("none", 0), of("never", 7)}
		spec := ops.ReplaySpec{Queue: "orders", Reason: "they shall run"}
		p := must(r.ops.PlanLetters(r.Context(), spec, asked))
		if len(p.Letters) != 2 || p.Of(asked[0]) < 0 || p.Of(asked[2]) < 0 || p.Of(asked[1]) >= 0 || p.Of(asked[3]) >= 0 || p.Of(asked[4]) >= 0 {
			t.Fatalf("%+v", p.Letters)
		}
		rep, _, err := r.ops.Replay(r.Context(), p)
		if err != nil || rep.Replayed != 2 {
			t.Errorf("%v, %v", err, rep)
		}
		r.wantDepths(3, 2)
	})
}

// TestAs: one Ops acts for many people: each act has the name of who did it.
func TestAs(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		l := r.claim(time.Minute, "w")
		r.settle(l, dedupe.Parked, "interrupted")
		ben := r.ops.As("ben")
		must(ben.Resolve(r.Context(), ops.ResolveSpec{Key: key, Fence: l.Fence, To: dedupe.Failed, Reason: "no such order"}))
		must(r.ops.Forget(r.Context(), ops.ForgetSpec{Key: key, Fence: l.Fence, Reason: "again"}))
		if es := r.acts(); len(es) != 2 || es[0].By != "ben" || es[1].By != "ana" {
			t.Errorf("%+v", es)
		}
		if _, err := r.ops.As("").Forget(r.Context(), ops.ForgetSpec{Key: key, Fence: 1, Reason: "x"}); err == nil {
			t.Error("an act of nobody")
		}
	})
}
