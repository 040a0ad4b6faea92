package life

import (
	"context"
	"fmt"
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
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

func TestWorkerRunsAQueueEmpty(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub} {
		t.Run(p.String(), func(t *testing.T) {
			var ran atomic.Int64
			rig.Bubble(t, func(context.Context, *onceq.Job) error { ran.Add(1); return nil }, func(r *rig.Rig) {
				for i := range 30 {
					r.Send(rig.Grouped(10, 1)...) // the same ten keys, again and again
					r.Send(rig.Numbered(fmt.Sprintf("g/%d-", i), 10)...)
				}
				r.RunFor(5 * time.Minute)
				r.WantQueue(0)
				r.NoLetters()
				if n := ran.Load(); n != 310 {
					t.Errorf("%d runs, want 310", n)
				}
			}, rig.Preset(p))
		})
	}
}

// No more handlers than Concurrency, and no more messages held than these and one batch.
func TestWorkerHoldsNoMoreThanItMay(t *testing.T) {
	for _, c := range []struct{ concurrency, prefetch, most int }{{1, 0, 11}, {7, -1, 7}, {10, 3, 13}, {1, -1, 1}} {
		var busy peak.Gauge
		h := func(context.Context, *onceq.Job) error {
			busy.In()
			rig.Takes(time.Second)
			busy.Out()
			return nil
		}
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Send(rig.Numbered("k", 100)...)
			r.Start()
			for range 20 {
				rig.Pass(500 * time.Millisecond)
				d, err := r.Q.Depth(r.Context())
				if err != nil || d.InFlight > int64(c.most) {
					t.Errorf("%+v: %d messages in flight, %v", c, d.InFlight, err)
				}
			}
			if n := busy.Top(); n != c.concurrency {
				t.Errorf("%+v: %d handlers at once", c, n)
			}
			rig.Pass(2 * time.Minute)
			r.WantQueue(0)
		}, rig.Preset(membroker.SQSStandard), rig.With(func(cfg *rig.Setup) {
			cfg.Concurrency, cfg.Prefetch, cfg.AckLinger = c.concurrency, c.prefetch, -1
		}))
	}
}

// However many jobs there are, no call is larger than the store and the queues take.
func TestBatchesKeepToTheLimits(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		rig.Takes(15 * time.Second) // and so a beat
		if strings.HasSuffix(string(j.Message.Body), "7") {
			return onceq.Permanent(rig.ErrBoom)
		}
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Store.ChangeLimits = func(l dedupe.Limits) dedupe.Limits { l.MaxBatch = 3; return l }
		r.W = r.Worker(nil)
		r.Send(rig.Numbered("k", 100)...)
		r.RunFor(2 * time.Minute)
		r.WantQueue(0)
		if n := len(r.Letters()); n != 10 {
			t.Errorf("%d letters", n)
		}
		if n := r.Q.Refused(); n != 0 {
			t.Errorf("%d extensions were refused", n)
		}
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Concurrency = 50 }))
}

// Handlers run in one half of the slots while the other half is claimed. The store is slow here, so
// that the batches are as large as they may be.
func TestClaimsTakeHalfOfTheSlots(t *testing.T) {
	for _, c := range []struct{ concurrency, most int }{{4, 4}, {16, 16}, {32, 16}, {64, 32}, {200, 100}, {500, 100}} {
		largest := 0
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Store.OnClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				r.Store.Mu.Lock()
				defer r.Store.Mu.Unlock()
				largest = max(largest, len(rs))
				return cs
			}
			r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return faulty.Slow(time.Second) } })
			r.W = r.Worker(nil)
			r.Send(rig.Numbered("k", 2000)...)
			r.RunFor(time.Hour)
			r.WantQueue(0)
		}, rig.With(func(cfg *rig.Setup) { cfg.Concurrency = c.concurrency }))
		if largest != c.most {
			t.Errorf("%d slots: the largest batch had %d claims, want %d", c.concurrency, largest, c.most)
		}
	}
}

func TestManyPollers(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Send(rig.Numbered("k", 500)...)
		r.RunFor(time.Minute)
		r.WantQueue(0)
		for _, k := range rig.Numbered("k", 500) {
			if r.Seen.Started(k) != 1 {
				t.Errorf("%q ran %d times", k, r.Seen.Started(k))
			}
		}
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Pollers, c.Concurrency = 8, 50 }))
}

func TestAcksLingerWhereRequestsAreBilled(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Duration(len(j.Message.Body)) * 10 * time.Millisecond)
		return nil
	}
	for linger, want := range map[time.Duration]int64{0: 1, -1: 5} {
		var calls atomic.Int64
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Ack {
					calls.Add(1)
				}
				return nil
			})
			for i := range 5 {
				r.Send(strings.Repeat("k", i+1))
			}
			r.Start()
			rig.Pass(3 * time.Second)
			r.WantQueue(0)
			if n := calls.Load(); n != want {
				t.Errorf("AckLinger %v: %d ack requests, want %d", linger, n, want)
			}
		}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.AckLinger = linger }))
	}
}

// A receive costs money, or at least time, so none is made for a few free places.
func TestReceivesAskForMany(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		rig.Takes(time.Second + time.Duration(len(j.Message.Body))*100*time.Millisecond)
		return nil
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		for i := range 100 {
			r.Send(strings.Repeat("k", i%20) + fmt.Sprint(i))
		}
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && c.Entries < 5 {
				t.Errorf("a receive asked for %d messages", c.Entries)
			}
			return nil
		})
		r.RunFor(5 * time.Minute)
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Prefetch = -1 }))
}

// In a drain the acks of settled jobs go out at once, whatever they would have waited for.
func TestNoLingerInADrain(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { rig.Takes(time.Second); return nil }
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("before", "a")
		r.Start()
		rig.Pass(500 * time.Millisecond)
		r.Send("b")
		rig.Pass(600 * time.Millisecond)
		if err := r.Ends(400*time.Millisecond, 400*time.Millisecond); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.AckLinger = 10 * time.Second }))
}

// Acks that an abandoned Run has left behind share their batches with those of the next Run.
func TestAcksOfAnAbandonedRun(t *testing.T) {
	for n := 36; n <= 60; n += 3 {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Send(rig.Numbered("a", n)...)
			r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Ack && c.N <= 8 {
					return faulty.Slow(30 * time.Second)
				}
				return nil
			})
			r.Start()
			rig.Pass(time.Second)
			if err := r.Stop(); err != nil {
				t.Errorf("all jobs are done, and Run answered %v", err)
			}
			r.Start()
			r.Send(rig.Numbered("b", 5)...)
			rig.Pass(5 * time.Minute) // eight slow acks may come one after another
			if err := r.Ends(0, 0); err != nil {
				t.Errorf("Run: %v", err)
			}
			r.WantQueue(0)
		}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) {
			c.Concurrency, c.DrainTimeout, c.CallTimeout, c.AckLinger = 60, -1, time.Minute, -1
		}))
	}
}

func TestPollPause(t *testing.T) {
	var calls atomic.Int64
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive {
				calls.Add(1)
			}
			return nil
		})
		r.Start()
		for i := range 60 {
			r.Send(fmt.Sprint(i))
			rig.Pass(time.Second)
		}
		if n := calls.Load(); n < 5 || n > 8 {
			t.Errorf("%d receives in a minute, want one each ten seconds", n)
		}
	}, rig.With(func(c *rig.Setup) { c.PollPause = 10 * time.Second }))
}

// A broker whose empty receives return at once must not be asked without a pause.
func TestReceivesThatDoNotWait(t *testing.T) {
	var calls atomic.Int64
	for name, nothing := range map[string][]*broker.Message{"empty": nil, "nil messages": {nil, nil}} {
		t.Run(name, func(t *testing.T) {
			calls.Store(0)
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Cfg.Broker = hasty{r.Q, &calls, nothing}
				r.W = r.Worker(nil)
				r.Start()
				rig.Pass(time.Minute)
				if n := calls.Load(); n > 1000 {
					t.Errorf("%d receives in a minute", n)
				}
				r.Send("a")
				rig.Pass(10 * time.Second)
				r.WantStatus("a", dedupe.Done)
			})
		})
	}
}

// hasty is a queue that does not wait.
type hasty struct {
	*rig.Queue
	calls   *atomic.Int64
	nothing []*broker.Message
}

func (h hasty) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if h.calls.Add(1) > 1_000_000 {
		<-ctx.Done() // enough is known
	}
	o.Wait = 0
	ms, err := h.Queue.Receive(ctx, o)
	if len(ms) == 0 && err == nil {
		ms = h.nothing
	}
	return ms, err
}

func TestNonsenseFromTheBroker(t *testing.T) {
	for name, change := range map[string]func(ms []*broker.Message) []*broker.Message{
		"nil among them": func(ms []*broker.Message) []*broker.Message {
			return append([]*broker.Message{nil}, append(ms, nil)...)
		},
		"twice in a call": func(ms []*broker.Message) []*broker.Message { return append(ms, ms...) },
		"no deadline": func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.Deadline = time.Time{}
			}
			return ms
		},
		"a deadline long past": func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.Deadline = time.Unix(1, 0)
			}
			return ms
		},
		"a deadline far ahead": func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.Deadline = m.Deadline.AddDate(500, 0, 0)
			}
			return ms
		},
		"no ids": func(ms []*broker.Message) []*broker.Message {
			for _, m := range ms {
				m.ID, m.Attempt = "", -7
			}
			return ms
		},
		"panic": func(ms []*broker.Message) []*broker.Message {
			if len(ms) > 0 && ms[0].Attempt == 1 {
				panic("broker")
			}
			return ms
		},
		"more than asked for": func(ms []*broker.Message) []*broker.Message {
			for i := range 500 {
				if len(ms) > 0 {
					m := *ms[0]
					m.ID, m.Receipt = fmt.Sprint("more", i), broker.Receipt(fmt.Sprint(i))
					meta := *m.Meta
					meta.Key = fmt.Sprint("more", i)
					m.Meta = &meta
					ms = append(ms, &m)
				}
			}
			return ms
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := func(context.Context, *onceq.Job) error { rig.Takes(45 * time.Second); return nil }
			rig.Bubble(t, h, func(r *rig.Rig) {
				r.Q.OnReceive = change
				keys := rig.Numbered("k", 30)
				r.Send(keys...)
				r.Start()
				rig.Pass(3 * time.Hour)
				for _, k := range keys {
					if r.WantStatus(k, dedupe.Done); r.Seen.Started(k) != 1 {
						t.Errorf("%q ran %d times", k, r.Seen.Started(k))
					}
				}
				r.WantQueue(0)
			})
		})
	}
}

func TestBrokerThatPanics(t *testing.T) {
	rig.Bubble(t, func(_ context.Context, j *onceq.Job) error {
		rig.Takes(45 * time.Second)
		if j.Attempt == 1 {
			return rig.ErrBoom
		}
		return nil
	}, func(r *rig.Rig) {
		keys := rig.Numbered("k", 30)
		r.Send(keys...)
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.N%3 == 1 {
				panic("broker: " + string(c.Op))
			}
			return nil
		})
		r.Start()
		rig.Pass(time.Hour)
		r.Q.SetFault(nil)
		rig.Pass(time.Hour)
		for _, k := range keys {
			r.WantStatus(k, dedupe.Done)
		}
		r.WantQueue(0)
	})
}
