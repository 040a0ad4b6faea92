package ops_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
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
		earlier := r.died("again", func(d *broker.Letter) { d.Fence-- })
		old := r.died("old", func(d *broker.Letter) { d.Scope, d.Key = "", "" })
		r.died("none", func(d *broker.Letter) { d.Fence = 0 })
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

// twins is a store in which two scopes share each key and fence.
type twins struct{ counted }

func (t twins) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	ks = slices.Clone(ks)
	for i := range ks {
		ks[i].Scope = "orders:charge"
	}
	rs, err := t.counted.Get(ctx, ks)
	return rs, err
}

// TestPlanLettersOfTwoScopes: a letter of an older version names no record. Where two scopes have
// its key and fence nobody can tell whose it is, and it stays.
func TestPlanLettersOfTwoScopes(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		l := r.died("old", func(d *broker.Letter) { d.Scope, d.Key = "", "" })
		asked := []ops.Failure{{Key: dedupe.Key{Scope: "orders:charge", Key: "old"}, Fence: l.Fence}}
		spec := ops.ReplaySpec{Queue: "orders", Reason: "it shall run"}
		if p := must(r.ops.PlanLetters(r.Context(), spec, asked)); p.Of(asked[0]) < 0 || p.Count(dlq.Take) != 1 {
			t.Errorf("%+v", p.Letters)
		}
		two := must(ops.New([]ops.Target{{Name: "orders", Queue: r.queue, DeadLetters: r.dead, Store: twins{r.store}, Scopes: []string{"orders"}}}, &ops.Options{By: "ana"}))
		p := must(two.PlanLetters(r.Context(), spec, asked))
		if p.Of(asked[0]) >= 0 || p.Count(dlq.Leave) != 1 || !strings.Contains(p.Letters[0].Why, "2 scopes have its key and fence") || p.Unknown != 0 {
			t.Errorf("%+v", p.Letters)
		}
		if rep, _, err := two.Replay(r.Context(), p); err != nil || rep.Replayed != 0 {
			t.Errorf("%+v, %v", rep, err)
		}
		r.wantDepths(1, 0)
	})
}
