package onceq_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// sendForeign puts messages as a producer does that does not use onceq.
func (r *rig) sendForeign(bodies ...string) {
	r.Helper()
	for _, b := range bodies {
		if err := r.q.SendRaw(r.Context(), []byte(b), nil); err != nil {
			r.Fatal(err)
		}
	}
}

// policied is a queue that tells how it dead-letters.
type policied struct {
	*queue
	receives int
	kept     time.Duration
}

func (q policied) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{MaxReceives: q.receives, Retention: q.kept}, nil
}

func policy(receives int, kept time.Duration) option {
	return func(r *rig) { r.cfg.Broker = policied{r.q, receives, kept} }
}

func byBody(c *setup) {
	c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
}

// The first start on a queue that exists already moves nothing away. When ProcessorConfig.Key is
// set then, every job is done.
func TestForeignMessagesWaitForAKey(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.sendForeign("a", "b", "c")
		r.run(time.Hour - time.Second)
		r.noLetters()
		r.wantQueue(3)
		if n := r.log.count("Set ProcessorConfig.Key"); n != 12 {
			t.Errorf("%d errors in an hour, want one each five minutes", n)
		}
		for _, rec := range r.seen.of("") {
			if rec.Outcome != "kept" || rec.ErrClass != onceq.ClassNoKey {
				t.Fatalf("a delivery ended as %q, class %q", rec.Outcome, rec.ErrClass)
			}
		}
		r.w = r.worker(byBody)
		r.run(10 * time.Minute)
		for _, k := range []string{"a", "b", "c"} {
			r.wantStatus(k, dedupe.Done)
		}
		r.wantQueue(0)
		r.noLetters()
	})
}

func TestForeignMessagesBecomeLetters(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		set           option
		before, after time.Duration
		receives      int // 0 = any number
	}{
		"retention unknown":       {with(func(*setup) {}), day - time.Minute, day + time.Minute, 0},
		"half of the retention":   {policy(0, 2*day), day - time.Minute, day + time.Minute, 0},
		"a short retention":       {policy(0, 10*time.Minute), 4 * time.Minute, 6 * time.Minute, 2},
		"the last receive":        {policy(4, 4*day), 3*time.Hour - time.Minute, 3*time.Hour + time.Minute, 4},
		"one receive":             {policy(1, 4*day), 0, time.Second, 1},
		"many receives":           {policy(1000, 4*day), 2*day - time.Minute, 2*day + time.Minute, 0},
		"receives, short of time": {policy(5, 2*time.Hour), 59 * time.Minute, 61 * time.Minute, 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, never(t), func(r *rig) {
				r.sendForeign("a")
				r.start()
				pass(c.before)
				if c.before > 0 {
					r.noLetters()
				}
				pass(c.after - c.before)
				r.letter(onceq.ClassNoKey)
				r.wantQueue(0)
				if n := len(r.seen.of("")); c.receives > 0 && n != c.receives {
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
		policy option
		deploy time.Duration
		before int // deploys without a letter
		most   int // then the letter comes before so many
	}{
		"a deploy each 47 h":      {policy(0, 96*time.Hour), 47 * time.Hour, 1, 2},
		"a deploy each 5 h":       {policy(0, 96*time.Hour), 5 * time.Hour, 9, 10},
		"the receives are spread": {policy(80, 96*time.Hour), 5 * time.Hour, 9, 11},
		"retention unknown":       {with(func(*setup) {}), 5 * time.Hour, 4, 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, never(t), func(r *rig) {
				r.sendForeign("a")
				for n := range c.most {
					if n == c.before {
						r.noLetters()
					}
					r.w = r.worker(nil)
					r.run(c.deploy)
				}
				r.letter(onceq.ClassNoKey)
				r.wantQueue(0)
			}, ageless, c.policy)
		})
	}
}

// A queue whose messages have been received often is not emptied by a first start.
func TestForeignMessagesThatWereReceivedOften(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.q.onReceive = func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.Published, m.Attempt = time.Time{}, m.Attempt+math.MaxInt/2
			}
			return ms
		}
		r.sendForeign("a", "b")
		r.start()
		pass(59 * time.Minute)
		r.noLetters()
		r.wantQueue(2)
		pass(2 * time.Minute)
		r.wantQueue(0)
		if n := len(r.letters()); n != 2 {
			t.Errorf("%d letters", n)
		}
	})
}

// ageless is a queue that does not tell when a message was published.
func ageless(r *rig) {
	r.q.onReceive = func(ms []*broker.Message) []*broker.Message {
		for _, m := range ms {
			m.Published = time.Time{}
		}
		return ms
	}
}

// Where producers use onceq, a message without a key is a mistake of one of them.
func TestForeignMessageAmongOurs(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.send("ours")
		r.start()
		pass(time.Second)
		r.sendForeign("a")
		pass(time.Second)
		r.letter(onceq.ClassNoKey)
		r.wantStatus("ours", dedupe.Done)
		if n := r.log.count("Set ProcessorConfig.Key"); n != 0 {
			t.Errorf("%d errors, want none", n)
		}
	})
}

// A batch tells its caller to give such a message back.
func TestForeignMessageInABatch(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		d := onceq.Delivery{Message: &broker.Message{ID: "m", Body: []byte("a"), Published: time.Now()}}
		if got := r.process(r.Context(), d)[0]; got.Action != onceq.Nack || got.Delay != 5*time.Minute {
			t.Errorf("the disposition is %+v", got)
		}
		d.Message = &broker.Message{ID: "m", Body: []byte("a"), Published: time.Now().Add(-25 * time.Hour)}
		if got := r.process(r.Context(), d)[0]; got.Action != onceq.Ack {
			t.Errorf("the disposition is %+v", got)
		}
		r.letter(onceq.ClassNoKey)
	})
}

// Letters that a worker made because of its own configuration are replayed to one that was mended.
func TestReplayToAMendedWorker(t *testing.T) {
	muxOf := func(typ string, h onceq.Handler) *onceq.Mux {
		m := new(onceq.Mux)
		m.On(typ, h, nil)
		return m
	}
	typed := func(r *rig) {
		m := message("a")
		m.Meta.Type = "mail"
		r.put(m)
	}
	for _, c := range []struct {
		class       string
		send        func(r *rig)
		broken, set func(c *setup)
	}{
		{onceq.ClassNoKey, func(r *rig) { r.sendForeign("a") }, func(c *setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{}, errBoom }
		}, byBody},
		{onceq.ClassBadKey, func(r *rig) { r.sendForeign("a") }, func(c *setup) {
			c.Key = func(*broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: "\xff"}, nil }
		}, byBody},
		{
			onceq.ClassNoHandler, typed,
			func(c *setup) { c.Handler, c.Defaults.MaxAttempts = muxOf("other", never(t)), 1 },
			func(c *setup) { c.Handler = muxOf("mail", returns(nil)) },
		},
	} {
		t.Run(c.class, func(t *testing.T) {
			bubble(t, returns(nil), func(r *rig) {
				c.send(r)
				r.w = r.worker(c.broken)
				r.run(time.Minute)
				dead, err := dlq.New(r.dlq, nil)
				if err != nil {
					t.Fatal(err)
				}
				list, err := dead.Replay(r.Context(), dlq.ReplayOptions{To: r.q.Broker, Filter: dlq.Filter{Class: c.class}})
				if err != nil || list.Replayed != 1 {
					t.Fatalf("the report is %+v, %v", list, err)
				}
				r.w = r.worker(c.set)
				r.run(time.Minute)
				r.noLetters()
				r.wantQueue(0)
				done := 0
				for _, rec := range append(r.seen.of("a"), r.seen.of("")...) {
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
			bubble(t, returns(nil), func(r *rig) {
				pass(48 * time.Hour)
				out := message("a")
				out.Meta = &m
				r.put(out)
				r.run(time.Minute)
				dead, err := dlq.New(r.dlq, nil)
				if err != nil {
					t.Fatal(err)
				}
				o := dlq.ReplayOptions{To: r.q.Broker}
				if rep, err := dead.Replay(r.Context(), o); err != nil || rep.Replayed != 0 || len(rep.Skipped) != 1 {
					t.Fatalf("the report is %+v, %v", rep, err)
				}
				o.Expired, o.Unproven = true, true
				if rep, err := dead.Replay(r.Context(), o); err != nil || rep.Replayed != 1 {
					t.Fatalf("the report is %+v, %v", rep, err)
				}
				r.run(time.Minute)
				r.wantStatus("a", dedupe.Done)
				r.noLetters()
			})
		})
	}
}
