package onceq_test

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
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/peak"
	"github.com/onceq/onceq/onceqtest"
)

// hanging makes the op of the queue hang for as long as it is true.
func (r *rig) hanging(op onceqtest.Op, on *atomic.Bool) {
	r.q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
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
				bubble(t, h, func(r *rig) {
					keys := numbered("k", n)
					r.send(keys...)
					r.start()
					pass(20 * time.Second)
					var hangs atomic.Bool
					r.hanging(onceqtest.Extend, &hangs)
					hangs.Store(true)
					pass(c.hangs)
					hangs.Store(false)
					pass(10 * time.Minute)
					if cut.Load() != 0 {
						t.Errorf("%d of %d handlers were cut off", cut.Load(), n)
					}
					starts := 0
					for _, k := range keys {
						starts += r.seen.started(k)
						r.wantStatus(k, dedupe.Done)
					}
					if starts != n || busy.Top() != n {
						t.Errorf("%d starts, %d at once, of %d jobs", starts, busy.Top(), n)
					}
					r.wantQueue(0)
				}, preset(membroker.SQSStandard), parks, warnings, with(func(cfg *setup) {
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
						takes(2 * time.Minute) // it does not obey
					}
					return nil
				}
				bubble(t, h, func(r *rig) {
					keys := numbered("k", n)
					r.send(keys...)
					r.start()
					pass(20 * time.Second)
					r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return faulty.Hang() } })
					pass(c.hangs)
					r.store.heals()
					pass(10 * time.Minute)
					if got := cut.Load(); got != map[bool]int64{true: int64(n)}[c.cut] {
						t.Errorf("%d of %d handlers were cut off", got, n)
					}
					again := 0
					for _, k := range keys {
						if r.q.received(k) > 1 {
							again++
						}
						if n := r.seen.started(k); n != 1 {
							t.Errorf("%q was started %d times", k, n)
						}
						r.wantStatus(k, dedupe.Done)
					}
					if again > 0 {
						t.Errorf("%d of %d deliveries have lapsed", again, n)
					}
					r.wantQueue(0)
				}, preset(membroker.SQSStandard), with(func(cfg *setup) { cfg.Concurrency = n }))
			})
		}
	}
}

// A claim that is longer than the visibility timeout outlasts a store that is away for as long as
// that timeout, because the deadline that the store has given counts.
func TestLongClaimOutlastsAnOutage(t *testing.T) {
	bubble(t, until(5*time.Minute), func(r *rig) {
		r.send("a")
		r.start()
		pass(30 * time.Second)
		r.store.fails(errBoom, onceqtest.Renew)
		pass(40 * time.Second)
		r.store.heals()
		pass(5 * time.Minute)
		r.wantOutcomes("a", "done")
		if n := r.q.received("a"); n != 1 {
			t.Errorf("%d receives", n)
		}
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Lease, c.Visibility = time.Minute, 10*time.Second }))
}

// On the happy path a beat is one renewal for all claims that a store takes at once, and one
// extension for each batch of the queue.
func TestRequestsOfABeat(t *testing.T) {
	const jobs, minutes = 100, 5
	bubble(t, until(minutes*time.Minute), func(r *rig) {
		var extends atomic.Int64
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
			if c.Op == onceqtest.Extend {
				extends.Add(1)
			}
			return f
		})
		r.send(numbered("k", jobs)...)
		r.run(minutes*time.Minute + time.Second)
		const beats = minutes * 60 / 10 * 4 / 3 // up to a quarter more, for jitter
		if n := r.store.renews.Load(); n > 3*beats {
			t.Errorf("%d renewals of %d jobs in %d minutes", n, jobs, minutes)
		}
		if n := extends.Load(); n > beats*jobs/10 {
			t.Errorf("%d extensions of %d jobs in %d minutes, ten to a call", n, jobs, minutes)
		}
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Concurrency = jobs }))
}

// In a group the handler goes on, too, and the next of the group waits for it.
func TestHangingExtendInAGroup(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		takes(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, j.Key().Key)
		return context.Cause(ctx)
	}, func(r *rig) {
		var hangs atomic.Bool
		r.hanging(onceqtest.Extend, &hangs)
		hangs.Store(true)
		r.send("g/a", "g/b")
		r.start()
		pass(10 * time.Minute)
		hangs.Store(false)
		pass(30 * time.Minute)
		if want := []string{"a", "b"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		r.wantStatus("a", dedupe.Done)
		r.wantStatus("b", dedupe.Done)
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO))
}

// Without a store the delivery is all there is: a queue that hangs ends the handler before the
// deadline.
func TestHangingExtendWithoutAStore(t *testing.T) {
	var at time.Duration
	bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		begin := time.Now()
		<-ctx.Done()
		at = time.Since(begin)
		return context.Cause(ctx)
	}, func(r *rig) {
		var hangs atomic.Bool
		r.hanging(onceqtest.Extend, &hangs)
		hangs.Store(true)
		r.send("a")
		r.start()
		pass(29 * time.Second)
		if at < 20*time.Second || at > 25*time.Second {
			t.Errorf("cut off after %v", at)
		}
		hangs.Store(false)
	}, preset(membroker.SQSStandard), noStore)
}

// A nack waits for an extension that is in flight. Where that hangs, it waits for as long as the
// call may take. No other call is sent behind it.
func TestNackWaitsForAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := func(context.Context, *onceq.Job) error {
			takes(11 * time.Second)
			return onceq.RetryAfter(20*time.Second, errBoom)
		}
		r := newRig(t, h, preset(membroker.SQSStandard))
		var ends, during atomic.Int64
		begin := time.Now()
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) (f faulty.Faults) {
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
		r.send("a")
		r.start()
		pass(25 * time.Second)
		if n := r.q.extended("a"); n != 1 || during.Load() != 0 {
			t.Errorf("%d extensions, %d nacks while one was in flight", n, during.Load())
		}
		if got := r.q.delays("a"); len(got) != 1 {
			t.Errorf("nacked with %v", got)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		pass(time.Minute)
	})
}

// watchedExtends is a queue whose extensions may take long, and to which no nack may come
// meanwhile.
type watchedExtends struct {
	*queue
	t      *testing.T
	takes  func(hs []broker.Hold)
	mu     *sync.Mutex
	flying map[broker.Receipt]bool
}

func (q watchedExtends) Extend(ctx context.Context, hs []broker.Hold) error {
	q.note(hs, true)
	defer q.note(hs, false)
	q.takes(hs)
	return q.queue.Extend(ctx, hs)
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
	return q.queue.Nack(ctx, hs)
}

// A redelivery was handed over to a job while an extension of it was in flight. The nack of the job
// waits for that extension, and for its own extension of the first delivery.
func TestNackWaitsForAnExtensionHandedOver(t *testing.T) {
	const backoff = 20 * time.Second
	for _, c := range []struct{ first, second, handler time.Duration }{ // when they end, after the handover
		{-1, 2 * time.Second, 0}, {2 * time.Second, time.Second, 0}, {time.Second, 2 * time.Second, 0}, {time.Second, 2 * time.Second, 1500 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var r *rig
			var begun []time.Time
			handedOver := func() bool { return slices.Contains(r.seen.outcomes("a"), "handed-over") }
			h := func(context.Context, *onceq.Job) error {
				if begun = append(begun, time.Now()); len(begun) > 1 {
					return nil
				}
				for !handedOver() {
					takes(10 * time.Millisecond)
				}
				takes(c.handler)
				return onceq.RetryAfter(backoff, errBoom)
			}
			var q watchedExtends
			watched := func(r *rig) {
				var first broker.Receipt
				r.q.onReceive = func(ms []*broker.Message) []*broker.Message {
					if len(ms) > 0 && first == "" {
						first = ms[0].Receipt
					}
					return ms
				}
				q = watchedExtends{queue: r.q, t: r.T, mu: new(sync.Mutex), flying: make(map[broker.Receipt]bool), takes: func(hs []broker.Hold) {
					after := c.second
					if hs[0].Receipt == first {
						after = c.first
					}
					for begin := time.Now(); after > 0 && !handedOver() && time.Since(begin) < 12*time.Second; {
						takes(10 * time.Millisecond)
					}
					takes(after)
				}}
				r.cfg.Broker, r.cfg.CallTimeout = q, 20*time.Second
			}
			one := func(r *rig) { // to a call
				r.q.limits = func(l broker.Limits) broker.Limits {
					l.SettleBatch = 1
					return l
				}
			}
			bubble(t, h, func(made *rig) {
				r = made
				flying := 1
				if c.first > 0 {
					flying = 2
				}
				r.store.set(func(s *store) {
					s.fault = func(call onceqtest.Call) (f faulty.Faults) {
						if call.Op == onceqtest.Claim && call.N > 1 && !handedOver() && q.inFlight() < flying {
							f = faulty.Fail(errBoom) // so the redelivery waits, and is kept hidden meanwhile
						}
						return f
					}
				})
				r.send("a")
				r.start()
				pass(time.Second)
				r.q.expire(r.T, "a")
				pass(time.Minute)
				r.wantStatus("a", dedupe.Done)
				if len(begun) != 2 {
					t.Fatalf("it began %d times", len(begun))
				}
				if d := begun[1].Sub(begun[0]); d > 46*time.Second {
					t.Errorf("the retry came after %v", d)
				}
			}, preset(membroker.SQSStandard), watched, one)
		})
	}
}

// A claim that the store does not answer is asked for beyond the time for which the queue lets a
// message be held. The message lapses then, and is not nacked; the job runs once.
func TestOutageBeyondTheHoldLimit(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.q.limits = func(l broker.Limits) broker.Limits { l.MaxTotal = 2 * time.Minute; return l }
		r.w = r.worker(nil)
		r.store.set(func(s *store) { s.fault = func(onceqtest.Call) faulty.Faults { return faulty.Fail(errBoom) } })
		r.send("a")
		r.start()
		pass(8 * time.Minute)
		if n, d := r.q.received("a"), r.q.delays("a"); n != 1 || len(d) != 0 || r.seen.started("a") != 0 {
			t.Errorf("%d receives, nacked with %v, %d starts in an outage", n, d, r.seen.started("a"))
		}
		r.store.set(func(s *store) { s.fault = nil })
		pass(2 * time.Minute)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d starts after the outage", n)
		}
		if n := r.q.received("a"); n < 2 {
			t.Errorf("%d receives: the delivery did not lapse", n)
		}
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
	}, preset(membroker.SQSStandard))
}
