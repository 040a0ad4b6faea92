package life

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

// polled counts the receives that are under way, and all of them.
type polled struct {
	*rig.Queue
	busy  peak.Gauge
	all   atomic.Int64
	gives int // at most, of what is asked for; 0 = all
}

func (p *polled) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if p.gives > 0 {
		o.Max = min(o.Max, p.gives)
	}
	p.all.Add(1)
	p.busy.In()
	defer p.busy.Out()
	return p.Queue.Receive(ctx, o)
}

// polls runs f on a queue with these faults, with 16 pollers.
func polls(t *testing.T, of membroker.Preset, fault func(context.Context, onceqtest.Call) faulty.Faults, f func(r *rig.Rig, p *polled), options ...rig.Option) {
	t.Helper()
	p := &polled{}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Q.SetFault(fault)
		r.Start()
		f(r, p)
	}, append([]rig.Option{rig.Preset(of), func(r *rig.Rig) {
		p.Queue = r.Q
		r.Cfg.Broker, r.Cfg.Pollers, r.Cfg.Concurrency = p, 16, 160
	}}, options...)...)
}

func takesLong(op onceqtest.Op, d time.Duration) func(context.Context, onceqtest.Call) faulty.Faults {
	return func(_ context.Context, c onceqtest.Call) faulty.Faults {
		if c.Op == op {
			return faulty.Slow(d)
		}
		return nil
	}
}

// trickle sends n messages, one each 10 ms.
func trickle(r *rig.Rig, prefix string, n int) {
	r.Helper()
	for i := range n {
		r.Send(prefix + strconv.Itoa(i))
		rig.Pass(10 * time.Millisecond)
	}
}

// TestPollersFollowTheLoad: one poller waits on a quiet queue and brings what came while it was on
// its way; all of them are there soon when there is much, and gone soon after.
func TestPollersFollowTheLoad(t *testing.T) {
	polls(t, membroker.SQSStandard, takesLong(onceqtest.Receive, 15*time.Millisecond), func(r *rig.Rig, p *polled) {
		trickle(r, "quiet", 1000)
		if n, most := p.all.Load(), p.busy.Top(); n > 670 || most > 2 {
			t.Errorf("%d receives for 1000 messages, %d at once", n, most)
		}

		burst := make([]string, 16_000)
		for i := range burst {
			burst[i] = fmt.Sprint("burst", i)
		}
		p.all.Store(0)
		r.Send(burst...)
		// Sixteen at once bring 160 in 15 ms, so all in 1.5 s. Until all sixteen are there, it
		// takes as long as four receives.
		rig.Pass(1700 * time.Millisecond)
		if n, most := p.all.Load(), p.busy.Top(); n > 1640 || most != 16 {
			t.Errorf("%d receives for 16,000 messages, %d at once", n, most)
		}
		r.WantQueue(0)

		p.all.Store(0)
		trickle(r, "after", 1000)
		if n, now := p.all.Load(), p.busy.Now(); n > 670 || now > 2 {
			t.Errorf("%d receives for 1000 messages after a burst, %d still wait", n, now)
		}
	})
}

// A receive of SQS often brings less than there is.
func TestPollersComeForPartFullReceives(t *testing.T) {
	polls(t, membroker.SQSStandard, takesLong(onceqtest.Receive, 15*time.Millisecond), func(r *rig.Rig, p *polled) {
		rig.Pass(time.Minute)
		p.gives = 6
		for i := range 6000 {
			r.Send(strconv.Itoa(i))
		}
		rig.Pass(time.Second)
		if most := p.busy.Top(); most != 16 {
			t.Errorf("at most %d receives at once", most)
		}
		r.WantQueue(0)
	})
}

// With few slots no receive brings five messages. A receive that brings all that it may is as good
// a reason for one more poller.
func TestPollersWithFewSlots(t *testing.T) {
	polls(t, membroker.SQSStandard, takesLong(onceqtest.Receive, 15*time.Millisecond), func(r *rig.Rig, p *polled) {
		r.Send(rig.Numbered("k", 400)...)
		rig.Pass(3 * time.Second)
		if n := p.busy.Top(); n < 2 {
			t.Errorf("%d receives at once", n)
		}
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.Concurrency = 2 }))
}

// What piles up in a pause is for one poller. More pollers join only where that one cannot keep up.
func TestPollersWithAPause(t *testing.T) {
	polls(t, membroker.SQSStandard, takesLong(onceqtest.Receive, 15*time.Millisecond), func(r *rig.Rig, p *polled) {
		trickle(r, "quiet", 1000)
		if n, most := p.all.Load(), p.busy.Top(); n > 130 || most > 1 {
			t.Errorf("%d receives for 1000 messages, %d at once", n, most)
		}
		burst := make([]string, 16_000)
		for i := range burst {
			burst[i] = fmt.Sprint("burst", i)
		}
		r.Send(burst...)
		rig.Pass(4 * time.Second) // one poller alone would take 24 s
		if most := p.busy.Top(); most != 16 {
			t.Errorf("%d receives at once", most)
		}
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.PollPause = 500 * time.Millisecond }))
}

// A worker with a PollPause must not fall behind on a queue that gives less than it has. A receive
// that is part-full may have brought all there was, but not again and again.
func TestPollersWithAPauseAndPartFullReceives(t *testing.T) {
	polls(t, membroker.SQSStandard, takesLong(onceqtest.Receive, 15*time.Millisecond), func(r *rig.Rig, p *polled) {
		for i := range 100 { // seven or eight in a pause: nothing is left behind by a part-full receive
			trickle(r, fmt.Sprint("quiet", i, "-"), 8)
			rig.Pass(450 * time.Millisecond)
		}
		if n, most := p.all.Load(), p.busy.Top(); n > 160 || most > 1 {
			t.Errorf("%d receives for 800 messages, %d at once", n, most)
		}
		p.gives = 6
		burst := make([]string, 16_000)
		for i := range burst {
			burst[i] = fmt.Sprint("burst", i)
		}
		r.Send(burst...)
		rig.Pass(10 * time.Second) // with a pause after each receive of one poller it would take 23 minutes
		if most := p.busy.Top(); most != 16 {
			t.Errorf("%d receives at once", most)
		}
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.PollPause = 500 * time.Millisecond }))
}

// TestPollersByDefaultForLargeReceives: where a receive may bring a thousand, as on Pub/Sub, a
// worker of a thousand slots has several pollers while there is much, and one on a quiet queue. A
// worker with few slots has one. How many of the four find room at once depends on when the jobs of
// the others end; TestPollersByDefault has their number.
func TestPollersByDefaultForLargeReceives(t *testing.T) {
	for _, c := range []struct{ concurrency, busy int }{{1000, 4}, {500, 2}, {499, 1}, {10, 1}} {
		polls(t, membroker.PubSub, takesLong(onceqtest.Receive, 15*time.Millisecond), func(r *rig.Rig, p *polled) {
			rig.Pass(time.Minute)
			if most := p.busy.Top(); most != 1 {
				t.Errorf("Concurrency %d: %d receives at once on an empty queue", c.concurrency, most)
			}
			r.Send(rig.Numbered("burst", 10*c.concurrency)...)
			rig.Pass(time.Second)
			if most := p.busy.Top(); most > c.busy || most < min(2, c.busy) {
				t.Errorf("Concurrency %d: %d receives at once, want %d at most, and %d at least", c.concurrency, most, c.busy, min(2, c.busy))
			}
			r.WantQueue(0)
			rig.Pass(time.Minute)
			if now := p.busy.Now(); now != 1 {
				t.Errorf("Concurrency %d: %d receives wait after the burst, want 1", c.concurrency, now)
			}
		}, rig.With(func(cfg *rig.Setup) { cfg.Pollers, cfg.Concurrency = 0, c.concurrency }))
	}
}

// Where requests cost nothing, a message finds a poll that waits.
func TestAllPollersWaitWhereNothingIsBilled(t *testing.T) {
	polls(t, membroker.Memory, nil, func(r *rig.Rig, p *polled) {
		rig.Pass(time.Second)
		trickle(r, "quiet", 100)
		if now := p.busy.Now(); now < 2 { // each reserves what it may bring, so that not all of them have room
			t.Errorf("%d receives wait", now)
		}
	})
}

// One receive that is never answered must not keep a quiet queue's messages from the worker, be it
// the poller's first or a later one.
func TestPollerStepsInForOneThatHangs(t *testing.T) {
	for _, nth := range []int64{1, 2, 5} {
		var calls atomic.Int64
		polls(t, membroker.SQSStandard, func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && calls.Add(1) == nth {
				return faulty.Slow(30 * time.Minute)
			}
			return nil
		}, func(r *rig.Rig, p *polled) {
			rig.Pass(time.Second)
			for i := range nth - 1 {
				r.Send(fmt.Sprint("before", i))
				rig.Pass(time.Second)
			}
			r.Send("a")
			rig.Pass(r.Q.Limits().MaxWait + 2*time.Second)
			r.WantOutcomes("a", "done")
			for i := range 20 { // its substitute stays
				k := fmt.Sprint("b", i)
				r.Send(k)
				rig.Pass(time.Second)
				r.WantOutcomes(k, "done")
			}
			if now := p.busy.Now(); now != 2 {
				t.Errorf("receive %d hangs: %d are under way, want that one and its substitute", nth, now)
			}
			rig.Pass(time.Hour)
			if now := p.busy.Now(); now != 1 {
				t.Errorf("receive %d hung: %d are under way after its end, want 1", nth, now)
			}
		})
	}
}

// A receive is not overdue while it waits for as long as it may, and its answer is on its way.
func TestNoPollerStepsInForOneThatIsSlow(t *testing.T) {
	polls(t, membroker.SQSStandard, takesLong(onceqtest.Receive, 1900*time.Millisecond), func(_ *rig.Rig, p *polled) {
		rig.Pass(time.Hour)
		if n := p.busy.Top(); n != 1 {
			t.Errorf("%d receives at once", n)
		}
	})
}

// A receive that is never answered has room reserved for what it may bring. The poller that steps
// in for it needs that room.
func TestPollerThatStepsInFindsRoom(t *testing.T) {
	for _, c := range []struct {
		billed                         bool
		concurrency, prefetch, pollers int
	}{
		{true, 5, 0, 2},
		{true, 10, -1, 2},
		{true, 1, 0, 2},
		{true, 5, 0, 3},
		{false, 5, 0, 2},
	} {
		var calls atomic.Int64
		polls(t, membroker.SQSStandard, func(_ context.Context, f onceqtest.Call) faulty.Faults {
			if f.Op == onceqtest.Receive && calls.Add(1) == 1 {
				return faulty.Slow(30 * time.Minute)
			}
			return nil
		}, func(r *rig.Rig, p *polled) {
			rig.Pass(time.Second)
			r.Send("a")
			rig.Pass(r.Q.Limits().MaxWait + 2*time.Second)
			r.WantOutcomes("a", "done")
			// Many come, and yet there are no more receives than Pollers while one of them hangs.
			r.Send(rig.Numbered("b", 40)...)
			rig.Pass(30 * time.Minute)
			// The room that was reserved is neither kept nor given back twice, so as much as fits
			// is held, and no more.
			ks := rig.Numbered("k", 50)
			r.Send(ks...)
			rig.Pass(time.Second)
			held := 0
			for _, k := range ks {
				held += r.Q.Received(k)
			}
			if most := c.concurrency + max(0, min(c.concurrency, 10)); c.prefetch < 0 && held != c.concurrency || c.prefetch == 0 && held != most {
				t.Errorf("%d are held, want %d and what Prefetch allows", held, c.concurrency)
			}
			rig.Pass(time.Hour)
			r.WantQueue(0)
			if n := p.busy.Top(); n > c.pollers {
				t.Errorf("%d receives at once", n)
			}
		}, func(r *rig.Rig) {
			r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.PerRequestCost = c.billed; return l }
		}, rig.With(func(cfg *rig.Setup) {
			cfg.Pollers, cfg.Concurrency, cfg.Prefetch = c.pollers, c.concurrency, c.prefetch
			cfg.Handler = onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
				if string(j.Message.Body) != "a" {
					rig.Takes(10 * time.Second)
				}
				return nil
			})
		}))
	}
}

// TestAcksKeepUpWithReceives: where calls take long, as many acks are under way as receives.
func TestAcksKeepUpWithReceives(t *testing.T) {
	for _, c := range []struct{ pollers, concurrency int }{{16, 160}, {64, 10}} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Q.SetFault(takesLong(onceqtest.Ack, time.Second))
			ks := make([]string, 20*10*c.pollers)
			for i := range ks {
				ks[i] = strconv.Itoa(i)
			}
			r.Send(ks...)
			r.Start()
			rig.Pass(22 * time.Second)
			r.WantQueue(0)
		}, rig.Preset(membroker.SQSStandard), rig.With(func(cfg *rig.Setup) { cfg.Pollers, cfg.Concurrency = c.pollers, c.concurrency }))
	}
}

// scripted is a queue whose receives go as a script says, a byte each: e is empty at once, w is
// empty after it has waited for a moment, m brings a message at once. After the script it waits.
type scripted struct {
	*rig.Queue
	script string

	mu    sync.Mutex
	asked []time.Time
}

func (s *scripted) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	s.mu.Lock()
	i := len(s.asked)
	s.asked = append(s.asked, time.Now())
	s.mu.Unlock()
	switch {
	case i >= len(s.script):
		<-ctx.Done()
		return nil, ctx.Err()
	case s.script[i] == 'w':
		rig.Takes(10 * time.Millisecond)
	case s.script[i] == 'm':
		o.Wait, o.Max = 0, 1
		return s.Queue.Receive(ctx, o)
	}
	return nil, nil
}

// A queue that does not wait is asked more and more seldom, down to once a second. The pause begins
// anew after a receive that waited, or that brought something.
func TestPausesOfAQueueThatDoesNotWait(t *testing.T) {
	const ms = time.Millisecond
	steps := []struct{ least, most time.Duration }{
		{25 * ms, 50 * ms},
		{50 * ms, 100 * ms},
		{100 * ms, 200 * ms},
		{200 * ms, 400 * ms},
		{400 * ms, 800 * ms},
		{800 * ms, time.Second},
		{time.Second, time.Second},
	}
	s := &scripted{script: "eeeeeeeee" + "w" + "eee" + "m" + "eee" + "wm" + "e"}
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send("a", "b")
		r.Start()
		rig.Pass(time.Minute)
		if len(s.asked) != len(s.script)+1 {
			t.Fatalf("%d receives, want %d", len(s.asked), len(s.script)+1)
		}
		row := 0 // of empty receives
		for i, what := range s.script {
			least, most := time.Duration(0), time.Duration(0)
			switch what {
			case 'e':
				step := steps[min(row, len(steps)-1)]
				row, least, most = row+1, step.least, step.most
			case 'w':
				row, least, most = 0, 10*ms, 10*ms
			case 'm':
				row = 0
			}
			if d := s.asked[i+1].Sub(s.asked[i]); d < least || d > most {
				t.Errorf("%v between receive %d (%q of %s) and the next, want %v to %v", d, i, what, s.script, least, most)
			}
		}
	}, func(r *rig.Rig) {
		s.Queue = r.Q
		r.Cfg.Broker, r.Cfg.Pollers = s, 1
	})
}
