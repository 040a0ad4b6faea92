package letters

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/must"
)

// policied is a queue that tells how it dead-letters.
type policied struct {
	*rig.Queue
	receives int
	kept     time.Duration
}

func (q policied) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{MaxReceives: q.receives, Retention: q.kept}, nil
}

func policy(receives int, kept time.Duration) rig.Option {
	return func(r *rig.Rig) { r.Cfg.Broker = policied{r.Q, receives, kept} }
}

// The first start on a queue that exists already moves nothing away. When ProcessorConfig.Key is
// set then, every job is done.
func TestForeignMessagesWaitForAKey(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.SendForeign("a", "b", "c")
		r.RunFor(time.Hour - time.Second)
		r.NoLetters()
		r.WantQueue(3)
		if n := r.Logged.Count("Set ProcessorConfig.Key"); n != 12 {
			t.Errorf("%d errors in an hour, want one each five minutes", n)
		}
		// Who mends it and starts again at once sees an empty queue for that long.
		if n := r.Logged.Count("hidden_for=5m0s"); n != 12 {
			t.Errorf("%d errors say for how long the queue hides the message", n)
		}
		for _, rec := range r.Seen.Of("") {
			if rec.Outcome != "kept" || rec.ErrClass != onceq.ClassNoKey {
				t.Fatalf("a delivery ended as %q, class %q", rec.Outcome, rec.ErrClass)
			}
		}
		r.W = r.Worker(rig.ByBody)
		r.RunFor(10 * time.Minute)
		for _, k := range []string{"a", "b", "c"} {
			r.WantStatus(k, dedupe.Done)
		}
		r.WantQueue(0)
		r.NoLetters()
	})
}

func TestForeignMessagesBecomeLetters(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		set           rig.Option
		before, after time.Duration
		receives      int // 0 = any number
	}{
		"retention unknown":       {rig.With(func(*rig.Setup) {}), day - time.Minute, day + time.Minute, 0},
		"half of the retention":   {policy(0, 2*day), day - time.Minute, day + time.Minute, 0},
		"a short retention":       {policy(0, 10*time.Minute), 4 * time.Minute, 6 * time.Minute, 2},
		"the last receive":        {policy(4, 4*day), 3*time.Hour - time.Minute, 3*time.Hour + time.Minute, 4},
		"one receive":             {policy(1, 4*day), 0, time.Second, 1},
		"many receives":           {policy(1000, 4*day), 2*day - time.Minute, 2*day + time.Minute, 0},
		"receives, short of time": {policy(5, 2*time.Hour), 59 * time.Minute, 61 * time.Minute, 5},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
				r.SendForeign("a")
				r.Start()
				rig.Pass(c.before)
				if c.before > 0 {
					r.NoLetters()
				}
				rig.Pass(c.after - c.before)
				r.Letter(onceq.ClassNoKey)
				r.WantQueue(0)
				if n := len(r.Seen.Of("")); c.receives > 0 && n != c.receives {
					t.Errorf("it was received %d times, want %d", n, c.receives)
				}
			}, c.set)
		})
	}
}

// Where the queue does not tell how old a message is, its receives count, because each deploy is
// another process.
func TestForeignMessageOfUnknownAge(t *testing.T) {
	for name, c := range map[string]struct {
		policy rig.Option
		deploy time.Duration
		before int // deploys without a letter
		most   int // then the letter comes before so many
	}{
		"a deploy each 47 h":      {policy(0, 96*time.Hour), 47 * time.Hour, 1, 2},
		"a deploy each 5 h":       {policy(0, 96*time.Hour), 5 * time.Hour, 9, 10},
		"the receives are spread": {policy(80, 96*time.Hour), 5 * time.Hour, 9, 11},
		"retention unknown":       {rig.With(func(*rig.Setup) {}), 5 * time.Hour, 4, 5},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
				r.SendForeign("a")
				for n := range c.most {
					if n == c.before {
						r.NoLetters()
					}
					r.W = r.Worker(nil)
					r.RunFor(c.deploy)
				}
				r.Letter(onceq.ClassNoKey)
				r.WantQueue(0)
			}, ageless, c.policy)
		})
	}
}

// A queue whose messages have been received often is not emptied by a first start.
func TestForeignMessagesThatWereReceivedOften(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Q.OnReceive = func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.Published, m.Attempt = time.Time{}, m.Attempt+math.MaxInt/2
			}
			return ms
		}
		r.SendForeign("a", "b")
		r.Start()
		rig.Pass(59 * time.Minute)
		r.NoLetters()
		r.WantQueue(2)
		rig.Pass(2 * time.Minute)
		r.WantQueue(0)
		if n := len(r.Letters()); n != 2 {
			t.Errorf("%d letters", n)
		}
	})
}

// ageless is a queue that does not tell when a message was published.
func ageless(r *rig.Rig) {
	r.Q.OnReceive = func(ms []*broker.Message) []*broker.Message {
		for _, m := range ms {
			m.Published = time.Time{}
		}
		return ms
	}
}

// Where producers use onceq, a message without a key is a mistake of one of them.
func TestForeignMessageAmongOurs(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("ours")
		r.Start()
		rig.Pass(time.Second)
		r.SendForeign("a")
		rig.Pass(time.Second)
		r.Letter(onceq.ClassNoKey)
		r.WantStatus("ours", dedupe.Done)
		if n := r.Logged.Count("Set ProcessorConfig.Key"); n != 0 {
			t.Errorf("%d errors, want none", n)
		}
	})
}

// A batch tells its caller to give such a message back.
func TestForeignMessageInABatch(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		d := onceq.Delivery{Message: &broker.Message{ID: "m", Body: []byte("a"), Published: time.Now()}}
		if got := r.Process(r.Context(), d)[0]; got.Action != onceq.Nack || got.Delay != 5*time.Minute {
			t.Errorf("the disposition is %+v", got)
		}
		d.Message = &broker.Message{ID: "m", Body: []byte("a"), Published: time.Now().Add(-25 * time.Hour)}
		if got := r.Process(r.Context(), d)[0]; got.Action != onceq.Ack {
			t.Errorf("the disposition is %+v", got)
		}
		r.Letter(onceq.ClassNoKey)
	})
}

// Letters that a worker made because of its own configuration are replayed to one that was mended.
func TestReplayToAMendedWorker(t *testing.T) {
	muxOf := func(typ string, h onceq.Handler) *onceq.Mux {
		m := new(onceq.Mux)
		m.On(typ, h, nil)
		return m
	}
	typed := func(r *rig.Rig) {
		m := rig.Message("a")
		m.Meta.Type = "mail"
		r.Put(m)
	}
	for _, c := range []struct {
		class       string
		send        func(r *rig.Rig)
		broken, set func(c *rig.Setup)
	}{
		{onceq.ClassNoKey, func(r *rig.Rig) { r.SendForeign("a") }, func(c *rig.Setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, rig.ErrBoom }
		}, rig.ByBody},
		{onceq.ClassBadKey, func(r *rig.Rig) { r.SendForeign("a") }, func(c *rig.Setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: "\xff"}, nil }
		}, rig.ByBody},
		{
			onceq.ClassNoHandler, typed,
			func(c *rig.Setup) { c.Handler, c.Defaults.MaxAttempts = muxOf("other", rig.Never(t)), 1 },
			func(c *rig.Setup) { c.Handler = muxOf("mail", rig.Returns(nil)) },
		},
	} {
		t.Run(c.class, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				c.send(r)
				r.W = r.Worker(c.broken)
				r.RunFor(time.Minute)
				dead := must.Get(dlq.New(r.DLQ, nil))
				list, err := dead.Replay(r.Context(), dlq.ReplayOptions{To: r.Q.Broker, Filter: dlq.Filter{Class: c.class}})
				if err != nil || list.Replayed != 1 {
					t.Fatalf("the report is %+v, %v", list, err)
				}
				r.W = r.Worker(c.set)
				r.RunFor(time.Minute)
				r.NoLetters()
				r.WantQueue(0)
				done := 0
				for _, rec := range append(r.Seen.Of("a"), r.Seen.Of("")...) {
					if rec.Outcome == "done" {
						done++
					}
				}
				if done != 1 {
					t.Errorf("it was done %d times", done)
				}
			})
		})
	}
}

// An unproven job may be done already, so it is replayed only at the operator's word. An expired
// job as well.
func TestReplayAtTheOperatorsWord(t *testing.T) {
	for class, m := range map[string]broker.Meta{
		onceq.ClassExpired:  {Key: "a", Expires: time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)},
		onceq.ClassUnproven: {Key: "a", Created: time.Date(1999, 1, 2, 0, 0, 0, 0, time.UTC)},
	} {
		t.Run(class, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				rig.Pass(48 * time.Hour)
				out := rig.Message("a")
				out.Meta = &m
				r.Put(out)
				r.RunFor(time.Minute)
				dead := must.Get(dlq.New(r.DLQ, nil))
				o := dlq.ReplayOptions{To: r.Q.Broker}
				if rep, err := dead.Replay(r.Context(), o); err != nil || rep.Replayed != 0 || len(rep.Skipped) != 1 {
					t.Fatalf("the report is %+v, %v", rep, err)
				}
				o.Expired, o.Unproven = true, true
				if rep, err := dead.Replay(r.Context(), o); err != nil || rep.Replayed != 1 {
					t.Fatalf("the report is %+v, %v", rep, err)
				}
				r.RunFor(time.Minute)
				r.WantStatus("a", dedupe.Done)
				r.NoLetters()
			})
		})
	}
}
