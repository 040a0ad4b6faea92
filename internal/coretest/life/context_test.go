package life

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// The handler's context is made when somebody first waits on it. Every context that is derived from
// it, early or late, must learn its end and its cause.
func TestContextsDerivedFromTheHandlers(t *testing.T) {
	type name struct{}
	derive := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"itself":     func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"WithCancel": context.WithCancel,
		"WithValue": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, name{}, 1), func() {}
		},
		"WithTimeout": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
		"WithDeadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Now().Add(time.Hour))
		},
		"both": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.WithValue(ctx, name{}, 1), time.Hour)
		},
	}
	for n, d := range derive {
		for _, late := range []bool{false, true} {
			h := func(ctx context.Context, _ *onceq.Job) error {
				if late { // the end comes before anybody waits
					rig.Takes(11 * time.Second)
					if !errors.Is(ctx.Err(), context.Canceled) {
						t.Errorf("%s: Err is %v after the end", n, ctx.Err())
					}
				}
				if at, ok := ctx.Deadline(); !ok || (!late && time.Until(at) != 10*time.Second) {
					t.Errorf("%s: the deadline is %v, %v", n, at, ok)
				}
				c, cancel := d(ctx)
				defer cancel()
				after := make(chan struct{})
				context.AfterFunc(c, func() { close(after) })
				<-c.Done()
				<-after
				if !errors.Is(context.Cause(c), onceq.ErrTimeout) || c.Err() == nil {
					t.Errorf("%s: %v, the cause is %v", n, c.Err(), context.Cause(c))
				}
				if context.WithoutCancel(ctx).Err() != nil {
					t.Errorf("%s: WithoutCancel has ended", n)
				}
				return nil
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Send("a")
				r.RunFor(20 * time.Second)
				r.WantStatus("a", dedupe.Done)
			}, rig.With(func(c *rig.Setup) { c.Defaults.Timeout = 10 * time.Second }))
		}
	}
}

// What a handler leaves behind must not run on for ever.
func TestContextEndsWithTheHandler(t *testing.T) {
	left := make(chan error, 1)
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		go func() {
			<-ctx.Done()
			left <- ctx.Err()
		}()
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		select {
		case err := <-left:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("the context is still open after the handler's return")
		}
	})
}

func TestContextHasNoDeadlineWithoutATimeout(t *testing.T) {
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		if at, ok := ctx.Deadline(); ok {
			return onceq.Permanent(fmt.Errorf("the deadline is %v", at))
		}
		return ctx.Err()
	}, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.WantStatus("a", dedupe.Done)
	})
}

func TestFirstCauseStays(t *testing.T) {
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		<-ctx.Done()
		rig.Takes(6 * time.Second) // meanwhile the worker's drain cuts off
		if !errors.Is(context.Cause(ctx), onceq.ErrTimeout) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		return ctx.Err()
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(9 * time.Second)
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if rec := r.Record("a"); rec.ErrClass != onceq.ClassTimeout || rec.Attempt != 1 {
			t.Errorf("the record is %+v: a timeout counts, though the drain came after it", rec)
		}
	}, rig.With(func(c *rig.Setup) { c.Defaults.Timeout, c.DrainTimeout = 10*time.Second, 5*time.Second }))
}

func TestHandlerSeesTheValuesOfRunsContext(t *testing.T) {
	type name struct{}
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		if ctx.Value(name{}) != "value" {
			return rig.ErrBoom
		}
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), name{}, "value"), time.Second)
		defer cancel()
		if err := r.W.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.WantStatus("a", dedupe.Done)
	})
}
