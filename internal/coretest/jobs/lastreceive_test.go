package jobs

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/onceqtest"
)

// redriven is a queue that moves a message to the dead letters after so many receives.
func redriven(receives int) rig.Option {
	return func(r *rig.Rig) {
		r.DLQ = rig.NewBroker(r.T, membroker.Options{Preset: membroker.SQSStandard})
		r.Q = rig.NewQueue(r.T, membroker.Options{Preset: membroker.SQSStandard, Redrive: &membroker.Redrive{MaxReceives: receives, To: r.DLQ.Broker}})
		r.Cfg.Broker, r.Cfg.DeadLetter = r.Q, r.DLQ
	}
}

// TestCarriedUnderFaults plays a job that has to wait. Its message comes for the last time, or the
// wait is longer than one delay. The first worker fails, or dies, in one call; another goes on.
func TestCarriedUnderFaults(t *testing.T) {
	send, settle, ack := onceqtest.Send, onceqtest.Settle, onceqtest.Ack
	type ends struct {
		copies int  // at most; 0 = there is no such call
		letter bool // of class too-early
		moved  bool // by the queue, as it is
	}
	type ways struct{ asks, last, waits ends }
	for name, c := range map[string]struct {
		fault onceqtest.Fault
		ways
	}{
		"well":                              {onceqtest.Fault{}, ways{ends{copies: 8}, ends{copies: 1}, ends{copies: 2}}},
		"the copy's answer is lost":         {onceqtest.Fault{Op: send, Kind: onceqtest.LoseReply}, ways{ends{copies: 16}, ends{copies: 2}, ends{copies: 3}}},
		"the copy is refused for a while":   {onceqtest.Fault{Op: send, For: 3 * time.Second, Kind: onceqtest.Fail}, ways{ends{copies: 8}, ends{copies: 1}, ends{copies: 2}}},
		"the copy is refused":               {onceqtest.Fault{Op: send, Times: -1, Kind: onceqtest.Fail}, ways{ends{1, true, false}, ends{1, true, false}, ends{copies: 2}}},
		"the call of the copy hangs":        {onceqtest.Fault{Op: send, Times: -1, Kind: onceqtest.Slow, Delay: time.Hour}, ways{ends{1, true, false}, ends{1, true, false}, ends{copies: 2}}},
		"death before the copy":             {onceqtest.Fault{Op: send, Kind: onceqtest.CrashBefore}, ways{ends{1, false, true}, ends{1, false, true}, ends{copies: 2}}},
		"death after the copy":              {onceqtest.Fault{Op: send, Kind: onceqtest.CrashAfter}, ways{ends{8, false, true}, ends{1, false, true}, ends{copies: 3}}},
		"death before the ack":              {onceqtest.Fault{Op: ack, Kind: onceqtest.CrashBefore}, ways{ends{8, false, true}, ends{1, false, true}, ends{copies: 3}}},
		"the ack is lost":                   {onceqtest.Fault{Op: ack, Kind: onceqtest.LoseReply}, ways{ends{copies: 8}, ends{copies: 1}, ends{copies: 2}}},
		"death before the end is recorded":  {onceqtest.Fault{Op: settle, Kind: onceqtest.CrashBefore}, ways{ends{}, ends{1, false, true}, ends{copies: 2}}},
		"death after the end was recorded":  {onceqtest.Fault{Op: settle, Kind: onceqtest.CrashAfter}, ways{ends{}, ends{1, false, true}, ends{copies: 2}}},
		"the answer to the record was lost": {onceqtest.Fault{Op: settle, Kind: onceqtest.LoseReply}, ways{ends{}, ends{copies: 1}, ends{copies: 2}}},
	} {
		for way, w := range map[string]struct {
			want           ends
			receives, errs int
			wait           time.Duration
		}{"not-before": {c.asks, 1, 0, 2 * time.Hour}, "postponed": {c.last, 3, 2, 2 * time.Hour}, "comes again": {c.waits, 10, 0, 20 * time.Hour}} {
			want, asks := w.want, way == "not-before"
			if want.copies == 0 {
				continue
			}
			if c.fault.Op == settle {
				c.fault.N = w.errs + 1
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				woke, steps, errs := 0, 0, 0
				var due time.Time
				rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
					if !asks {
						if errs++; errs <= w.errs {
							return rig.ErrBoom
						}
						_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { steps++; return 1, nil })
						if err == nil {
							err = onceq.Sleep(ctx, j, "trial", w.wait)
						}
						if err != nil {
							return err
						}
					}
					if woke++; time.Now().Before(due) {
						t.Errorf("it woke %v too early", time.Until(due))
					}
					return nil
				}, func(r *rig.Rig) {
					m := rig.Message("a")
					if due = time.Now().Add(w.wait); asks {
						m.Meta.NotBefore = due
					}
					process, store, queue := rig.Mortal(r.Store, r.Q)
					if c.fault.Op != "" {
						process.At(c.fault)
					}
					copies := &copies{to: r.Q.Broker}
					r.Put(m)
					stop := r.Beside(func(cfg *rig.Setup) {
						cfg.Store, cfg.Broker, cfg.Carry = store, struct {
							broker.Receiver
							broker.Redriver
						}{queue, r.Q}, process.Producer(copies)
						cfg.DeadLetter, cfg.DrainTimeout = process.Sender(r.DLQ), -1
					})
					rig.Pass(2 * time.Minute)
					stop()
					if slices.ContainsFunc(process.Missed(), func(f onceqtest.Fault) bool { return f.Op == c.fault.Op }) {
						r.Error("the fault has befallen no call")
					}
					r.Cfg.Carry = copies
					r.W = r.Worker(nil)
					r.Start()
					rig.Pass(w.wait + time.Hour)
					if copies.sent > want.copies {
						r.Errorf("%d copies, want at most %d", copies.sent, want.copies)
					}
					if want.letter {
						m := r.Letter(onceq.ClassTooEarly)
						if d := m.Meta.Dead; !strings.Contains(d.LastErr, "moves a message away after") || (d.Fence == 0) != asks || woke > 0 {
							r.Errorf("it woke %d times before its replay; the letter says %+v", woke, d)
						}
						r.Replay(m)
						rig.Pass(time.Hour)
					}
					if want.moved {
						ms := r.Letters()
						if len(ms) != 1 || ms[0].Meta.Dead != nil {
							t.Errorf("the dead letters are %v, want the message itself", ms)
						}
						r.Put(broker.Outgoing{Body: ms[0].Body, Meta: ms[0].Meta})
						rig.Pass(time.Hour)
					}
					r.NoLetters()
					r.WantQueue(0)
					r.WantStatus("a", dedupe.Done)
					if woke != 1 || !asks && steps != 1 {
						r.Errorf("it woke %d times, and had %d steps: %q", woke, steps, r.Seen.Outcomes("a"))
					}
				}, redriven(w.receives), rig.Steady, rig.Most(5), rig.Warnings)
			})
		}
	}
}

// A copy is sent one receive before the last, so that an outage of its queue makes no letter.
func TestCarriedBeforeTheLastReceive(t *testing.T) {
	to, runs := &copies{}, 0
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		switch runs++; {
		case runs <= 2:
			return rig.ErrBoom
		case runs <= 6:
			return onceq.Postpone(20*time.Minute, nil)
		}
		return nil
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(15 * time.Minute)
		to.refusing(true)
		rig.Pass(15 * time.Minute)
		to.refusing(false)
		rig.Pass(2 * time.Hour)
		r.WantStatus("a", dedupe.Done)
		r.NoLetters()
		r.WantQueue(0)
		if runs != 7 || to.sent != 2 {
			r.Errorf("%d runs, %d copies", runs, to.sent)
		}
	}, redriven(4), carrying(to), rig.Steady, rig.Warnings)
}

// A job may be put off although its message is so old that its queue will soon drop it: after an
// outage, say.
func TestOldMessageIsCarried(t *testing.T) {
	to, woke := &copies{}, 0
	rig.Bubble(t, asleep(time.Minute, &woke), func(r *rig.Rig) {
		r.Send("a")
		rig.Pass(4*day - time.Hour)
		r.RunFor(time.Hour - time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.NoLetters()
		r.WantQueue(0)
		if to.sent != 1 || woke != 1 {
			r.Errorf("%d copies; it woke %d times", to.sent, woke)
		}
	}, rig.Preset(membroker.SQSStandard), carrying(to), kept(4*day), rig.Warnings)
}

// A copy that is taken after all, although nobody waited for its answer, is a second message of the
// job. It runs once, also where both letters are replayed.
func TestCopyAfterItsLetter(t *testing.T) {
	to, woke := &copies{}, 0
	rig.Bubble(t, asleep(2*time.Hour, &woke), func(r *rig.Rig) {
		to.stuck = make(chan struct{})
		later := rig.Message("b")
		later.Meta.NotBefore = time.Now().Add(2 * time.Hour)
		r.Put(rig.Message("a"), later)
		r.Start()
		rig.Pass(5 * time.Minute)
		letters := r.Letters()
		if len(letters) != 2 || woke > 0 {
			r.Fatalf("%d letters, it woke %d times", len(letters), woke)
		}
		close(to.stuck)
		rig.Pass(6 * time.Hour)
		letters = append(letters, r.Letters()...)
		for _, m := range letters {
			d := m.Meta.Dead
			if d.Class != onceq.ClassTooEarly || !strings.Contains(d.LastErr, "cannot be sent anew: onceq: WorkerConfig.Carry does not end its call") {
				r.Errorf("a letter says %+v", d)
			}
			r.Replay(m)
			rig.Pass(3 * time.Hour)
		}
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("b", dedupe.Done)
		r.WantQueue(0)
		r.NoLetters()
		if woke != 2 {
			r.Errorf("two jobs woke %d times: %q, %q", woke, r.Seen.Outcomes("a"), r.Seen.Outcomes("b"))
		}
	}, redriven(1), carrying(to), rig.Warnings)
}

// A worker that drains while such a copy is under way ends in time, and loses nothing.
func TestDrainBesideALastCopy(t *testing.T) {
	for name, c := range map[string]struct {
		late, abandoned bool
		call            time.Duration
	}{
		"the copy is stored in time":    {false, false, 5 * time.Second},
		"the call hangs":                {true, false, 5 * time.Second}, // twice its time is over before the drain is
		"the call hangs beyond the end": {true, true, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			to, woke := &copies{}, 0
			rig.Bubble(t, asleep(2*time.Hour, &woke), func(r *rig.Rig) {
				to.stuck = make(chan struct{})
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				if !c.late {
					time.AfterFunc(3*time.Second, func() { close(to.stuck) })
				}
				began := time.Now()
				err := r.Stop()
				if (err != nil) != c.abandoned || time.Since(began) > 11*time.Second {
					r.Errorf("Run ended after %v: %v", time.Since(began), err)
				}
				if c.late && !c.abandoned {
					r.Replay(r.Letter(onceq.ClassTooEarly))
				}
				if c.late {
					close(to.stuck)
				}
				r.RunFor(3 * time.Hour)
				if left := r.Letters(); c.abandoned { // its queue has moved the message
					r.Put(broker.Outgoing{Body: left[0].Body, Meta: left[0].Meta})
					r.RunFor(3 * time.Hour)
				}
				r.WantStatus("a", dedupe.Done)
				r.NoLetters()
				r.WantQueue(0)
				if woke != 1 {
					r.Errorf("it woke %d times: %q", woke, r.Seen.Outcomes("a"))
				}
			}, redriven(1), carrying(to), rig.Warnings, rig.With(func(s *rig.Setup) { s.DrainTimeout, s.CallTimeout = 5*time.Second, c.call }))
		})
	}
}

// lastMoment is a Sender whose first call fails after so long.
type lastMoment struct {
	copies
	fails time.Duration
}

func (s *lastMoment) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if d := s.fails; d > 0 {
		s.fails = 0
		<-time.After(d)
		return nil, rig.ErrBoom
	}
	return s.copies.Send(ctx, ms)
}

// The rule: once Run has ended, its worker sends nothing more by a Sender of the user's, who may
// have closed it. The message comes again, and its job goes on once.
func TestCopyOfAnAbandonedJob(t *testing.T) {
	to, woke := &lastMoment{fails: onceq.DefaultSettleTimeout + time.Second - time.Millisecond}, 0
	rig.Bubble(t, asleep(20*time.Hour, &woke), func(r *rig.Rig) {
		to.to, r.Cfg.Carry = r.Q.Broker, to
		r.W = r.Worker(nil)
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		_ = r.Stop() // its end is recorded, so that Run tells of no job
		if to.fails != 0 {
			r.Error("nothing was to be sent")
		}
		rig.Pass(time.Hour)
		if to.sent > 0 {
			r.Errorf("%d copies were sent after Run had ended", to.sent)
		}
		r.RunFor(21 * time.Hour)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
		r.NoLetters()
		if woke != 1 || to.sent < 1 {
			r.Errorf("%d copies; it woke %d times", to.sent, woke)
		}
	}, rig.Preset(membroker.SQSStandard), rig.Warnings, rig.With(func(c *rig.Setup) { c.DrainTimeout, c.CallTimeout = -1, 8*time.Second }))
}

// The rule: a job whose message comes for the last time, and that is put off when a drain cuts it
// off, becomes a letter within the drain, where it cannot be sent anew. Abandoned, it would be a
// bare message in the dead-letter queue, which says nothing of why.
func TestPostponedAtTheCut(t *testing.T) {
	for name, c := range map[string]struct {
		drain        time.Duration
		hangs, heeds bool // its call, and its context ends that
	}{
		"five seconds":            {drain: 5 * time.Second},
		"no time":                 {drain: -1},
		"the call hangs":          {drain: -1, hangs: true, heeds: true},
		"the call does not end":   {drain: -1, hangs: true},
		"nor after seven seconds": {drain: 7 * time.Second, hangs: true},
	} {
		t.Run(name, func(t *testing.T) {
			to, runs := &copies{refuses: !c.hangs, heeds: c.heeds}, 0
			rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
				if runs++; runs > 1 {
					return nil
				}
				<-ctx.Done()
				return onceq.Postpone(2*time.Hour, nil)
			}, func(r *rig.Rig) {
				why := "boom"
				if c.hangs {
					to.stuck = make(chan struct{})
					defer close(to.stuck)
					why = map[bool]string{true: "context deadline exceeded", false: "onceq: WorkerConfig.Carry does not end its call"}[c.heeds]
				}
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				if err := r.Stop(); err != nil {
					r.Errorf("Run: %v", err)
				}
				r.WantStatus("a", dedupe.Failed)
				r.WantQueue(0)
				m := r.Letter(onceq.ClassTooEarly)
				if d := m.Meta.Dead; d.Fence == 0 || !strings.Contains(d.LastErr, "cannot be sent anew: "+why) {
					r.Errorf("the letter says %+v", d)
				}
				r.Replay(m)
				r.RunFor(time.Hour)
				r.WantStatus("a", dedupe.Done)
				r.NoLetters()
			}, redriven(1), carrying(to), rig.Warnings, rig.With(func(s *rig.Setup) { s.DrainTimeout = c.drain }))
		})
	}
}
