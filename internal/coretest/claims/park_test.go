package claims

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// Under Park the handler does not begin before the store has confirmed that it will.
// The rule: under Park the start is recorded before the handler starts.
func TestParkRecordsTheStart(t *testing.T) {
	rig.BothWays(t, func(context.Context, *onceq.Job) error {
		<-time.After(5 * time.Second)
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		if rec := r.Record("a"); r.Seen.Started("a") != 1 || !rec.Started {
			t.Errorf("%d starts, %+v", r.Seen.Started("a"), rec)
		}
		rig.Pass(10 * time.Second)
		r.WantStatus("a", dedupe.Done)
	}, rig.Parks)
}

func TestParkConfirmsTheStart(t *testing.T) {
	for name, fault := range map[string]faulty.Faults{
		"error": faulty.Fail(rig.ErrBoom), "reply lost": faulty.Lose(rig.ErrBoom), "panic": faulty.Panic("store"), "busy": faulty.Fail(dedupe.ErrBusy),
	} {
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Renew, 4, fault) })
				r.Send("a")
				r.Start()
				rig.Pass(20 * time.Millisecond)
				if n := r.Seen.Started("a"); n != 0 {
					t.Errorf("%d starts before the confirmation", n)
				}
				rig.Pass(10 * time.Second)
				if rec := r.Record("a"); rec.Status != dedupe.Done || rec.Attempt != 1 || r.Seen.Started("a") != 1 {
					t.Errorf("%d starts, %+v", r.Seen.Started("a"), rec)
				}
			}, rig.Parks)
		})
	}
}

func TestParkWhenTheStartIsNotConfirmed(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Renew)
		r.Send("a")
		r.Start()
		rig.Pass(time.Minute)
		if got := r.Seen.Outcomes("a"); len(got) == 0 || slices.Contains(got, "parked") {
			t.Errorf("the deliveries ended as %q", got)
		}
		if rec := r.Record("a"); rec.Status == dedupe.Parked || rec.Attempt > 1 {
			t.Errorf("the record is %+v", rec)
		}
		r.NoLetters()
	}, rig.Parks, rig.Most(1))
}

func TestParkWhenTheClaimIsLostBeforeTheStart(t *testing.T) {
	rig.BothWays(t, rig.Never(t), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnRenew = func(rs []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				if rs[0].Started {
					return []dedupe.Renewed{{Err: dedupe.ErrLeaseLost}}
				}
				return as
			}
		})
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.WantOutcomes("a", "lease-lost")
		if n := r.Store.Settles.Load(); n != 0 || r.Q.Acked("a") != 0 || len(r.Q.Delays("a")) != 0 {
			t.Errorf("%d settlements, %d acks, nacks %v", n, r.Q.Acked("a"), r.Q.Delays("a"))
		}
	}, rig.Parks)
}

// A drain that begins, or cuts off, while the start is being confirmed finds the handler not begun.
func TestParkDrainedWhileTheStartIsConfirmed(t *testing.T) {
	for _, drain := range []time.Duration{-1, 20 * time.Second} {
		rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
			r.Store.Set(func(s *rig.Store) { s.Fault = rig.Bads(onceqtest.Renew, 1, faulty.Slow(3*time.Second)) })
			r.Send("a")
			r.Start()
			rig.Pass(time.Second)
			if err := r.Stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			if rec := r.Record("a"); rec.Status != dedupe.Released || rec.Attempt != 0 || rec.Started {
				t.Errorf("the record is %+v", rec)
			}
			if got := r.Q.Delays("a"); !slices.Equal(got, []time.Duration{0}) {
				t.Errorf("nacked with %v", got)
			}
			r.NoLetters()
		}, rig.Parks, rig.Most(1), rig.With(func(c *rig.Setup) { c.DrainTimeout = drain }))
	}
}

// A job that was parked while its end could not be recorded stays parked, also where that end says
// that it may run again: its message is gone, and its letter is what brings it. The record says so.
func TestParkLateRelease(t *testing.T) {
	broken := true
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		if broken {
			return rig.ErrBoom
		}
		return nil
	}, func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle)
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.Store.Fails(rig.ErrBoom, onceqtest.Settle, onceqtest.Renew)
		rig.Pass(time.Minute)
		q := dedupe.ClaimRequest{Key: rig.Key("a"), Token: dedupe.Token{9}, TTL: time.Minute, Policy: dedupe.Park}
		if cs, err := r.Store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.IsParked {
			t.Fatalf("another worker's claim: %+v, %v", cs, err)
		}
		broken = false
		r.Store.Heals()
		rig.Pass(time.Minute)
		if rec := r.Record("a"); rec.Status != dedupe.Parked || rec.ErrClass != dedupe.ClassInterrupted || !strings.HasSuffix(rec.LastErr, "so its letter may be replayed: boom") {
			t.Errorf("the record is %+v", rec)
		}
		r.WantQueue(0)
		r.WantOutcomes("a", "parked")
		m := r.Letter(onceq.ClassInterrupted)
		if !strings.HasSuffix(m.Meta.Dead.LastErr, "replayed: boom") {
			t.Errorf("the letter says %q", m.Meta.Dead.LastErr)
		}
		r.Replay(m)
		rig.Pass(time.Minute)
		r.WantStatus("a", dedupe.Done)
	}, rig.Parks, rig.Steady)
}

// Without Park nothing is written before the handler begins.
func TestRerunWritesNothingBeforeTheStart(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		if n := r.Store.Renews.Load(); n != 0 {
			t.Errorf("%d renewals of a job of no time", n)
		}
	})
}

// A handler that cannot tell whether its effect happened says so; a plain error would be retried.
// Where nobody asked for Park, it is one.
func TestUnknown(t *testing.T) {
	for name, err := range map[string]error{
		"unknown": onceq.Unknown(rig.ErrBoom), "unknown, after": onceq.RetryAfter(time.Second, onceq.Unknown(rig.ErrBoom)),
		"permanent": onceq.Permanent(onceq.Unknown(rig.ErrBoom)),
	} {
		t.Run(name, func(t *testing.T) {
			rig.BothWays(t, rig.Returns(err), func(r *rig.Rig) {
				r.Send("a")
				r.RunFor(time.Minute)
				r.WantOutcomes("a", "parked")
				r.WantStatus("a", dedupe.Parked)
				if d := r.Letter(onceq.ClassInterrupted).Meta.Dead; d.LastErr != rig.ErrBoom.Error() {
					t.Errorf("the letter says %q", d.LastErr)
				}
				r.WantQueue(0)
			}, rig.Parks)
		})
	}
	rig.BothWays(t, rig.Returns(onceq.Unknown(rig.ErrBoom)), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Hour)
		r.Letter(onceq.ClassError)
		if n := r.Seen.Started("a"); n != 3 {
			t.Errorf("%d runs", n)
		}
	}, rig.Most(3))
	if onceq.Unknown(nil) != nil {
		t.Error("Unknown(nil) is not nil")
	}
}
