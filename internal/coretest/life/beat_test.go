package onceq_test

import (
	"context"
	"errors"
	"slices"
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

// until runs for d, or fails when its context ends first.
func until(d time.Duration) onceq.HandlerFunc {
	return func(ctx context.Context, _ *onceq.Job) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func noStore(r *rig) {
	r.cfg.Store = onceq.NoStore
	if !r.cfg.Broker.Limits().Attempts {
		r.cfg.Defaults.MaxAttempts = -1
	}
}

func TestLongJobIsReceivedOnce(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub} {
		for _, o := range []option{func(*rig) {}, noStore} {
			t.Run(p.String(), func(t *testing.T) {
				bubble(t, until(20*time.Minute), func(r *rig) {
					r.send("g/a")
					r.run(21 * time.Minute)
					if n := r.q.received("a"); n != 1 {
						t.Errorf("%d receives", n)
					}
					r.wantQueue(0)
					rec := r.seen.of("a")[0]
					if rec.Outcome != "done" || rec.Process != 20*time.Minute || rec.Beats < 115 || rec.Beats > 150 {
						t.Errorf("the timing record is %+v, want about 120 beats", rec)
					}
				}, preset(p), o)
			})
		}
	}
}

// A claim shorter than the visibility timeout, or longer, is kept all the same.
func TestLeaseAndVisibilityDiffer(t *testing.T) {
	for _, c := range []struct{ lease, visibility time.Duration }{
		{10 * time.Second, 5 * time.Minute}, {5 * time.Minute, 10 * time.Second}, {time.Hour, time.Hour}, {100 * time.Millisecond, 100 * time.Millisecond},
	} {
		bubble(t, until(3*time.Minute), func(r *rig) {
			r.send("a")
			r.run(4 * time.Minute)
			if n := r.q.received("a"); n != 1 || r.seen.started("a") != 1 {
				t.Errorf("%+v: %d receives, %d starts", c, n, r.seen.started("a"))
			}
			r.wantStatus("a", dedupe.Done)
		}, with(func(cfg *setup) { cfg.Lease, cfg.Visibility = c.lease, c.visibility }))
	}
}

func TestWaitingMessagesAreHeld(t *testing.T) {
	bubble(t, until(5*time.Minute), func(r *rig) {
		keys := numbered("k", 11)
		r.send(keys...)
		r.run(56 * time.Minute)
		for _, k := range keys {
			if n := r.q.received(k); n != 1 {
				t.Errorf("%q was received %d times", k, n)
			}
			r.wantStatus(k, dedupe.Done)
		}
	}, with(func(c *setup) { c.Concurrency = 1 }))
}

func TestLostDeliveryDoesNotCancel(t *testing.T) {
	bubble(t, until(5*time.Minute), func(r *rig) {
		r.send("a")
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Extend {
				return faulty.Fail(broker.ErrReceiptExpired)
			}
			return nil
		})
		r.run(20 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
		if got := r.seen.outcomes("a"); got[len(got)-1] != "done" && got[len(got)-1] != "already-done" {
			t.Errorf("the deliveries ended as %q", got)
		}
	})
}

// A job of a group that loses its delivery goes on, too: whoever gets the message next finds its
// key in progress, and keeps the group's order.
func TestLostDeliveryInAGroup(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		takes(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, j.Key().Key)
		return context.Cause(ctx)
	}, func(r *rig) {
		r.send("g/a", "g/b", "g/c")
		r.start()
		pass(time.Second)
		other := r.worker(nil)
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		r.q.expire(r.T, "a")
		pass(time.Hour)
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if want := []string{"a", "b", "c"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		for _, k := range ran {
			r.wantStatus(k, dedupe.Done)
		}
		r.wantQueue(0)
	}, preset(membroker.SQSFIFO))
}

// Without a store the delivery is all there is.
func TestLostDeliveryWithoutAStoreCancels(t *testing.T) {
	var runs atomic.Int64
	cause := errors.New("none")
	bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		if runs.Add(1) > 1 {
			return nil
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		return cause
	}, func(r *rig) {
		r.send("a")
		r.start()
		pass(time.Second)
		r.q.expire(r.T, "a")
		pass(10 * time.Minute)
		if !errors.Is(cause, onceq.ErrLeaseLost) {
			t.Errorf("the cause is %v", cause)
		}
		r.wantQueue(0)
	}, noStore)
}

func TestExtensionErrorsInPassing(t *testing.T) {
	for _, o := range []option{func(*rig) {}, noStore} {
		bubble(t, until(10*time.Minute), func(r *rig) {
			r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend && c.N%3 != 0 {
					return faulty.Fail(broker.ErrThrottled)
				}
				return nil
			})
			r.send("a", "g/b")
			r.run(11 * time.Minute)
			for _, k := range []string{"a", "b"} {
				if n := r.q.received(k); n != 1 || r.seen.started(k) != 1 {
					t.Errorf("%q: %d receives, %d starts", k, n, r.seen.started(k))
				}
				r.wantOutcomes(k, "done")
			}
		}, o)
	}
}

func TestRenewalErrorsInPassing(t *testing.T) {
	bubble(t, until(10*time.Minute), func(r *rig) {
		r.store.set(func(s *store) {
			s.fault = func(c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Renew && c.N%3 != 0 {
					return faulty.Err(errBoom, c.N%2 == 0)
				}
				return nil
			}
		})
		r.send("a")
		r.run(11 * time.Minute)
		r.wantOutcomes("a", "done")
	})
}

func TestNonsenseAnswersToRenewals(t *testing.T) {
	bubble(t, until(time.Minute), func(r *rig) {
		n := 0
		r.store.set(func(s *store) {
			s.onRenew = func(_ []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				switch n++; n % 3 {
				case 0:
					return append(as, as...)
				case 1:
					return nil
				}
				return as
			}
		})
		r.send("a", "b")
		r.run(2 * time.Minute)
		r.wantOutcomes("a", "done")
		r.wantOutcomes("b", "done")
	})
}

// A job outlives the broker's limit on holding a message under its claim alone.
func TestJobLongerThanTheBrokersLimit(t *testing.T) {
	bubble(t, until(15*time.Hour), func(r *rig) {
		r.send("a")
		r.start()
		pass(30 * time.Hour)
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
		if n := r.seen.started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
		if n := r.q.received("a"); n < 2 || n > 4 {
			t.Errorf("%d receives", n)
		}
		if n := r.log.count("a job nears the broker's limit", "under its claim alone"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		if n := r.q.refused(); n != 0 {
			t.Errorf("%d extensions were refused: the limit is known", n)
		}
	}, preset(membroker.SQSStandard))
}

func TestMessageWaitsLongerThanTheBrokersLimit(t *testing.T) {
	bubble(t, until(time.Second), func(r *rig) {
		r.store.fails(errBoom, onceqtest.Claim)
		r.send("a")
		r.start()
		pass(20 * time.Hour)
		// It has no claim under which it could go on.
		if n := r.log.count("a message nears the broker's limit", "the queue delivers it again"); n < 1 || n > 2 {
			t.Errorf("%d warnings", n)
		}
		if n := r.log.count("under its claim"); n != 0 {
			t.Errorf("%d lines tell of a claim that nobody has", n)
		}
		r.store.heals()
		pass(time.Hour)
		r.wantStatus("a", dedupe.Done)
		r.wantQueue(0)
	}, preset(membroker.SQSStandard))
}

func TestQueueThatCannotExtend(t *testing.T) {
	for _, texts := range [][]string{{"a"}, {"g/a"}} {
		bubble(t, until(5*time.Minute), func(r *rig) {
			r.q.limits = func(l broker.Limits) broker.Limits { l.Extends = false; return l }
			r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend {
					t.Error("an extension was asked for")
				}
				return nil
			})
			r.w = r.worker(nil)
			r.send(texts...)
			r.start()
			pass(20 * time.Minute)
			r.wantStatus("a", dedupe.Done)
			r.wantQueue(0)
			if n := r.seen.started("a"); n != 1 {
				t.Errorf("%d runs", n)
			}
			if n := r.log.count("cannot extend"); n != 1 {
				t.Errorf("%d warnings", n)
			}
		})
	}
}

// While the broker does not answer, other workers may get the messages that wait here. Such a
// message must not be started in vain.
func TestWaitingMessageWhoseDeliveryIsNotConfirmed(t *testing.T) {
	bubble(t, func(ctx context.Context, j *onceq.Job) error {
		if err := ctx.Err(); err != nil {
			t.Errorf("%q began with an ended context: %v", j.Message.Body, context.Cause(ctx))
			return err
		}
		takes(2 * time.Minute)
		return nil
	}, func(r *rig) {
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Extend {
				return faulty.Fail(errBoom)
			}
			return nil
		})
		keys := numbered("k", 5)
		r.send(keys...)
		r.start()
		pass(30 * time.Minute)
		for _, k := range keys {
			if rec := r.record(k); rec.Status != dedupe.Done || rec.Attempt != 1 {
				t.Errorf("%q: %v, attempt %d", k, rec.Status, rec.Attempt)
			}
		}
		r.wantQueue(0)
	}, with(func(c *setup) { c.Concurrency = 1 }))
}

// A nack waits for a beat that is in flight, because a beat after the nack would hide the message
// for longer.
func TestBeatInFlightBeforeANack(t *testing.T) {
	h := func(context.Context, *onceq.Job) error {
		takes(10500 * time.Millisecond)
		return onceq.RetryAfter(5*time.Second, errBoom)
	}
	for _, reply := range []time.Duration{2 * time.Second, 0} {
		bubble(t, h, func(r *rig) {
			r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend {
					return faulty.Slow(4 * time.Second).With(faulty.SlowReply(reply))
				}
				return nil
			})
			r.send("a")
			r.start()
			pass(25 * time.Second)
			if n := r.q.received("a"); n != 2 {
				t.Errorf("%d receives: the beat has undone the nack", n)
			}
		}, preset(membroker.SQSStandard), with(func(c *setup) { c.AckLinger = -1 }))
	}
}

// On a standard SQS queue an extension that comes too late is answered OK, and has done nothing.
func TestLateExtensionIsNone(t *testing.T) {
	bubble(t, until(2*time.Minute), func(r *rig) {
		begin := time.Now()
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			switch at := time.Since(begin); {
			case c.Op != onceqtest.Extend || at > 31*time.Second:
			case at < 25*time.Second:
				return faulty.Fail(broker.ErrThrottled)
			default:
				return faulty.Slow(32*time.Second - at)
			}
			return nil
		})
		r.send("a", "b")
		r.start()
		pass(40 * time.Second)
		if got := r.seen.of(""); len(got) == 0 || got[0].Outcome != "lost-before-claim" {
			t.Errorf("what waited, and is delivered again, ended as %+v", got)
		}
		pass(20 * time.Minute)
		r.wantStatus("a", dedupe.Done)
		r.wantStatus("b", dedupe.Done)
		r.wantQueue(0)
		if r.seen.started("a") != 1 || r.seen.started("b") != 1 {
			t.Errorf("%d and %d runs", r.seen.started("a"), r.seen.started("b"))
		}
	}, preset(membroker.SQSStandard), with(func(c *setup) { c.Concurrency = 1 }))
}

// The new receipt is kept alive, though the old one's delivery was lost.
func TestHandOverAfterALostDelivery(t *testing.T) {
	bubble(t, until(10*time.Minute), func(r *rig) {
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Extend && c.N == 1 {
				return faulty.Fail(broker.ErrReceiptExpired)
			}
			return nil
		})
		r.send("a")
		r.run(11 * time.Minute)
		r.wantOutcomes("a", "handed-over", "done")
		if n := r.q.received("a"); n != 2 {
			t.Errorf("%d receives", n)
		}
	})
}
