package jobs

import (
	"context"
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
	"github.com/onceq/onceq/internal/coretest/rig"
)

// copies is where a worker sends messages anew. It may lose the answer of the first send, and may
// refuse.
type copies struct {
	to broker.Sender

	mu      sync.Mutex
	sent    int
	lose    bool
	refuses bool
	dedups  []string      // the ids of what was to be sent, as a queue leaves out a second one
	stuck   chan struct{} // a call ends when it is closed, whatever its context says; nil = at once
	heeds   bool          // it ends with its context, too
}

func (c *copies) Limits() broker.Limits { return c.to.Limits() }

func (c *copies) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	c.mu.Lock()
	for i := range ms {
		c.dedups = append(c.dedups, ms[i].DedupID)
	}
	refuses, lose := c.refuses, c.lose
	c.lose = false
	c.mu.Unlock()
	if c.stuck != nil {
		var ended <-chan struct{}
		if c.heeds {
			ended = ctx.Done()
		}
		select {
		case <-c.stuck:
		case <-ended:
			return nil, ctx.Err()
		}
	}
	if refuses {
		return nil, rig.ErrBoom
	}
	ids, err := c.to.Send(ctx, ms)
	c.mu.Lock()
	c.sent += len(ms)
	c.mu.Unlock()
	if lose {
		return nil, rig.ErrBoom
	}
	return ids, err
}

func (c *copies) refusing(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = on
}

// kept is a queue that keeps messages for d.
func kept(d time.Duration) rig.Option {
	return func(r *rig.Rig) { r.Cfg.Broker = rig.Keeping{Broker: r.Q, Kept: d} }
}

func carrying(c *copies) rig.Option {
	return func(r *rig.Rig) { c.to, r.Cfg.Carry = r.Q.Broker, c }
}

const day = 24 * time.Hour

// asleep is a handler that sleeps for d, and counts how often it wakes.
func asleep(d time.Duration, woke *int) onceq.HandlerFunc {
	return func(ctx context.Context, j *onceq.Job) error {
		err := onceq.Sleep(ctx, j, "trial", d)
		if err == nil {
			*woke++
		}
		return err
	}
}

// TestCarried plays a job that sleeps for longer than its queue delays a message.
func TestCarried(t *testing.T) {
	for name, c := range map[string]struct {
		lose, fails bool
		refused     time.Duration // the queue refuses copies for so long
		sent        int           // copies
		logged      int           // at least so many errors of copies
	}{
		"once":                        {sent: 2},
		"a copy's answer is lost":     {lose: true, sent: 3},
		"two copies, and it fails":    {lose: true, fails: true, sent: 3},
		"refused for thirteen hours":  {refused: 13 * time.Hour, sent: 1, logged: 1},
		"refused for as long as ever": {refused: 40 * time.Hour, logged: 2},
	} {
		t.Run(name, func(t *testing.T) {
			to := &copies{lose: c.lose}
			woke, steps := 0, 0
			rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
				_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { steps++; return 1, nil })
				if err == nil {
					err = onceq.Sleep(ctx, j, "trial", 30*time.Hour)
				}
				if err != nil {
					return err
				}
				if woke++; c.fails {
					return onceq.Permanent(rig.ErrBoom)
				}
				return nil
			}, func(r *rig.Rig) {
				to.refusing(c.refused > 0)
				r.Send("a")
				r.Start()
				rig.Pass(c.refused)
				to.refusing(false)
				rig.Pass(3*day - c.refused)
				if woke != 1 || steps != 1 {
					r.Errorf("it woke %d times, and had %d steps: %q", woke, steps, r.Seen.Outcomes("a"))
				}
				r.WantQueue(0)
				if to.sent > c.sent {
					r.Errorf("%d copies, want at most %d", to.sent, c.sent)
				}
				if slices.Contains(to.dedups, "") || c.lose && to.dedups[0] != to.dedups[1] {
					r.Errorf("a copy that is sent again has another id: %q", to.dedups)
				}
				if n := r.Logged.Count("level=ERROR", "could not be sent anew"); n < c.logged || c.logged == 0 && n > 0 {
					r.Errorf("%d errors about copies in the log, want %d", n, c.logged)
				}
				if !c.fails {
					r.WantStatus("a", dedupe.Done)
					r.NoLetters()
					return
				}
				r.WantStatus("a", dedupe.Failed)
				for _, m := range r.Letters() { // a second copy may put the letter again
					if d := m.Meta.Dead; d.Class != onceq.ClassPermanent || d.Fence != r.Record("a").Fence {
						r.Errorf("a letter of class %q, fence %d", d.Class, d.Fence)
					}
				}
			}, rig.Preset(membroker.SQSStandard), carrying(to), kept(4*day), rig.Warnings)
		})
	}
}

// A Sender that ignores its context takes no room from other jobs. What it was given is given back,
// and no job runs twice where its copy was stored after all. The log says at once that messages
// cannot be sent anew.
func TestCarryThatHangs(t *testing.T) {
	to := &copies{}
	var woke, plain atomic.Int32
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		if strings.HasPrefix(j.Key().Key, "plain") {
			plain.Add(1)
			return nil
		}
		err := onceq.Sleep(ctx, j, "trial", 30*time.Hour)
		if err == nil {
			woke.Add(1)
		}
		return err
	}, func(r *rig.Rig) {
		to.stuck = make(chan struct{})
		r.Send(rig.Numbered("far", 40)...)
		r.Start()
		rig.Pass(time.Minute)
		r.Send(rig.Numbered("plain", 40)...)
		rig.Pass(time.Minute)
		if n := plain.Load(); n != 40 {
			r.Errorf("%d of 40 other jobs have run", n)
		}
		if n := r.Logged.Count("level=WARN", "messages cannot be sent anew", "does not end its call", "Does the worker have the right to send"); n != 1 {
			r.Errorf("%d warnings that messages cannot be sent anew, want one", n)
		}
		rig.Pass(20 * time.Hour)
		close(to.stuck)
		rig.Pass(2 * day)
		if n := woke.Load(); n != 40 {
			r.Errorf("%d of 40 jobs woke", n)
		}
		r.WantQueue(0)
		r.NoLetters()
	}, rig.Preset(membroker.SQSStandard), carrying(to), kept(4*day), rig.Warnings, rig.With(func(c *rig.Setup) { c.Concurrency, c.Prefetch = 4, -1 }))
}

// What can neither be kept nor carried becomes a letter before its queue drops it. Its steps are
// kept: a replay goes on.
func TestWaitsThatNothingCarries(t *testing.T) {
	for name, c := range map[string]struct {
		preset membroker.Preset
		group  string
		set    func(r *rig.Rig)
	}{
		"no Carry":      {membroker.SQSStandard, "", func(r *rig.Rig) {}},
		"ordered group": {membroker.Memory, "g/", carrying(new(copies))},
		"refused":       {membroker.SQSStandard, "", func(r *rig.Rig) { carrying(&copies{refuses: true})(r) }},
	} {
		t.Run(name, func(t *testing.T) {
			steps, woke := 0, 0
			rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
				_, err := onceq.Step(ctx, j, "charge", func(context.Context) (int, error) { steps++; return 1, nil })
				if err == nil {
					err = onceq.Sleep(ctx, j, "trial", 5*day)
				}
				if err == nil {
					woke++
				}
				return err
			}, func(r *rig.Rig) {
				r.Send(c.group + "a")
				r.Start()
				rig.Pass(4*day - time.Hour)
				m := r.Letter(onceq.ClassTooEarly)
				if d := m.Meta.Dead; d.Fence == 0 || d.Saved != "trial" || !strings.Contains(d.LastErr, "the queue keeps messages for 4d") {
					r.Errorf("the letter says %+v", d)
				}
				r.WantStatus("a", dedupe.Failed)
				rig.Pass(2 * day)
				r.Replay(m)
				rig.Pass(time.Minute)
				r.WantStatus("a", dedupe.Done)
				if steps != 1 || woke != 1 {
					r.Errorf("%d steps, %d wakings", steps, woke)
				}
			}, rig.Preset(c.preset), kept(4*day), c.set, rig.Warnings)
		})
	}
}

// A job that is postponed shortly, again and again, does not use up the receives that its queue
// allows. And a copy that would be another job is not sent.
func TestCarriedForItsReceives(t *testing.T) {
	for name, byID := range map[string]bool{"by the metadata": false, "by the broker's id": true} {
		t.Run(name, func(t *testing.T) {
			to, runs := &copies{}, 0
			rig.Bubble(t, func(context.Context, *onceq.Job) error {
				if runs++; runs <= 34 {
					return onceq.Postpone(20*time.Second, nil)
				}
				return nil
			}, func(r *rig.Rig) {
				r.Send("a")
				r.RunFor(time.Hour)
				most := r.Q.Received("a")
				if !byID && (to.sent < 3 || runs != 35) || byID && to.sent > 0 {
					r.Errorf("%d copies, %d runs, %d receives", to.sent, runs, most)
				}
				if n := len(slices.Compact(slices.Sorted(slices.Values(to.dedups)))); n != to.sent {
					r.Errorf("%d copies have %d ids: a queue would leave out the others", to.sent, n)
				}
				for _, e := range r.Seen.Of("a") {
					if !byID && e.Attempt > 1 {
						r.Errorf("attempt %d", e.Attempt)
					}
				}
			}, rig.Preset(membroker.SQSStandard), carrying(to), func(r *rig.Rig) {
				r.Cfg.Broker = bounded{r.Q}
				if byID {
					r.Cfg.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil }
				}
			}, rig.Warnings)
		})
	}
}

// A copy that comes before its time is carried as well, whoever says what a job's key is: a sleep
// lasts longer than the queue keeps a message, and so does a not-before. It lasts longer than
// Retention, too, and its record waits for it.
func TestCarriedUnderAKeyOfTheUsers(t *testing.T) {
	to, woke := &copies{}, 0
	rig.Bubble(t, asleep(10*day, &woke), func(r *rig.Rig) {
		r.Send("a")
		r.RunFor(11 * day)
		r.WantStatus("a", dedupe.Done)
		r.NoLetters()
		if woke != 1 || to.sent < 3 {
			r.Errorf("it woke %d times, after %d copies", woke, to.sent)
		}
		if n := len(slices.Compact(slices.Sorted(slices.Values(to.dedups)))); n != to.sent {
			r.Errorf("%d copies have %d ids", to.sent, n)
		}
	}, rig.Preset(membroker.SQSStandard), carrying(to), kept(4*day), func(r *rig.Rig) {
		r.Cfg.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.Meta.Key}, nil }
		r.Cfg.Retention = 5 * day
	}, rig.Warnings)
}

// bounded is a queue that moves a message away after ten receives.
type bounded struct{ broker.Broker }

func (bounded) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{MaxReceives: 10}, nil
}
