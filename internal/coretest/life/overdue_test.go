package life

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

// A handler may learn of the end before it is told: by a timer of its own for the deadline, as a
// connection has, or from the caller's own context. Under Park that is a cut, not the handler's
// word that nothing happened.
func TestOverdueIsCutOff(t *testing.T) {
	for range 50 { // two timers of one time come in any order
		h := func(ctx context.Context, _ *onceq.Job) error {
			at, _ := ctx.Deadline()
			rig.Takes(time.Until(at))
			return rig.ErrBoom
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Send("a")
			r.RunFor(time.Minute)
			r.Letter(onceq.ClassInterrupted)
			r.WantStatus("a", dedupe.Parked)
		}, rig.Parks, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = time.Second }))
	}
}

func TestDoOverdueIsCutOff(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context) func(context.Context, *onceq.Job) (int, error){
		"the caller's context": func(outer context.Context) func(context.Context, *onceq.Job) (int, error) {
			return func(context.Context, *onceq.Job) (int, error) { <-outer.Done(); return 0, rig.ErrBoom }
		},
		"its deadline": func(outer context.Context) func(context.Context, *onceq.Job) (int, error) {
			return func(ctx context.Context, _ *onceq.Job) (int, error) {
				at, _ := ctx.Deadline()
				rig.Takes(time.Until(at))
				return 0, rig.ErrBoom
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 200 {
				rig.BubbleDo(t, func(d *rig.Doer) {
					ctx, cancel := context.WithTimeout(d.Context(), time.Second)
					defer cancel()
					_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, nil, f(ctx))
					if parked := new(onceq.ParkedError); !errors.As(err, &parked) || parked.Class != onceq.ClassInterrupted {
						t.Fatalf("call %d: %v", i, err)
					}
				}, rig.Parks)
			}
		})
	}
}

// nil is done and Permanent failed, however late.
func TestOverdueChangesNothingElse(t *testing.T) {
	rig.BubbleDo(t, func(d *rig.Doer) {
		late := func(says error) func(context.Context, *onceq.Job) (int, error) {
			return func(context.Context, *onceq.Job) (int, error) { rig.Takes(time.Second); return 1, says }
		}
		o := &onceq.DoOptions{Timeout: time.Second}
		v, err := d.Do("done", o, late(nil))
		d.Wants("nil", v, err, 1, nil)
		v, err = d.Do("failed", o, late(onceq.Permanent(rig.ErrBoom)))
		d.Wants("Permanent", v, err, 1, rig.ErrBoom)
		d.WantStatus("failed", dedupe.Failed)
		v, err = d.Do("released", o, late(rig.ErrBoom))
		d.Wants("an error", v, err, 1, rig.ErrBoom)
		if rec := d.Record("released"); rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassTimeout {
			t.Errorf("the record is %+v", rec)
		}
	})
}

// The caller's context has no deadline, and ends while f looks at it.
func TestDoCallerGoneUnnoticed(t *testing.T) {
	for i := range 200 {
		rig.BubbleDo(t, func(d *rig.Doer) {
			ctx, cancel := context.WithCancel(d.Context())
			_, err := onceq.Do(ctx, d.P, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) {
				cancel()
				return 0, rig.ErrBoom
			})
			if parked := new(onceq.ParkedError); !errors.As(err, &parked) {
				t.Fatalf("call %d: %v", i, err)
			}
		}, rig.Parks)
	}
}

// A delivery under Park waits for the confirmation of its start as long as its lease lives. Only
// Do's caller need not wait for so long.
func TestDeliveryWaitsForItsStart(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Renew)
		r.Send("a")
		r.Start()
		rig.Pass(15 * time.Second)
		r.Store.Heals()
		rig.Pass(15 * time.Second)
		r.WantOutcomes("a", "done")
	}, rig.Parks)
}
