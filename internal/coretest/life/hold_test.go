package life

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// hanging makes the op of the queue hang for as long as it is true.
func hanging(r *rig.Rig, op onceqtest.Op, on *atomic.Bool) {
	r.Q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
		if c.Op == op && on.Load() {
			f = faulty.Slow(time.Hour) // or until the call's context ends
		}
		return f
	})
}

// sizes are how many jobs run at once. ONCEQ_LARGE=1 takes ten times as many, which takes a minute.
func sizes() []int {
	if os.Getenv("ONCEQ_LARGE") != "" {
		return []int{100, 1000, 10_000}
	}
	return []int{10, 1000}
}

// A queue whose Extend hangs makes no claim lapse: the store confirms each, so no handler is cut
// off, however many there are and however short the lease is.
func TestHangingExtendCutsNobodyOff(t *testing.T) {
	for _, n := range sizes() {
		for _, c := range []struct{ lease, hangs time.Duration }{
			{30 * time.Second, 20 * time.Second},
			{30 * time.Second, time.Hour},
			{5 * time.Second, 20 * time.Second},
			{5 * time.Second, time.Hour},
		} {
			t.Run(fmt.Sprintf("%d jobs, %v lease, hangs for %v", n, c.lease, c.hangs), func(t *testing.T) {
				var cut atomic.Int64
				var busy peak.Gauge
				h := func(ctx context.Context, _ *onceq.Job) error {
					busy.In()
					defer busy.Out()
					select {
					case <-time.After(3 * time.Minute):
						return nil
					case <-ctx.Done():
						cut.Add(1)
						return context.Cause(ctx)
					}
				}
				rig.Bubble(t, h, func(r *rig.Rig) {
					keys := rig.Numbered("k", n)
					r.Send(keys...)
					r.Start()
					rig.Pass(20 * time.Second)
					var hangs atomic.Bool
					hanging(r, onceqtest.Extend, &hangs)
					hangs.Store(true)
					rig.Pass(c.hangs)
					hangs.Store(false)
					rig.Pass(10 * time.Minute)
					if cut.Load() != 0 {
						t.Errorf("%d of %d handlers were cut off", cut.Load(), n)
					}
					starts := 0
					for _, k := range keys {
						starts += r.Seen.Started(k)
						r.WantStatus(k, dedupe.Done)
					}
					if starts != n || busy.Top() != n {
						t.Errorf("%d starts, %d at once, of %d jobs", starts, busy.Top(), n)
					}
					r.WantQueue(0)
				}, rig.Preset(membroker.SQSStandard), rig.Parks, rig.Warnings, rig.With(func(cfg *rig.Setup) {
					cfg.Concurrency, cfg.Lease, cfg.Visibility = n, c.lease, c.lease
				}))
			})
		}
	}
}

// Where the store hangs, only handlers whose claims it did not confirm in time are cut off. No
// delivery lapses.
func TestHangingStoreLosesNoDelivery(t *testing.T) {
	for _, n := range sizes() {
		for _, c := range []struct {
			hangs time.Duration
			cut   bool
		}{{10 * time.Second, false}, {time.Minute, true}} {
			t.Run(fmt.Sprintf("%d jobs, hangs for %v", n, c.hangs), func(t *testing.T) {
				var cut atomic.Int64
				h := func(ctx context.Context, _ *onceq.Job) error {
					select {
					case <-time.After(3 * time.Minute):
					case <-ctx.Done():
						cut.Add(1)
						rig.Takes(2 * time.Minute) // it does not obey
					}
					return nil
				}
				rig.Bubble(t, h, func(r *rig.Rig) {
					keys := rig.Numbered("k", n)
					r.Send(keys...)
					r.Start()
					rig.Pass(20 * time.Second)
					r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
					rig.Pass(c.hangs)
					r.Store.Heals()
					rig.Pass(10 * time.Minute)
					if got := cut.Load(); got != map[bool]int64{true: int64(n)}[c.cut] {
						t.Errorf("%d of %d handlers were cut off", got, n)
					}
					again := 0
					for _, k := range keys {
						if r.Q.Received(k) > 1 {
							again++
						}
						if n := r.Seen.Started(k); n != 1 {
							t.Errorf("%q was started %d times", k, n)
						}
						r.WantStatus(k, dedupe.Done)
					}
					if again > 0 {
						t.Errorf("%d of %d deliveries have lapsed", again, n)
					}
					r.WantQueue(0)
				}, rig.Preset(membroker.SQSStandard), rig.With(func(cfg *rig.Setup) { cfg.Concurrency = n }))
			})
		}
	}
}

// A claim that is longer than the visibility timeout outlasts a store that is away for as long as
// that timeout, because the deadline that the store has given counts.
func TestLongClaimOutlastsAnOutage(t *testing.T) {
	rig.Bubble(t, rig.Works(5*time.Minute), func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(30 * time.Second)
		r.Store.Fails(rig.ErrBoom, onceqtest.Renew)
		rig.Pass(40 * time.Second)
		r.Store.Heals()
		rig.Pass(5 * time.Minute)
		r.WantOutcomes("a", "done")
		if n := r.Q.Received("a"); n != 1 {
			t.Errorf("%d receives", n)
		}
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Lease, c.Visibility = time.Minute, 10*time.Second }))
}

// On the happy path a beat is one renewal for all claims that a store takes at once, and one
// extension for each batch of the queue.
func TestRequestsOfABeat(t *testing.T) {
	const jobs, minutes = 100, 5
	rig.Bubble(t, rig.Works(minutes*time.Minute), func(r *rig.Rig) {
		var extends atomic.Int64
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Extend {
				extends.Add(1)
			}
			return f
		})
		r.Send(rig.Numbered("k", jobs)...)
		r.RunFor(minutes*time.Minute + time.Second)
		const beats = minutes * 60 / 10 * 4 / 3 // up to a quarter more, for jitter
		if n := r.Store.Renews.Load(); n > 3*beats {
			t.Errorf("%d renewals of %d jobs in %d minutes", n, jobs, minutes)
		}
		if n := extends.Load(); n > beats*jobs/10 {
			t.Errorf("%d extensions of %d jobs in %d minutes, ten to a call", n, jobs, minutes)
		}
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Concurrency = jobs }))
}

// In a group the handler goes on, too, and the next of the group waits for it.
func TestHangingExtendInAGroup(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		rig.Takes(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, j.Key().Key)
		return context.Cause(ctx)
	}, func(r *rig.Rig) {
		var hangs atomic.Bool
		hanging(r, onceqtest.Extend, &hangs)
		hangs.Store(true)
		r.Send("g/a", "g/b")
		r.Start()
		rig.Pass(10 * time.Minute)
		hangs.Store(false)
		rig.Pass(30 * time.Minute)
		if want := []string{"a", "b"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("b", dedupe.Done)
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO))
}

// Without a store the delivery is all there is: a queue that hangs ends the handler before the
// deadline.
func TestHangingExtendWithoutAStore(t *testing.T) {
	var at time.Duration
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		begin := time.Now()
		<-ctx.Done()
		at = time.Since(begin)
		return context.Cause(ctx)
	}, func(r *rig.Rig) {
		var hangs atomic.Bool
		hanging(r, onceqtest.Extend, &hangs)
		hangs.Store(true)
		r.Send("a")
		r.Start()
		rig.Pass(29 * time.Second)
		if at < 20*time.Second || at > 25*time.Second {
			t.Errorf("cut off after %v", at)
		}
		hangs.Store(false)
	}, rig.Preset(membroker.SQSStandard), rig.NoStore)
}

// A nack waits for an extension that is in flight. Where that hangs, it waits for as long as the
// call may take. No other call is sent behind it.
func TestNackWaitsForAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := func(context.Context, *onceq.Job) error {
			rig.Takes(11 * time.Second)
			return onceq.RetryAfter(20*time.Second, rig.ErrBoom)
		}
		r := rig.New(t, h, rig.Preset(membroker.SQSStandard))
		var ends, during atomic.Int64
		begin := time.Now()
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			switch c.Op {
			case onceqtest.Extend:
				f = faulty.Slow(4 * time.Second)
				ends.Store(int64(time.Since(begin) + 4*time.Second))
			case onceqtest.Nack:
				if int64(time.Since(begin)) < ends.Load() {
					during.Add(1)
				}
			}
			return f
		})
		r.Send("a")
		r.Start()
		rig.Pass(25 * time.Second)
		if n := r.Q.Extended("a"); n != 1 || during.Load() != 0 {
			t.Errorf("%d extensions, %d nacks while one was in flight", n, during.Load())
		}
		if got := r.Q.Delays("a"); len(got) != 1 {
			t.Errorf("nacked with %v", got)
		}
		if err := r.Stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		rig.Pass(time.Minute)
	})
}

// watchedExtends is a queue whose extensions may take long, and to which no nack may come
// meanwhile.
type watchedExtends struct {
	*rig.Queue
	t      *testing.T
	takes  func(hs []broker.Hold)
	mu     *sync.Mutex
	flying map[broker.Receipt]bool
}

func (q watchedExtends) Extend(ctx context.Context, hs []broker.Hold) error {
	q.note(hs, true)
	defer q.note(hs, false)
	q.takes(hs)
	return q.Queue.Extend(ctx, hs)
}

func (q watchedExtends) note(hs []broker.Hold, flies bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range hs {
		if q.flying[h.Receipt] = flies; !flies {
			delete(q.flying, h.Receipt)
		}
	}
}

func (q watchedExtends) inFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.flying)
}

func (q watchedExtends) Nack(ctx context.Context, hs []broker.Hold) error {
	if n := q.inFlight(); n > 0 {
		q.t.Errorf("a nack, while %d extensions are in flight", n)
	}
	return q.Queue.Nack(ctx, hs)
}

// A redelivery was handed over to a job while an extension of it was in flight. The nack of the job
// waits for that extension, and for its own extension of the first delivery.
func TestNackWaitsForAnExtensionHandedOver(t *testing.T) {
	const backoff = 20 * time.Second
	for _, c := range []struct{ first, second, handler time.Duration }{ // when they end, after the handover
		{-1, 2 * time.Second, 0}, {2 * time.Second, time.Second, 0}, {time.Second, 2 * time.Second, 0}, {time.Second, 2 * time.Second, 1500 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var r *rig.Rig
			var begun []time.Time
			handedOver := func() bool { return slices.Contains(r.Seen.Outcomes("a"), "handed-over") }
			h := func(context.Context, *onceq.Job) error {
				if begun = append(begun, time.Now()); len(begun) > 1 {
					return nil
				}
				for !handedOver() {
					rig.Takes(10 * time.Millisecond)
				}
				rig.Takes(c.handler)
				return onceq.RetryAfter(backoff, rig.ErrBoom)
			}
			var q watchedExtends
			watched := func(r *rig.Rig) {
				var first broker.Receipt
				r.Q.OnReceive = func(ms []*broker.Message) []*broker.Message {
					if len(ms) > 0 && first == "" {
						first = ms[0].Receipt
					}
					return ms
				}
				q = watchedExtends{Queue: r.Q, t: r.T, mu: new(sync.Mutex), flying: make(map[broker.Receipt]bool), takes: func(hs []broker.Hold) {
					after := c.second
					if hs[0].Receipt == first {
						after = c.first
					}
					for begin := time.Now(); after > 0 && !handedOver() && time.Since(begin) < 12*time.Second; {
						rig.Takes(10 * time.Millisecond)
					}
					rig.Takes(after)
				}}
				r.Cfg.Broker, r.Cfg.CallTimeout = q, 20*time.Second
			}
			one := func(r *rig.Rig) { // to a call
				r.Q.ChangeLimits = func(l broker.Limits) broker.Limits {
					l.SettleBatch = 1
					return l
				}
			}
			rig.Bubble(t, h, func(made *rig.Rig) {
				r = made
				flying := 1
				if c.first > 0 {
					flying = 2
				}
				r.Store.Set(func(s *rig.Store) {
					s.Fault = func(call onceqtest.Call) (f faulty.Faults) {
						if call.Op == onceqtest.Claim && call.N > 1 && !handedOver() && q.inFlight() < flying {
							f = faulty.Fail(rig.ErrBoom) // so the redelivery waits, and is kept hidden meanwhile
						}
						return f
					}
				})
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				r.Q.Expire(r.T, "a")
				rig.Pass(time.Minute)
				r.WantStatus("a", dedupe.Done)
				if len(begun) != 2 {
					t.Fatalf("it began %d times", len(begun))
				}
				if d := begun[1].Sub(begun[0]); d > 46*time.Second {
					t.Errorf("the retry came after %v", d)
				}
			}, rig.Preset(membroker.SQSStandard), watched, one)
		})
	}
}

// A claim that the store does not answer is asked for beyond the time for which the queue lets a
// message be held. The message lapses then, and is not nacked; the job runs once.
func TestOutageBeyondTheHoldLimit(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.MaxTotal = 2 * time.Minute; return l }
		r.W = r.Worker(nil)
		r.Store.Set(func(s *rig.Store) { s.Fault = func(onceqtest.Call) faulty.Faults { return faulty.Fail(rig.ErrBoom) } })
		r.Send("a")
		r.Start()
		rig.Pass(8 * time.Minute)
		if n, d := r.Q.Received("a"), r.Q.Delays("a"); n != 1 || len(d) != 0 || r.Seen.Started("a") != 0 {
			t.Errorf("%d receives, nacked with %v, %d starts in an outage", n, d, r.Seen.Started("a"))
		}
		r.Store.Set(func(s *rig.Store) { s.Fault = nil })
		rig.Pass(2 * time.Minute)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d starts after the outage", n)
		}
		if n := r.Q.Received("a"); n < 2 {
			t.Errorf("%d receives: the delivery did not lapse", n)
		}
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard))
}
