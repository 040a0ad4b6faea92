package ops_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// TestPurgedLettersComeBack: what a purge wrote is imported with the same ids, keys and fences, and
// importing it twice sends each job once. A line that is torn is named, and the others come back.
func TestPurgedLettersComeBack(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		var fences []uint64
		for i := range 25 {
			fences = append(fences, r.died(fmt.Sprint("k-", i)).Fence)
		}
		var file bytes.Buffer
		spec := ops.PurgeSpec{Queue: "orders", Reason: "x", PurgeOptions: dlq.PurgeOptions{All: true, Export: dlq.ExportJSON(&file)}}
		p := must(r.ops.PlanPurge(r.Context(), spec))
		if rep, _, err := r.ops.Purge(r.Context(), p, spec); err != nil || rep.Purged != 25 {
			t.Fatal(rep, err)
		}
		r.wantDepths(0, 0)
		torn := file.String() + "\n" + file.String()[:40] + "\n"
		for range 2 {
			got, audit, err := r.ops.ImportLetters(r.Context(), "orders", dlq.ImportJSON(strings.NewReader(torn+file.String())), "")
			if err != nil || got.Sent != 25 || len(got.Refused) != 1 || !strings.Contains(got.Refused[0].Error(), "line 27: it is torn") || audit == "" {
				t.Fatal(got, err)
			}
		}
		r.wantDepths(50, 0)
		r.wait(time.Second)
		seen := map[uint64]int{}
		for e, err := range r.ops.Letters(r.Context(), "orders", dlq.Filter{}) {
			if err != nil || e.Copies != 1 || e.Message.Meta.ID != "j-"+e.Ref().Key || (e.Record() != dlq.RecordKey{Scope: "orders:charge", Key: e.Ref().Key}) {
				t.Errorf("%+v, %v", e, err)
			}
			seen[e.Ref().Fence]++
		}
		for _, f := range fences {
			if seen[f] != 1 {
				t.Errorf("fence %d: %d letters", f, seen[f])
			}
		}
		plan := must(r.ops.PlanReplay(r.Context(), ops.ReplaySpec{Queue: "orders", Reason: "x"}))
		if rep, _, err := r.ops.Replay(r.Context(), plan); err != nil || rep.Replayed != 25 || rep.Copies != 25 {
			t.Error(rep, err)
		}
		r.wantDepths(0, 25)
	})
}

// TestImportGoesOn: what is not known to have been sent is sent again; a queue that takes nothing
// ends the import with the number that may be missing.
func TestImportGoesOn(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		m := broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{ID: "j", Key: "A-1", Type: "charge", MaxAttempts: 7, NotBefore: time.Now().Add(time.Hour)}}
		broken := func(yield func(broker.Outgoing, error) bool) {
			_ = yield(m, nil) && yield(broker.Outgoing{}, errors.New("line 2")) && yield(m, nil)
		}
		got, _, err := r.ops.SendBack(r.Context(), "orders", broken, "again")
		if err != nil || got.Sent != 2 || len(got.Refused) != 1 {
			t.Fatal(got, err)
		}
		ms := must(r.queue.Receive(r.Context(), broker.ReceiveOptions{Max: 10}))
		if len(ms) != 2 || ms[0].Meta.ID != "j" || ms[0].Meta.Key != "A-1" || ms[0].Meta.MaxAttempts != 7 || ms[0].Meta.NotBefore.IsZero() {
			t.Errorf("%+v", ms)
		}
		e := r.acts()[0]
		if e.Act != "send back" || e.Reason != "again" || e.Result["sent"] != "2" || e.Result["refused"] != "1" {
			t.Errorf("%+v", e)
		}
		if _, _, err := r.ops.ImportLetters(r.Context(), "mails", broken, ""); !errors.Is(err, ops.ErrUnknownQueue) {
			t.Error(err)
		}
		if got, _, err := r.ops.SendBack(r.Context(), "orders", func(yield func(broker.Outgoing, error) bool) {
			yield(broker.Outgoing{Body: make([]byte, 2<<20), Meta: &broker.Meta{ID: "j", Key: "A-2"}}, nil)
		}, ""); !errors.Is(err, broker.ErrTooLarge) || got.Sent != 0 {
			t.Error(got, err)
		}
	})
}
