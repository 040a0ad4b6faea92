package onceq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// A handler may learn of the end before it is told: by a timer of its own for the deadline, as a
// connection has, or from the caller's own context. Under Park that is a cut, not the handler's
// word that nothing happened.
func TestOverdueIsCutOff(t *testing.T) {
	for range 50 { // two timers of one time come in any order
		h := func(ctx context.Context, _ *onceq.Job) error {
			at, _ := ctx.Deadline()
			takes(time.Until(at))
			return errBoom
		}
		bubble(t, h, func(r *rig) {
			r.send("a")
			r.run(time.Minute)
			r.letter(onceq.ClassInterrupted)
			r.wantStatus("a", dedupe.Parked)
		}, parks, with(func(c *setup) { c.Defaults.Timeout = time.Second }))
	}
}

func TestDoOverdueIsCutOff(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context) func(context.Context, *onceq.Job) (int, error){
		"the caller's context": func(outer context.Context) func(context.Context, *onceq.Job) (int, error) {
			return func(context.Context, *onceq.Job) (int, error) { <-outer.Done(); return 0, errBoom }
		},
		"its deadline": func(outer context.Context) func(context.Context, *onceq.Job) (int, error) {
			return func(ctx context.Context, _ *onceq.Job) (int, error) {
				at, _ := ctx.Deadline()
				takes(time.Until(at))
				return 0, errBoom
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 200 {
				bubbleDo(t, func(d *doer) {
					ctx, cancel := context.WithTimeout(d.Context(), time.Second)
					defer cancel()
					_, err := onceq.Do(ctx, d.p, dedupe.Key{Key: "a"}, nil, f(ctx))
					if parked := new(onceq.ParkedError); !errors.As(err, &parked) || parked.Class != onceq.ClassInterrupted {
						t.Fatalf("call %d: %v", i, err)
					}
				}, parks)
			}
		})
	}
}

// nil is done and Permanent failed, however late.
func TestOverdueChangesNothingElse(t *testing.T) {
	bubbleDo(t, func(d *doer) {
		late := func(says error) func(context.Context, *onceq.Job) (int, error) {
			return func(context.Context, *onceq.Job) (int, error) { takes(time.Second); return 1, says }
		}
		o := &onceq.DoOptions{Timeout: time.Second}
		v, err := d.do("done", o, late(nil))
		d.wants("nil", v, err, 1, nil)
		v, err = d.do("failed", o, late(onceq.Permanent(errBoom)))
		d.wants("Permanent", v, err, 1, errBoom)
		d.wantStatus("failed", dedupe.Failed)
		v, err = d.do("released", o, late(errBoom))
		d.wants("an error", v, err, 1, errBoom)
		if rec := d.record("released"); rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassTimeout {
			t.Errorf("the record is %+v", rec)
		}
	})
}

// The caller's context has no deadline, and ends while f looks at it.
func TestDoCallerGoneUnnoticed(t *testing.T) {
	for i := range 200 {
		bubbleDo(t, func(d *doer) {
			ctx, cancel := context.WithCancel(d.Context())
			_, err := onceq.Do(ctx, d.p, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) {
				cancel()
				return 0, errBoom
			})
			if parked := new(onceq.ParkedError); !errors.As(err, &parked) {
				t.Fatalf("call %d: %v", i, err)
			}
		}, parks)
	}
}

// A delivery under Park waits for the confirmation of its start as long as its lease lives. Only
// Do's caller need not wait for so long.
func TestDeliveryWaitsForItsStart(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Renew)
		r.send("a")
		r.start()
		pass(15 * time.Second)
		r.store.heals()
		pass(15 * time.Second)
		r.wantOutcomes("a", "done")
	}, parks)
}
