package onceq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// diary notes what ran, in order.
type diary struct {
	mu  sync.Mutex
	ran []string
	now map[string]int // handlers at work, by group
}

// write notes the run, and complains when two of a group run at once.
func (d *diary) write(t *testing.T, j *onceq.Job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		d.now = make(map[string]int)
	}
	g := j.Message.Group
	if d.now[g]++; d.now[g] > 1 && g != "" {
		t.Errorf("two of group %q run at once", g)
	}
	d.ran = append(d.ran, string(j.Message.Body))
}

func (d *diary) ends(j *onceq.Job) {
	d.mu.Lock()
	d.now[j.Message.Group]--
	d.mu.Unlock()
}

func (d *diary) of(group string) (ks []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.ran {
		if strings.HasPrefix(k, group) {
			ks = append(ks, k)
		}
	}
	return ks
}

func grouped(groups, each int) (texts []string) {
	for i := range each {
		for g := range groups {
			texts = append(texts, fmt.Sprintf("%c/%c%02d", 'a'+g, 'a'+g, i))
		}
	}
	return texts
}

var ordered = []membroker.Preset{membroker.Memory, membroker.SQSFIFO, membroker.PubSub}

func TestGroupsRunInOrder(t *testing.T) {
	for _, p := range ordered {
		t.Run(p.String(), func(t *testing.T) {
			var d diary
			h := func(_ context.Context, j *onceq.Job) error {
				d.write(t, j)
				defer d.ends(j)
				takes(time.Second)
				if j.Attempt == 1 && strings.HasSuffix(string(j.Message.Body), "3") {
					return onceq.RetryAfter(5*time.Second, errBoom)
				}
				return nil
			}
			bubble(t, h, func(r *rig) {
				r.send(grouped(5, 20)...)
				r.run(10 * time.Minute)
				for g := range 5 {
					got := d.of(string(rune('a' + g)))
					if !slices.IsSorted(got) || len(got) != 22 {
						t.Errorf("group %c ran as %q", 'a'+g, got)
					}
				}
				r.wantQueue(0)
			}, preset(p))
		})
	}
}

func TestFailedHeadHoldsItsFollowersAndNoOthers(t *testing.T) {
	for _, p := range ordered {
		t.Run(p.String(), func(t *testing.T) {
			var d diary
			h := func(_ context.Context, j *onceq.Job) error {
				d.write(t, j)
				defer d.ends(j)
				if string(j.Message.Body) == "a00" && j.Attempt < 4 {
					return onceq.RetryAfter(time.Minute, errBoom)
				}
				return nil
			}
			bubble(t, h, func(r *rig) {
				r.send(grouped(3, 4)...)
				r.start()
				pass(30 * time.Second)
				if got := d.of("a"); !slices.Equal(got, []string{"a00"}) {
					t.Errorf("group a ran as %q", got)
				}
				for _, g := range []string{"b", "c"} {
					if got := d.of(g); len(got) != 4 {
						t.Errorf("group %s ran as %q", g, got)
					}
				}
				for _, k := range []string{"a01", "a02", "a03"} {
					for _, delay := range r.q.delays(k) {
						if delay != 0 {
							t.Errorf("the follower %q was handed back for %v", k, delay)
						}
					}
				}
				pass(10 * time.Minute)
				if got := d.of("a"); !slices.Equal(got, []string{"a00", "a00", "a00", "a00", "a01", "a02", "a03"}) {
					t.Errorf("group a ran as %q", got)
				}
				r.wantQueue(0)
			}, preset(p))
		})
	}
}

func TestHeadInProgressHoldsItsGroup(t *testing.T) {
	var d diary
	bubble(t, func(_ context.Context, j *onceq.Job) error { d.write(t, j); defer d.ends(j); return nil }, func(r *rig) {
		q := r.store.occupy(t, "a00", 20*time.Second, dedupe.Rerun)
		r.send("a/a00", "a/a01")
		r.start()
		pass(10 * time.Second)
		if len(d.of("a")) != 0 {
			t.Errorf("ran %q", d.of("a"))
		}
		r.store.settle(t, q, dedupe.Settlement{To: dedupe.Done})
		pass(time.Minute)
		if got := d.of("a"); !slices.Equal(got, []string{"a01"}) {
			t.Errorf("ran %q", got)
		}
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO))
}

func TestLetterLetsTheGroupGoOn(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) == "bad" {
			return onceq.Permanent(errBoom)
		}
		return nil
	}, func(r *rig) {
		r.send("g/one", "g/bad", "g/two")
		r.run(time.Minute)
		r.wantStatus("two", dedupe.Done)
		r.letter(onceq.ClassPermanent)
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO))
}

func TestHoldGroup(t *testing.T) {
	var mended atomic.Bool
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		if string(j.Message.Body) == "bad" && !mended.Load() || string(j.Message.Body) == "alone" {
			return onceq.Permanent(errBoom)
		}
		return nil
	}, func(r *rig) {
		r.send("g/one", "g/bad", "g/two", "h/other")
		r.start()
		pass(59 * time.Minute)
		r.wantStatus("one", dedupe.Done)
		r.wantStatus("bad", dedupe.Released)
		r.wantStatus("two", 0)
		r.wantStatus("other", dedupe.Done)
		r.noLetters()
		if n := r.log.count("stays in the queue"); n == 0 {
			t.Error("nobody was told")
		}
		mended.Store(true)
		pass(2 * time.Minute)
		r.wantStatus("bad", dedupe.Done)
		r.wantStatus("two", dedupe.Done)
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO), with(func(c *setup) { c.HoldGroup = true }))
}

// What cannot even be claimed holds its group as well.
func TestHoldGroupOfWhatIsRefused(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		bad := message("\xff")
		bad.Group = "g"
		r.putRaw(bad)
		r.send("g/next")
		r.start()
		pass(time.Hour)
		r.noLetters()
		r.wantStatus("next", 0)
		r.wantQueue(2)
	}, with(func(c *setup) { c.HoldGroup = true }))
}

func TestHoldGroupWithoutAGroup(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		r.send("a")
		r.run(time.Second)
		r.letter(onceq.ClassPermanent)
		r.wantQueue(0)
	}, with(func(c *setup) { c.HoldGroup = true }))
}

// On a queue that does not order groups, a group is only a label.
func TestGroupsOfAStandardQueueRunAtOnce(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(10 * time.Second); return nil }
	bubble(t, h, func(r *rig) {
		r.send("g/a", "g/b", "g/c")
		r.run(10 * time.Second)
		for _, k := range []string{"a", "b", "c"} {
			r.wantStatus(k, dedupe.Done)
		}
	}, preset(membroker.SQSStandard))
}

// A follower that loses its delivery while it waits must not leave those behind it waiting for
// ever.
func TestFollowerLosesItsDelivery(t *testing.T) {
	var d diary
	h := func(_ context.Context, j *onceq.Job) error {
		d.write(t, j)
		defer d.ends(j)
		takes(5 * time.Minute)
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.send("g/a00", "g/a01", "g/a02", "g/a03")
		r.start()
		pass(time.Second)
		r.q.expire(t, "a01")
		pass(60 * time.Minute)
		if got := d.of("a"); !slices.Equal(got, []string{"a00", "a01", "a02", "a03"}) {
			t.Errorf("ran %q", got)
		}
		r.wantQueue(0)
	})
}

func TestLostDeliveryWhileClaiming(t *testing.T) {
	for _, group := range []string{"", "g/"} {
		bubble(t, until(time.Minute), func(r *rig) {
			r.store.set(func(s *store) {
				s.fault = func(c onceqtest.Call) faulty.Faults {
					if c.Op == onceqtest.Claim && c.N == 1 {
						return faulty.Slow(20 * time.Second)
					}
					return nil
				}
			})
			r.send(group + "a")
			r.start()
			pass(time.Second)
			r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend && c.N == 1 {
					return faulty.Fail(broker.ErrReceiptExpired)
				}
				return nil
			})
			pass(20 * time.Minute)
			r.wantStatus("a", dedupe.Done)
			r.wantQueue(0)
			if n := r.seen.started("a"); n != 1 {
				t.Errorf("group %q: %d runs", group, n)
			}
			// The group's order goes by its deliveries, so its job waits for the next one. Another
			// goes on under its claim, with the next delivery's receipt.
			if group != "" {
				r.wantOutcomes("a", "handed-back", "done")
			} else {
				r.wantOutcomes("a", "handed-over", "done")
			}
		}, with(func(c *setup) { c.CallTimeout = 25 * time.Second }))
	}
}

func TestDrainHandsGroupsBackInOrder(t *testing.T) {
	var d diary
	h := func(_ context.Context, j *onceq.Job) error {
		d.write(t, j)
		defer d.ends(j)
		takes(10 * time.Second)
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.send(grouped(4, 5)...)
		for range 30 {
			r.run(3 * time.Second)
		}
		for g := range 4 {
			if got := d.of(string(rune('a' + g))); !slices.IsSorted(got) || len(got) != 5 {
				t.Errorf("group %c ran as %q", 'a'+g, got)
			}
		}
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO))
}

func TestPauseAndResume(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(30 * time.Second); return nil }
	bubble(t, h, func(r *rig) {
		r.send(numbered("k", 15)...)
		r.start()
		pass(time.Second)
		r.w.Pause()
		pass(time.Second)
		if d, _ := r.q.Depth(r.Context()); d.InFlight != 10 || d.Visible != 5 {
			t.Errorf("paused, and the queue is %+v; want 10 in flight and 5 given back", d)
		}
		pass(10 * time.Minute)
		if n := len(r.seen.outcomes("k000")); n != 1 || r.record("k000").Status != dedupe.Done {
			t.Errorf("a running handler was stopped: %d ends", n)
		}
		started := 0
		for _, k := range numbered("k", 15) {
			started += r.seen.started(k)
		}
		if started != 10 {
			t.Errorf("%d jobs were started, want 10", started)
		}
		r.wantQueue(5)
		r.w.Resume()
		pass(time.Minute)
		r.wantQueue(0)
	})
}

func TestPauseBeforeRun(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.w.Pause()
		r.send("a")
		r.start()
		pass(time.Hour)
		r.wantStatus("a", 0)
		if n := r.q.received("a"); n != 0 {
			t.Errorf("%d receives", n)
		}
		r.w.Resume()
		pass(time.Second)
		r.wantStatus("a", dedupe.Done)
		r.w.Resume()
	})
}

// pausing is an Observer that calls the Worker.
type pausing struct{ w *onceq.Worker }

func (p *pausing) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (p *pausing) JobEnded(context.Context, *onceq.TimingRecord)                { p.w.Pause() }

func TestPauseFromTheObserver(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		o := &pausing{}
		r.cfg.Observer = o
		r.cfg.Concurrency = 2
		r.w = r.worker(nil)
		o.w = r.w
		r.send(numbered("k", 20)...)
		r.start()
		pass(time.Minute)
		r.w.Pause()
		r.wantQueue(20)
	})
}
