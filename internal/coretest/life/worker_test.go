package onceq_test

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
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

func TestWorkerRunsAQueueEmpty(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub} {
		t.Run(p.String(), func(t *testing.T) {
			var ran atomic.Int64
			bubble(t, func(context.Context, *onceq.Job) error { ran.Add(1); return nil }, func(r *rig) {
				for i := range 30 {
					r.send(grouped(10, 1)...) // the same ten keys, again and again
					r.send(numbered(fmt.Sprintf("g/%d-", i), 10)...)
				}
				r.run(5 * time.Minute)
				r.wantQueue(0)
				r.noLetters()
				if n := ran.Load(); n != 310 {
					t.Errorf("%d runs, want 310", n)
				}
			}, preset(p))
		})
	}
}

// No more handlers than Concurrency, and no more messages held than these and one batch.
func TestWorkerHoldsNoMoreThanItMay(t *testing.T) {
	for _, c := range []struct{ concurrency, prefetch, most int }{{1, 0, 11}, {7, -1, 7}, {10, 3, 13}, {1, -1, 1}} {
		var busy peak.Gauge
		h := func(context.Context, *onceq.Job) error {
			busy.In()
			takes(time.Second)
			busy.Out()
			return nil
		}
		bubble(t, h, func(r *rig) {
			r.send(numbered("k", 100)...)
			r.start()
			for range 20 {
				pass(500 * time.Millisecond)
				d, err := r.q.Depth(r.Context())
				if err != nil || d.InFlight > int64(c.most) {
					t.Errorf("%+v: %d messages in flight, %v", c, d.InFlight, err)
				}
			}
			if n := busy.Top(); n != c.concurrency {
				t.Errorf("%+v: %d handlers at once", c, n)
			}
			pass(2 * time.Minute)
			r.wantQueue(0)
		}, preset(membroker.SQSStandard), with(func(cfg *setup) {
			cfg.Concurrency, cfg.Prefetch, cfg.AckLinger = c.concurrency, c.prefetch, -1
		}))
	}
}

// However many jobs there are, no call is larger than the store and the queues take.
func TestBatchesKeepToTheLimits(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		takes(15 * time.Second) // and so a beat
		if strings.HasSuffix(string(j.Message.Body), "7") {
			return onceq.Permanent(errBoom)
		}
		return nil
	}
	bubble(t, h, func(r *rig) {
		r.store.limits = func(l dedupe.Limits) dedupe.Limits { l.MaxBatch = 3; return l }
		r.w = r.worker(nil)
		r.send(numbered("k", 100)...)
		r.run(2 * time.Minute)
		r.wantQueue(0)
		if n := len(r.letters()); n != 10 {
			t.Errorf("%d letters", n)
		}
		if n := r.q.refused(); n != 0 {
			t.Errorf("%d extensions were refused", n)
		}
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Concurrency = 50 }))
}

// Handlers run in one half of the slots while the other half is claimed. The store is slow here, so
// that the batches are as large as they may be.
func TestClaimsTakeHalfOfTheSlots(t *testing.T) {
	for _, c := range []struct{ concurrency, most int }{{4, 4}, {16, 16}, {32, 16}, {64, 32}, {200, 100}, {500, 100}} {
		largest := 0
		bubble(t, returns(nil), func(r *rig) {
			r.store.onClaim = func(rs []dedupe.ClaimRequest, cs []dedupe.Claim) []dedupe.Claim {
				r.store.mu.Lock()
				defer r.store.mu.Unlock()
				largest = max(largest, len(rs))
				return cs
			}
			r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return faulty.Slow(time.Second) } })
			r.w = r.worker(nil)
			r.send(numbered("k", 2000)...)
			r.run(time.Hour)
			r.wantQueue(0)
		}, with(func(cfg *setup) { cfg.Concurrency = c.concurrency }))
		if largest != c.most {
			t.Errorf("%d slots: the largest batch had %d claims, want %d", c.concurrency, largest, c.most)
		}
	}
}

func TestManyPollers(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.send(numbered("k", 500)...)
		r.run(time.Minute)
		r.wantQueue(0)
		for _, k := range numbered("k", 500) {
			if r.seen.started(k) != 1 {
				t.Errorf("%q ran %d times", k, r.seen.started(k))
			}
		}
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Pollers, c.Concurrency = 8, 50 }))
}

func TestAcksLingerWhereRequestsAreBilled(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		takes(time.Duration(len(j.Message.Body)) * 10 * time.Millisecond)
		return nil
	}
	for linger, want := range map[time.Duration]int64{0: 1, -1: 5} {
		var calls atomic.Int64
		bubble(t, h, func(r *rig) {
			r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Ack {
					calls.Add(1)
				}
				return nil
			})
			for i := range 5 {
				r.send(strings.Repeat("k", i+1))
			}
			r.start()
			pass(3 * time.Second)
			r.wantQueue(0)
			if n := calls.Load(); n != want {
				t.Errorf("AckLinger %v: %d ack requests, want %d", linger, n, want)
			}
		}, preset(membroker.SQSStandard), with(func(c *setup) { c.AckLinger = linger }))
	}
}

// A receive costs money, or at least time, so none is made for a few free places.
func TestReceivesAskForMany(t *testing.T) {
	h := func(_ context.Context, j *onceq.Job) error {
		takes(time.Second + time.Duration(len(j.Message.Body))*100*time.Millisecond)
		return nil
	}
	bubble(t, h, func(r *rig) {
		for i := range 100 {
			r.send(strings.Repeat("k", i%20) + fmt.Sprint(i))
		}
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive && c.Entries < 5 {
				t.Errorf("a receive asked for %d messages", c.Entries)
			}
			return nil
		})
		r.run(5 * time.Minute)
		r.wantQueue(0)
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Prefetch = -1 }))
}

// In a drain the acks of settled jobs go out at once, whatever they would have waited for.
func TestNoLingerInADrain(t *testing.T) {
	h := func(context.Context, *onceq.Job) error { takes(time.Second); return nil }
	bubble(t, h, func(r *rig) {
		r.send("before", "a")
		r.start()
		pass(500 * time.Millisecond)
		r.send("b")
		pass(600 * time.Millisecond)
		if err := r.ends(400*time.Millisecond, 400*time.Millisecond); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantQueue(0)
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.AckLinger = 10 * time.Second }))
}

// Acks that an abandoned Run has left behind share their batches with those of the next Run.
func TestAcksOfAnAbandonedRun(t *testing.T) {
	for n := 36; n <= 60; n += 3 {
		bubble(t, returns(nil), func(r *rig) {
			r.send(numbered("a", n)...)
			r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Ack && c.N <= 8 {
					return faulty.Slow(30 * time.Second)
				}
				return nil
			})
			r.start()
			pass(time.Second)
			if err := r.stop(); err != nil {
				t.Errorf("all jobs are done, and Run answered %v", err)
			}
			r.start()
			r.send(numbered("b", 5)...)
			pass(5 * time.Minute) // eight slow acks may come one after another
			if err := r.ends(0, 0); err != nil {
				t.Errorf("Run: %v", err)
			}
			r.wantQueue(0)
		}, preset(membroker.SQSStandard), with(func(c *setup) {
			c.Concurrency, c.DrainTimeout, c.CallTimeout, c.AckLinger = 60, -1, time.Minute, -1
		}))
	}
}

func TestPollPause(t *testing.T) {
	var calls atomic.Int64
	bubble(t, returns(nil), func(r *rig) {
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Receive {
				calls.Add(1)
			}
			return nil
		})
		r.start()
		for i := range 60 {
			r.send(fmt.Sprint(i))
			pass(time.Second)
		}
		if n := calls.Load(); n < 5 || n > 8 {
			t.Errorf("%d receives in a minute, want one each ten seconds", n)
		}
	}, with(func(c *setup) { c.PollPause = 10 * time.Second }))
}

// A broker whose empty receives return at once must not be asked without a pause.
func TestReceivesThatDoNotWait(t *testing.T) {
	var calls atomic.Int64
	for name, nothing := range map[string][]*broker.Message{"empty": nil, "nil messages": {nil, nil}} {
		t.Run(name, func(t *testing.T) {
			calls.Store(0)
			bubble(t, returns(nil), func(r *rig) {
				r.cfg.Broker = hasty{r.q, &calls, nothing}
				r.w = r.worker(nil)
				r.start()
				pass(time.Minute)
				if n := calls.Load(); n > 1000 {
					t.Errorf("%d receives in a minute", n)
				}
				r.send("a")
				pass(10 * time.Second)
				r.wantStatus("a", dedupe.Done)
			})
		})
	}
}

// hasty is a queue that does not wait.
type hasty struct {
	*queue
	calls   *atomic.Int64
	nothing []*broker.Message
}

func (h hasty) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if h.calls.Add(1) > 1_000_000 {
		<-ctx.Done() // enough is known
	}
	o.Wait = 0
	ms, err := h.queue.Receive(ctx, o)
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
			h := func(context.Context, *onceq.Job) error { takes(45 * time.Second); return nil }
			bubble(t, h, func(r *rig) {
				r.q.onReceive = change
				keys := numbered("k", 30)
				r.send(keys...)
				r.start()
				pass(3 * time.Hour)
				for _, k := range keys {
					if r.wantStatus(k, dedupe.Done); r.seen.started(k) != 1 {
						t.Errorf("%q ran %d times", k, r.seen.started(k))
					}
				}
				r.wantQueue(0)
			})
		})
	}
}

func TestBrokerThatPanics(t *testing.T) {
	bubble(t, func(_ context.Context, j *onceq.Job) error {
		takes(45 * time.Second)
		if j.Attempt == 1 {
			return errBoom
		}
		return nil
	}, func(r *rig) {
		keys := numbered("k", 30)
		r.send(keys...)
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.N%3 == 1 {
				panic("broker: " + string(c.Op))
			}
			return nil
		})
		r.start()
		pass(time.Hour)
		r.q.SetFault(nil)
		pass(time.Hour)
		for _, k := range keys {
			r.wantStatus(k, dedupe.Done)
		}
		r.wantQueue(0)
	})
}
