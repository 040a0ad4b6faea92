package onceq_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// Under Park the handler does not begin before the store has confirmed that it will.
func TestParkConfirmsTheStart(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{
		"error": faulty.Fail(errBoom), "reply lost": faulty.Lose(errBoom), "panic": faulty.Panic("store"), "busy": faulty.Fail(dedupe.ErrBusy),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				r.store.set(func(s *store) { s.fault = bads(onceqtest.Renew, 4, fault) })
				r.send("a")
				r.start()
				pass(20 * time.Millisecond)
				if n := r.seen.started("a"); n != 0 {
					t.Errorf("%d starts before the confirmation", n)
				}
				pass(10 * time.Second)
				if rec := r.record("a"); rec.Status != dedupe.Done || rec.Attempt != 1 || r.seen.started("a") != 1 {
					t.Errorf("%d starts, %+v", r.seen.started("a"), rec)
				}
			}, parks)
		})
	}
}

func TestParkWhenTheStartIsNotConfirmed(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Renew)
		r.send("a")
		r.start()
		pass(time.Minute)
		if got := r.seen.outcomes("a"); len(got) == 0 || slices.Contains(got, "parked") {
			t.Errorf("the deliveries ended as %q", got)
		}
		if rec := r.record("a"); rec.Status == dedupe.Parked || rec.Attempt > 1 {
			t.Errorf("the record is %+v", rec)
		}
		r.noLetters()
	}, parks, most(1))
}

func TestParkWhenTheClaimIsLostBeforeTheStart(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.store.set(func(s *store) {
			s.onRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				if rs[0].Started {
					return []dedupe.Renewed{{Err: dedupe.ErrLeaseLost}}
				}
				return as
			}
		})
		r.send("a")
		r.start()
		pass(time.Second)
		r.wantOutcomes("a", "lease-lost")
		if n := r.store.settles.Load(); n != 0 || r.q.acked("a") != 0 || len(r.q.delays("a")) != 0 {
			t.Errorf("%d settlements, %d acks, nacks %v", n, r.q.acked("a"), r.q.delays("a"))
		}
	}, parks)
}

// A drain that begins, or cuts off, while the start is being confirmed finds the handler not begun.
func TestParkDrainedWhileTheStartIsConfirmed(t *testing.T) {
	for _, drain := range []time.Duration{-1, 20 * time.Second} {
		bubble(t, never(t), func(r *rig) {
			r.store.set(func(s *store) { s.fault = bads(onceqtest.Renew, 1, faulty.Slow(3*time.Second)) })
			r.send("a")
			r.start()
			pass(time.Second)
			if err := r.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			if rec := r.record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 || rec.Started {
				t.Errorf("the record is %+v", rec)
			}
			if got := r.q.delays("a"); !slices.Equal(got, []time.Duration{0}) {
				t.Errorf("nacked with %v", got)
			}
			r.noLetters()
		}, parks, most(1), with(func(c *setup) { c.DrainTimeout = drain }))
	}
}

// A job that was parked while its end could not be recorded stays parked, also where that end says
// that it may run again: its message is gone, and its letter is what brings it. The record says so.
func TestParkLateRelease(t *testing.T) {
	broken := true
	bubble(t, func(context.Context, *onceq.Job) error {
		if broken {
			return errBoom
		}
		return nil
	}, func(r *rig) {
		r.store.fails(errBoom, onceqtest.Settle)
		r.send("a")
		r.start()
		pass(time.Second)
		r.store.fails(errBoom, onceqtest.Settle, onceqtest.Renew)
		pass(time.Minute)
		q := dedupe.ClaimRequest{Key: key("a"), Token: dedupe.Token{9}, TTL: time.Minute, Policy: dedupe.Park}
		if cs, err := r.store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.IsParked {
			t.Fatalf("another worker's claim: %+v, %v", cs, err)
		}
		broken = false
		r.store.heals()
		pass(time.Minute)
		if rec := r.record("a"); rec.Status != dedupe.Parked || rec.ErrClass != dedupe.ClassInterrupted || !strings.HasSuffix(rec.LastErr, "so its letter may be replayed: boom") {
			t.Errorf("the record is %+v", rec)
		}
		r.wantQueue(0)
		r.wantOutcomes("a", "parked")
		m := r.letter(onceq.ClassInterrupted)
		if !strings.HasSuffix(m.Meta.Dead.LastErr, "replayed: boom") {
			t.Errorf("the letter says %q", m.Meta.Dead.LastErr)
		}
		r.replay(m)
		pass(time.Minute)
		r.wantStatus("a", dedupe.Done)
	}, parks, steady)
}

// Without Park nothing is written before the handler begins.
func TestRerunWritesNothingBeforeTheStart(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.send("a")
		r.run(time.Second)
		if n := r.store.renews.Load(); n != 0 {
			t.Errorf("%d renewals of a job of no time", n)
		}
	})
}

// A handler that cannot tell whether its effect happened says so; a plain error would be retried.
// Where nobody asked for Park, it is one.
func TestUnknown(t *testing.T) {
	for name, err := range map[string]error{
		"unknown": onceq.Unknown(errBoom), "unknown, after": onceq.RetryAfter(time.Second, onceq.Unknown(errBoom)),
		"permanent": onceq.Permanent(onceq.Unknown(errBoom)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, returns(err), func(r *rig) {
				r.send("a")
				r.run(time.Minute)
				r.wantOutcomes("a", "parked")
				r.wantStatus("a", dedupe.Parked)
				if d := r.letter(onceq.ClassInterrupted).Meta.Dead; d.LastErr != errBoom.Error() {
					t.Errorf("the letter says %q", d.LastErr)
				}
				r.wantQueue(0)
			}, parks)
		})
	}
	bubble(t, returns(onceq.Unknown(errBoom)), func(r *rig) {
		r.send("a")
		r.run(time.Hour)
		r.letter(onceq.ClassError)
		if n := r.seen.started("a"); n != 3 {
			t.Errorf("%d runs", n)
		}
	}, most(3))
	if onceq.Unknown(nil) != nil {
		t.Error("Unknown(nil) is not nil")
	}
}
