package life

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
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func TestLongJobIsReceivedOnce(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub} {
		for _, o := range []rig.Option{func(*rig.Rig) {}, rig.NoStore} {
			t.Run(p.String(), func(t *testing.T) {
				rig.Bubble(t, rig.Works(20*time.Minute), func(r *rig.Rig) {
					r.Send("g/a")
					r.RunFor(21 * time.Minute)
					if n := r.Q.Received("a"); n != 1 {
						t.Errorf("%d receives", n)
					}
					r.WantQueue(0)
					rec := r.Seen.Of("a")[0]
					if rec.Outcome != "done" || rec.Process != 20*time.Minute || rec.Beats < 115 || rec.Beats > 150 {
						t.Errorf("the job report is %+v, want about 120 beats", rec)
					}
				}, rig.Preset(p), o)
			})
		}
	}
}

// A claim shorter than the visibility timeout, or longer, is kept all the same.
func TestLeaseAndVisibilityDiffer(t *testing.T) {
	for _, c := range []struct{ lease, visibility time.Duration }{
		{10 * time.Second, 5 * time.Minute}, {5 * time.Minute, 10 * time.Second}, {time.Hour, time.Hour}, {100 * time.Millisecond, 100 * time.Millisecond},
	} {
		rig.Bubble(t, rig.Works(3*time.Minute), func(r *rig.Rig) {
			r.Send("a")
			r.RunFor(4 * time.Minute)
			if n := r.Q.Received("a"); n != 1 || r.Seen.Started("a") != 1 {
				t.Errorf("%+v: %d receives, %d starts", c, n, r.Seen.Started("a"))
			}
			r.WantStatus("a", dedupe.Done)
		}, rig.With(func(cfg *rig.Setup) { cfg.Lease, cfg.Visibility = c.lease, c.visibility }))
	}
}

func TestWaitingMessagesAreHeld(t *testing.T) {
	rig.Bubble(t, rig.Works(5*time.Minute), func(r *rig.Rig) {
		keys := rig.Numbered("k", 11)
		r.Send(keys...)
		r.RunFor(56 * time.Minute)
		for _, k := range keys {
			if n := r.Q.Received(k); n != 1 {
				t.Errorf("%q was received %d times", k, n)
			}
			r.WantStatus(k, dedupe.Done)
		}
	}, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
}

func TestLostDeliveryDoesNotCancel(t *testing.T) {
	rig.Bubble(t, rig.Works(5*time.Minute), func(r *rig.Rig) {
		r.Send("a")
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Extend {
				return faulty.Fail(broker.ErrReceiptExpired)
			}
			return nil
		})
		r.RunFor(20 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
		if got := r.Seen.Outcomes("a"); got[len(got)-1] != "done" && got[len(got)-1] != "already-done" {
			t.Errorf("the deliveries ended as %q", got)
		}
	})
}

// A job of a group that loses its delivery goes on, too: whoever gets the message next finds its
// key in progress, and keeps the group's order.
func TestLostDeliveryInAGroup(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		rig.Takes(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, j.Key().Key)
		return context.Cause(ctx)
	}, func(r *rig.Rig) {
		r.Send("g/a", "g/b", "g/c")
		r.Start()
		rig.Pass(time.Second)
		other := r.Worker(nil)
		ctx, stop := context.WithCancel(r.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		r.Q.Expire(r.T, "a")
		rig.Pass(time.Hour)
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if want := []string{"a", "b", "c"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		for _, k := range ran {
			r.WantStatus(k, dedupe.Done)
		}
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSFIFO))
}

// Without a store the delivery is all there is.
func TestLostDeliveryWithoutAStoreCancels(t *testing.T) {
	var runs atomic.Int64
	cause := errors.New("none")
	rig.Bubble(t, func(ctx context.Context, _ *onceq.Job) error {
		if runs.Add(1) > 1 {
			return nil
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		return cause
	}, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(time.Second)
		r.Q.Expire(r.T, "a")
		rig.Pass(10 * time.Minute)
		if !errors.Is(cause, onceq.ErrLeaseLost) {
			t.Errorf("the cause is %v", cause)
		}
		r.WantQueue(0)
	}, rig.NoStore)
}

func TestExtensionErrorsInPassing(t *testing.T) {
	for _, o := range []rig.Option{func(*rig.Rig) {}, rig.NoStore} {
		rig.Bubble(t, rig.Works(10*time.Minute), func(r *rig.Rig) {
			r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend && c.N%3 != 0 {
					return faulty.Fail(broker.ErrThrottled)
				}
				return nil
			})
			r.Send("a", "g/b")
			r.RunFor(11 * time.Minute)
			for _, k := range []string{"a", "b"} {
				if n := r.Q.Received(k); n != 1 || r.Seen.Started(k) != 1 {
					t.Errorf("%q: %d receives, %d starts", k, n, r.Seen.Started(k))
				}
				r.WantOutcomes(k, "done")
			}
		}, o)
	}
}

func TestRenewalErrorsInPassing(t *testing.T) {
	rig.Bubble(t, rig.Works(10*time.Minute), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.Fault = func(c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Renew && c.N%3 != 0 {
					return faulty.Err(rig.ErrBoom, c.N%2 == 0)
				}
				return nil
			}
		})
		r.Send("a")
		r.RunFor(11 * time.Minute)
		r.WantOutcomes("a", "done")
	})
}

func TestNonsenseAnswersToRenewals(t *testing.T) {
	rig.Bubble(t, rig.Works(time.Minute), func(r *rig.Rig) {
		n := 0
		r.Store.Set(func(s *rig.Store) {
			s.OnRenew = func(_ []dedupe.Renewal, as []dedupe.Renewed) []dedupe.Renewed {
				switch n++; n % 3 {
				case 0:
					return append(as, as...)
				case 1:
					return nil
				}
				return as
			}
		})
		r.Send("a", "b")
		r.RunFor(2 * time.Minute)
		r.WantOutcomes("a", "done")
		r.WantOutcomes("b", "done")
	})
}

// A job outlives the broker's limit on holding a message under its claim alone.
func TestJobLongerThanTheBrokersLimit(t *testing.T) {
	rig.Bubble(t, rig.Works(15*time.Hour), func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(30 * time.Hour)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
		if n := r.Seen.Started("a"); n != 1 {
			t.Errorf("%d runs", n)
		}
		if n := r.Q.Received("a"); n < 2 || n > 4 {
			t.Errorf("%d receives", n)
		}
		if n := r.Logged.Count("a job nears the broker's limit", "under its claim alone"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		if n := r.Q.Refused(); n != 0 {
			t.Errorf("%d extensions were refused: the limit is known", n)
		}
	}, rig.Preset(membroker.SQSStandard))
}

func TestMessageWaitsLongerThanTheBrokersLimit(t *testing.T) {
	rig.Bubble(t, rig.Works(time.Second), func(r *rig.Rig) {
		r.Store.Fails(rig.ErrBoom, onceqtest.Claim)
		r.Send("a")
		r.Start()
		rig.Pass(20 * time.Hour)
		// It has no claim under which it could go on.
		if n := r.Logged.Count("a message nears the broker's limit", "the queue delivers it again"); n < 1 || n > 2 {
			t.Errorf("%d warnings", n)
		}
		if n := r.Logged.Count("under its claim"); n != 0 {
			t.Errorf("%d lines tell of a claim that nobody has", n)
		}
		r.Store.Heals()
		rig.Pass(time.Hour)
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
	}, rig.Preset(membroker.SQSStandard))
}

func TestQueueThatCannotExtend(t *testing.T) {
	for _, texts := range [][]string{{"a"}, {"g/a"}} {
		rig.Bubble(t, rig.Works(5*time.Minute), func(r *rig.Rig) {
			r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.Extends = false; return l }
			r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend {
					t.Error("an extension was asked for")
				}
				return nil
			})
			r.W = r.Worker(nil)
			r.Send(texts...)
			r.Start()
			rig.Pass(20 * time.Minute)
			r.WantStatus("a", dedupe.Done)
			r.WantQueue(0)
			if n := r.Seen.Started("a"); n != 1 {
				t.Errorf("%d runs", n)
			}
			if n := r.Logged.Count("cannot extend"); n != 1 {
				t.Errorf("%d warnings", n)
			}
		})
	}
}

// While the broker does not answer, other workers may get the messages that wait here. Such a
// message must not be started in vain.
func TestWaitingMessageWhoseDeliveryIsNotConfirmed(t *testing.T) {
	rig.Bubble(t, func(ctx context.Context, j *onceq.Job) error {
		if err := ctx.Err(); err != nil {
			t.Errorf("%q began with an ended context: %v", j.Message.Body, context.Cause(ctx))
			return err
		}
		rig.Takes(2 * time.Minute)
		return nil
	}, func(r *rig.Rig) {
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Extend {
				return faulty.Fail(rig.ErrBoom)
			}
			return nil
		})
		keys := rig.Numbered("k", 5)
		r.Send(keys...)
		r.Start()
		rig.Pass(30 * time.Minute)
		for _, k := range keys {
			if rec := r.Record(k); rec.Status != dedupe.Done || rec.Attempt != 1 {
				t.Errorf("%q: %v, attempt %d", k, rec.Status, rec.Attempt)
			}
		}
		r.WantQueue(0)
	}, rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
}

// A nack waits for a beat that is in flight, because a beat after the nack would hide the message
// for longer.
func TestBeatInFlightBeforeANack(t *testing.T) {
	h := func(context.Context, *onceq.Job) error {
		rig.Takes(10500 * time.Millisecond)
		return onceq.RetryAfter(5*time.Second, rig.ErrBoom)
	}
	for _, reply := range []time.Duration{2 * time.Second, 0} {
		rig.Bubble(t, h, func(r *rig.Rig) {
			r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
				if c.Op == onceqtest.Extend {
					return faulty.Slow(4 * time.Second).With(faulty.SlowReply(reply))
				}
				return nil
			})
			r.Send("a")
			r.Start()
			rig.Pass(25 * time.Second)
			if n := r.Q.Received("a"); n != 2 {
				t.Errorf("%d receives: the beat has undone the nack", n)
			}
		}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.AckLinger = -1 }))
	}
}

// On a standard SQS queue an extension that comes too late is answered OK, and has done nothing.
func TestLateExtensionIsNone(t *testing.T) {
	rig.Bubble(t, rig.Works(2*time.Minute), func(r *rig.Rig) {
		begin := time.Now()
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			switch at := time.Since(begin); {
			case c.Op != onceqtest.Extend || at > 31*time.Second:
			case at < 25*time.Second:
				return faulty.Fail(broker.ErrThrottled)
			default:
				return faulty.Slow(32*time.Second - at)
			}
			return nil
		})
		r.Send("a", "b")
		r.Start()
		rig.Pass(40 * time.Second)
		if got := r.Seen.Of(""); len(got) == 0 || got[0].Outcome != "lost-before-claim" {
			t.Errorf("what waited, and is delivered again, ended as %+v", got)
		}
		rig.Pass(20 * time.Minute)
		r.WantStatus("a", dedupe.Done)
		r.WantStatus("b", dedupe.Done)
		r.WantQueue(0)
		if r.Seen.Started("a") != 1 || r.Seen.Started("b") != 1 {
			t.Errorf("%d and %d runs", r.Seen.Started("a"), r.Seen.Started("b"))
		}
	}, rig.Preset(membroker.SQSStandard), rig.With(func(c *rig.Setup) { c.Concurrency = 1 }))
}

// The new receipt is kept alive, though the old one's delivery was lost.
func TestHandOverAfterALostDelivery(t *testing.T) {
	rig.Bubble(t, rig.Works(10*time.Minute), func(r *rig.Rig) {
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Extend && c.N == 1 {
				return faulty.Fail(broker.ErrReceiptExpired)
			}
			return nil
		})
		r.Send("a")
		r.RunFor(11 * time.Minute)
		r.WantOutcomes("a", "handed-over", "done")
		if n := r.Q.Received("a"); n != 2 {
			t.Errorf("%d receives", n)
		}
	})
}
