package life

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func TestGroupsRunInOrder(t *testing.T) {
	for _, p := range rig.Ordered {
		t.Run(p.String(), func(t *testing.T) {
			var d rig.Diary
			h := func(_ context.Context, j *onceq.Job) error {
				d.Write(t, j)
				defer d.Left(j)
				rig.Takes(time.Second)
				if j.Attempt == 1 && strings.HasSuffix(string(j.Message.Body), "3") {
					return onceq.RetryAfter(5*time.Second, rig.ErrBoom)
				}
				return nil
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Send(rig.Grouped(5, 20)...)
				r.RunFor(10 * time.Minute)
				for g := range 5 {
					got := d.Keys(string(rune('a' + g)))
					if !slices.IsSorted(got) || len(got) != 22 {
						t.Errorf("group %c ran as %q", 'a'+g, got)
					}
				}
				r.WantQueue(0)
			}, rig.Preset(p))
		})
	}
}

func TestFailedHeadHoldsItsFollowersAndNoOthers(t *testing.T) {
	for _, p := range rig.Ordered {
		t.Run(p.String(), func(t *testing.T) {
			var d rig.Diary
			h := func(_ context.Context, j *onceq.Job) error {
				d.Write(t, j)
				defer d.Left(j)
				if string(j.Message.Body) == "a00" && j.Attempt < 4 {
					return onceq.RetryAfter(time.Minute, rig.ErrBoom)
				}
				return nil
			}
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Send(rig.Grouped(3, 4)...)
				r.Start()
				rig.Pass(30 * time.Second)
				if got := d.Keys("a"); !slices.Equal(got, []string{"a00"}) {
					t.Errorf("group a ran as %q", got)
				}
				for _, g := range []string{"b", "c"} {
					if got := d.Keys(g); len(got) != 4 {
						t.Errorf("group %s ran as %q", g, got)
					}
				}
				for _, k := range []string{"a01", "a02", "a03"} {
					for _, delay := range r.Q.Delays(k) {
						if delay != 0 {
							t.Errorf("the follower %q was handed back for %v", k, delay)
						}
					}
				}
				rig.Pass(10 * time.Minute)
				if got := d.Keys("a"); !slices.Equal(got, []string{"a00", "a00", "a00", "a00", "a01", "a02", "a03"}) {
					t.Errorf("group a ran as %q", got)
				}
				r.WantQueue(0)
			}, rig.Preset(p))
		})
	}
}

func TestHeadInProgressHoldsItsGroup(t *testing.T) {
	var d rig.Diary
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error { d.Write(t, j); defer d.Left(j); return nil }, func(r *rig.Rig) {
		q := r.Store.Occupy(t, "a00", 20*time.Second, dedupe.Rerun)
		r.Send("a/a00", "a/a01")
		r.Start()
		rig.Pass(10 * time.Second)
		if len(d.Keys("a")) != 0 {
			t.Errorf("ran %q", d.Keys("a"))
		}
		r.Store.EndClaim(t, q, dedupe.Settlement{To: dedupe.Done})
		rig.Pass(time.Minute)
		if got := d.Keys("a"); !slices.Equal(got, []string{"a01"}) {
			t.Errorf("ran %q", got)
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO))
}

func TestLetterLetsTheGroupGoOn(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) == "bad" {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}, func(r *rig.Rig) {
		r.Send("g/one", "g/bad", "g/two")
		r.RunFor(time.Minute)
		r.WantStatus("two", dedupe.Done)
		r.Letter(onceq.ClassPermanent)
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO))
}

func TestHoldGroup(t *testing.T) {
	var mended atomic.Bool
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) == "bad" && !mended.Load() || string(j.Message.Body) == "alone" {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}, func(r *rig.Rig) {
		r.Send("g/one", "g/bad", "g/two", "h/other")
		r.Start()
		rig.Pass(59 * time.Minute)
		r.WantStatus("one", dedupe.Done)
		r.WantStatus("bad", dedupe.Released)
		r.WantStatus("two", 0)
		r.WantStatus("other", dedupe.Done)
		r.NoLetters()
		if n := r.Logged.Count("stays in the queue"); n == 0 {
			t.Error("nobody was told")
		}
		mended.Store(true)
		rig.Pass(2 * time.Minute)
		r.WantStatus("bad", dedupe.Done)
		r.WantStatus("two", dedupe.Done)
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO), rig.With(func(c *rig.Setup) { c.HoldGroup = true }))
}

// What cannot even be claimed holds its group as well.
func TestHoldGroupOfWhatIsRefused(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		bad := rig.Message("\xff")
		bad.Group = "g"
		r.PutRaw(bad)
		r.Send("g/next")
		r.Start()
		rig.Pass(time.Hour)
		r.NoLetters()
		r.WantStatus("next", 0)
		r.WantQueue(2)
	}, rig.With(func(c *rig.Setup) { c.HoldGroup = true }))
}

func TestHoldGroupWithoutAGroup(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(time.Second)
		r.Letter(onceq.ClassPermanent)
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.HoldGroup = true }))
}

// On a queue that does not order groups, a group is only a label.
func TestGroupsOfAStandardQueueRunAtOnce(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(10 * time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("g/a", "g/b", "g/c")
		r.RunFor(10 * time.Second)
		for _, k := range []string{"a", "b", "c"} {
			r.WantStatus(k, dedupe.Done)
		}
	}, rig.Preset(membroker.SQSStandard))
}

// A follower that loses its delivery while it waits must not leave those behind it waiting for
// ever.
func TestFollowerLosesItsDelivery(t *testing.T) {
	var d rig.Diary
	h := func(_ context.Context, j *onceq.Job) error {
		d.Write(t, j)
		defer d.Left(j)
		rig.Takes(5 * time.Minute)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("g/a00", "g/a01", "g/a02", "g/a03")
		r.Start()
		rig.Pass(time.Second)
		r.Q.Expire(t, "a01")
		rig.Pass(60 * time.Minute)
		if got := d.Keys("a"); !slices.Equal(got, []string{"a00", "a01", "a02", "a03"}) {
			t.Errorf("ran %q", got)
		}
		r.WantQueue(0)
	})
}

func TestLostDeliveryWhileClaiming(t *testing.T) {
	for _, group := range []string{"", "g/"} {
		rig.Bubble(t, rig.Works(time.Minute), func(r *rig.Rig) {
			r.Store.Set(func(s *rig.Store) {
				s.Fault = func(c onceqtest.Call) faulty.Faults {
					if c.Op == onceqtest.Claim && c.N == 1 {
						return faulty.Slow(20 * time.Second)
					}
					return nil
				}
			})
			r.Send(group + "a")
			r.Start()
			rig.Pass(time.Second)
			r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend && c.N == 1 {
					return faulty.Fail(broker.ErrReceiptExpired)
				}
				return nil
			})
			rig.Pass(20 * time.Minute)
			r.WantStatus("a", dedupe.Done)
			r.WantQueue(0)
			if n := r.Seen.Started("a"); n != 1 {
				t.Errorf("group %q: %d runs", group, n)
			}
			// The group's order goes by its deliveries, so its job waits for the next one. Another
			// goes on under its claim, with the next delivery's receipt.
			if group != "" {
				r.WantOutcomes("a", "handed-back", "done")
			} else {
				r.WantOutcomes("a", "handed-over", "done")
			}
		}, rig.With(func(c *rig.Setup) { c.CallTimeout = 25 * time.Second }))
	}
}

func TestDrainHandsGroupsBackInOrder(t *testing.T) {
	var d rig.Diary
	h := func(_ context.Context, j *onceq.Job) error {
		d.Write(t, j)
		defer d.Left(j)
		rig.Takes(10 * time.Second)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send(rig.Grouped(4, 5)...)
		for range 30 {
			r.RunFor(3 * time.Second)
		}
		for g := range 4 {
			if got := d.Keys(string(rune('a' + g))); !slices.IsSorted(got) || len(got) != 5 {
				t.Errorf("group %c ran as %q", 'a'+g, got)
			}
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO))
}

func TestPauseAndResume(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(30 * time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send(rig.Numbered("k", 15)...)
		r.Start()
		rig.Pass(time.Second)
		r.W.Pause()
		rig.Pass(time.Second)
		if d, _ := r.Q.Depth(r.Context()); d.InFlight != 10 || d.Visible != 5 {
			t.Errorf("paused, and the queue is %+v; want 10 in flight and 5 given back", d)
		}
		rig.Pass(10 * time.Minute)
		if n := len(r.Seen.Outcomes("k000")); n != 1 || r.Record("k000").Status != dedupe.Done {
			t.Errorf("a running handler was stopped: %d ends", n)
		}
		started := 0
		for _, k := range rig.Numbered("k", 15) {
			started += r.Seen.Started(k)
		}
		if started != 10 {
			t.Errorf("%d jobs were started, want 10", started)
		}
		r.WantQueue(5)
		r.W.Resume()
		rig.Pass(time.Minute)
		r.WantQueue(0)
	})
}

// A claim that is on its way when the pause begins starts nothing: it goes back, uncounted.
func TestPauseAmidAClaim(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Store.OnClaim = func(_ []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim { rig.Takes(time.Second); return cs }
		r.Send("a")
		r.Start()
		rig.Pass(500 * time.Millisecond)
		r.W.Pause()
		rig.Pass(time.Minute)
		if n := r.Seen.Started("a"); n != 0 {
			t.Errorf("%d starts during the pause", n)
		}
		r.WantStatus("a", dedupe.Released)
		r.WantOutcomes("a", "handed-back")
		r.W.Resume()
		rig.Pass(time.Minute)
		if rec := r.Record("a"); rec.Status != dedupe.Done || rec.Attempt != 1 {
			t.Errorf("the record is %+v", rec)
		}
	})
}

func TestPauseBeforeRun(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Q.OnReceive = func(ms []*broker.Message) []*broker.Message { rig.Takes(time.Second); return ms }
		r.W.Pause()
		r.Send("a")
		r.Start()
		rig.Pass(time.Hour)
		r.WantStatus("a", 0)
		if n := r.Q.Received("a"); n != 0 {
			t.Errorf("%d receives", n)
		}
		r.W.Resume()
		rig.Pass(2 * time.Second)
		r.WantStatus("a", dedupe.Done)
		r.W.Resume()
	})
}

// pausing is an Observer that calls the Worker.
type pausing struct{ w *onceq.Worker }

func (p *pausing) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (p *pausing) JobEnded(context.Context, *onceq.JobReport)                   { p.w.Pause() }

func TestPauseFromTheObserver(t *testing.T) {
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		o := &pausing{}
		r.Cfg.Observer = o
		r.Cfg.Concurrency = 2
		r.W = r.Worker(nil)
		o.w = r.W
		r.Send(rig.Numbered("k", 20)...)
		r.Start()
		rig.Pass(time.Minute)
		r.W.Pause()
		r.WantQueue(20)
	})
}
