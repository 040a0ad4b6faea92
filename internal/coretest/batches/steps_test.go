package batches

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// TestStepsInBatches: as Lambda and push bring it, a job goes on after its saved steps, whether it
// was postponed or its batch had no time left. What is put off beyond Keeps becomes a letter, and
// its replay goes on.
func TestStepsInBatches(t *testing.T) {
	charges, runs := 0, 0
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		id, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { charges++; return 17, nil })
		if err != nil || id != 17 {
			t.Errorf("the step answers %d, %v", id, err)
		}
		switch runs++; runs {
		case 1:
			return onceq.Postpone(time.Minute, nil)
		case 2:
			<-ctx.Done()
			return ctx.Err()
		case 3:
			return onceq.Postpone(25*time.Hour, nil)
		}
		return nil
	}, func(r *rig.Rig) {
		got := r.Process(r.Context(), rig.Deliveries("a")...)
		r.WantEnds(got, "postponed")
		if d := got[0]; d.Action != onceq.Nack || d.Delay != time.Minute {
			r.Errorf("the message's disposition is %+v", d)
		}
		rig.Pass(time.Minute)
		ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
		defer cancel()
		r.WantEnds(r.Process(ctx, rig.Lasting(time.Minute, "a")...), "handed-back")
		r.WantEnds(r.Process(r.Context(), rig.Deliveries("a")...), "failed")
		m := r.Letter(onceq.ClassTooEarly)
		if m.Meta.Dead.Saved != "charge" {
			r.Errorf("the letter says %+v", m.Meta.Dead)
		}
		r.WantEnds(r.Process(r.Context(), onceq.Delivery{Message: m}), "done")
		r.WantStatus("a", dedupe.Done)
		if charges != 1 || runs != 4 {
			r.Errorf("%d charges in %d runs", charges, runs)
		}
	})
}
