package ops_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// older is a store that does not know Query.After.
type older struct{ dedupe.Store }

func (s older) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	q.After = dedupe.Key{}
	return s.Store.List(ctx, q)
}

// TestKeysOfAnOlderStore: pages of records come also from a store that does not know After, and
// onceq's own records are on none of them.
func TestKeysOfAnOlderStore(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		r.died("a") // its act, seat and locks would be records, too
		r.died("b")
		r.died("c")
		must(r.ops.Act(r.Context(), ops.ActSpec{Queue: "orders", Act: "look", Reason: "x"}, func(context.Context) (map[string]string, error) { return nil, nil }))
		o := must(ops.New([]ops.Target{{Name: "orders", Store: older{r.store}}}, nil))
		var got []string
		q := dedupe.Query{Limit: 2}
		for range 4 {
			for rec, err := range o.Keys(r.Context(), "orders", ops.KeysQuery{Query: q, Scan: true}) {
				if err != nil {
					t.Fatal(err)
				}
				got, q.After = append(got, rec.Key.Key), rec.Key
			}
		}
		if strings.Join(got, " ") != "a b c" {
			t.Error(got)
		}
	})
}

// TestFailing: the share is that of the last minute, and nobody knows one where nothing has ended.
func TestFailing(t *testing.T) {
	for _, c := range []struct {
		minute *control.Runs
		share  float64
		ok     bool
	}{{nil, 0, false}, {&control.Runs{}, 0, false}, {&control.Runs{Runs: 8, Errors: 2}, 0.25, true}, {&control.Runs{Runs: 3}, 0, true}} {
		w := ops.SumUp([]ops.WorkerState{{State: "running", Status: &control.WorkerStatus{Minute: c.minute, Outcomes: map[string]uint64{"failed": 1000}}}})
		if share, ok := w.Failing(); share != c.share || ok != c.ok {
			t.Errorf("%+v: %v %v", c.minute, share, ok)
		}
	}
}

// TestKeyOfAnothersReplay: the audit has a queue's name as its workers have it. A replay of a queue
// that is known by the name of this target is not this one's, and one of its own is.
func TestKeyOfAnothersReplay(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		o := must(ops.New([]ops.Target{{Name: "orders", Known: "orders-2", Store: r.store}, {Name: "old", Known: "orders", Store: r.store}}, &ops.Options{By: "ana"}))
		l := r.died("a")
		show := func() *ops.AuditEntry {
			return must(o.Key(r.Context(), "orders", l.Key, ops.KeyOptions{})).Replayed
		}
		for _, of := range []string{"old", "orders"} {
			if e := show(); e != nil {
				t.Errorf("before its own replay: %+v", e)
			}
			must(o.Act(r.Context(), ops.ActSpec{Queue: of, Act: string(dlq.ActReplay), Reason: of}, func(context.Context) (map[string]string, error) {
				return map[string]string{"sent": "1"}, nil
			}))
		}
		if e := show(); e == nil || e.Reason != "orders" {
			t.Errorf("after its own replay: %+v", e)
		}
	})
}
