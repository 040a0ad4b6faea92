package pubsubpush_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	rigs "github.com/onceq/onceq/internal/rig"
)

// A drain lets what runs end, and takes nothing new.
func TestDrain(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.occupy("ok", time.Hour)
		begin := time.Now()
		slow, waits := r.later(job("slow")), r.later(job("ok"))
		rigs.Takes(time.Second)
		ended := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(r.Context(), 9*time.Second)
			defer cancel()
			ended <- r.h.Shutdown(ctx)
		}()
		r.want(<-waits, http.StatusConflict)
		r.took(begin, time.Second, time.Second)
		r.want(r.push(job("new")), http.StatusServiceUnavailable)
		r.want(<-slow, 204)
		if err := <-ended; err != nil {
			r.Error(err)
		}
		r.took(begin, 5*time.Second, 5*time.Second)
		if s.of("new") != 0 {
			r.Error("what came in the drain ran")
		}
		if err := r.h.Shutdown(r.Context()); err != nil {
			r.Errorf("a second Shutdown: %v", err)
		}
	})
}

// Near the end of the drain's time handlers are cut off, and their jobs handed back uncounted.
func TestDrainCutsOff(t *testing.T) {
	for _, c := range []struct{ within, reserve, cut time.Duration }{
		{9 * time.Second, 0, 6750 * time.Millisecond}, // Cloud Run's ten seconds
		{9 * time.Second, time.Second, 8 * time.Second},
		{time.Minute, 0, 55 * time.Second},
	} {
		var s runs
		bubble(t, s.Handle, func(r *rig) {
			r.o.AckDeadline, r.o.Reserve = 600*time.Second, c.reserve
			begin, status := time.Now(), r.later(job("cut"))
			rigs.Takes(time.Second)
			ctx, cancel := context.WithTimeout(r.Context(), c.within)
			defer cancel()
			if err := r.h.Shutdown(ctx); err != nil {
				r.Error(err)
			}
			r.took(begin, c.cut+time.Second, c.cut+time.Second)
			r.want(<-status, 503)
			if rec := r.record("cut"); rec.Attempt != 0 || rec.Status == dedupe.Claimed {
				r.Errorf("the record is %+v, want it free and uncounted", rec)
			}
		})
	}
}

// A handler that ignores its context does not hold the drain beyond its time.
func TestDrainEnds(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.o.AckDeadline = 600 * time.Second
		r.later(job("deaf"))
		rigs.Takes(time.Second)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), 9*time.Second)
		defer cancel()
		if err := r.h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			r.Error(err)
		}
		r.took(begin, 9*time.Second, 9*time.Second)
		rigs.Takes(2 * time.Hour)
	})
}

// Without a deadline a drain waits for the handlers, until its context is cancelled.
func TestDrainWithoutDeadline(t *testing.T) {
	var s runs
	bubble(t, s.Handle, func(r *rig) {
		r.o.AckDeadline = 600 * time.Second
		status := r.later(job("long"))
		rigs.Takes(time.Second)
		if err := r.h.Shutdown(r.Context()); err != nil {
			r.Error(err)
		}
		r.want(<-status, 204)
		r.h = nil
		status = r.later(job("cut"))
		rigs.Takes(time.Second)
		ctx, cancel := context.WithCancelCause(r.Context())
		go func() { rigs.Takes(3 * time.Second); cancel(errBoom) }()
		if err := r.h.Shutdown(ctx); !errors.Is(err, errBoom) {
			r.Error(err)
		}
		r.want(<-status, 503)
	})
}

// A Shutdown that finds each request answered succeeds, even with a context that has ended.
func TestDrainOfNothing(t *testing.T) {
	bubble(t, new(runs).Handle, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		h := r.handler()
		for range 100 {
			if err := h.Shutdown(ctx); err != nil {
				r.Fatal(err)
			}
		}
	})
}
