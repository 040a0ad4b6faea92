package onceq_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func keeps(r *rig) { r.cfg.DeadLetter = onceq.KeepInQueue }

func TestKeepInQueue(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.PubSub} {
		t.Run(p.String(), func(t *testing.T) {
			bubble(t, failing, func(r *rig) {
				r.send("a")
				r.start()
				pass(time.Minute)
				rec := r.record("a")
				if rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassPermanent {
					t.Errorf("the record is %+v", rec)
				}
				most := min(time.Hour, r.q.Limits().MaxNack)
				if got := r.q.delays("a"); len(got) != 1 || got[0] > most || got[0] < most-time.Minute {
					t.Errorf("nacked with %v, want about %v", got, most)
				}
				if r.q.acked("a") != 0 {
					t.Error("acked")
				}
				pass(8 * time.Minute) // PubSub's longest is ten minutes
				if n := r.q.received("a"); n != 1 {
					t.Errorf("%d receives: the nack was not taken", n)
				}
				if n := r.log.count("stays in the queue"); n != 1 {
					t.Errorf("%d log records", n)
				}
				r.wantQueue(1)
			}, preset(p), keeps)
		})
	}
}

func TestKeepInQueueLeavesItToTheRedrive(t *testing.T) {
	bubble(t, failing, func(r *rig) {
		target := newBroker(t, membroker.Options{Preset: membroker.SQSStandard, Name: "dead"})
		r.q = newQueue(t, membroker.Options{Preset: membroker.SQSStandard, Redrive: &membroker.Redrive{MaxReceives: 38, To: target.Broker}})
		r.cfg.Broker = r.q
		r.w = r.worker(nil)
		r.send("a")
		r.start()
		pass(40 * time.Hour) // well before SQS's four days are over
		r.wantQueue(0)
		if n := depth(t, target); n != 1 {
			t.Errorf("%d messages in the redrive's target", n)
		}
		if n := r.seen.started("a"); n != r.q.received("a") {
			t.Errorf("%d runs of %d receives: it may have been mended meanwhile", n, r.q.received("a"))
		}
		if r.q.acked("a") != 0 {
			t.Error("acked")
		}
	}, keeps)
}

func TestKeepInQueueOfWhatIsRefused(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		if err := r.q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
			t.Fatal(err)
		}
		r.run(time.Second)
		if got := r.q.delays("a"); len(got) != 1 || got[0] != time.Hour {
			t.Errorf("nacked with %v", got)
		}
		r.wantQueue(1)
	}, keeps)
}

// A parked job is not released: that would run it again.
func TestKeepInQueueOfAParkedJob(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { panic("boom") }, func(r *rig) {
		r.send("a")
		r.start()
		pass(24 * time.Hour)
		r.wantStatus("a", dedupe.Parked)
		r.wantQueue(1)
		if r.seen.started("a") != 1 || r.q.acked("a") != 0 {
			t.Errorf("%d runs, %d acks", r.seen.started("a"), r.q.acked("a"))
		}
	}, preset(membroker.PubSub), keeps, parks)
}

func TestKeepInQueueWarnsWithoutARedrive(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.run(time.Second)
		if n := r.log.count("no redrive policy"); n != 1 {
			t.Errorf("%d warnings", n)
		}
	}, keeps)
}

func TestRedriveBelowMaxAttemptsWarns(t *testing.T) {
	for _, c := range []struct{ receives, attempts, want int }{{3, 3, 1}, {4, 3, 0}, {100, -1, 1}} {
		bubble(t, returns(nil), func(r *rig) {
			r.q = newQueue(t, membroker.Options{Redrive: &membroker.Redrive{MaxReceives: c.receives, To: newBroker(t, membroker.Options{}).Broker}})
			r.cfg.Broker = r.q
			r.w = r.worker(nil)
			r.run(time.Second)
			if n := r.log.count("moves a message away"); n != c.want {
				t.Errorf("%d receives, %d attempts: %d warnings, want %d", c.receives, c.attempts, n, c.want)
			}
		}, most(c.attempts))
	}
}

// redriving is a broker whose redrive policy cannot be read.
type redriving struct {
	*queue
	policy func() error
}

func (b redriving) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{}, b.policy()
}

func TestRedrivePolicyThatCannotBeRead(t *testing.T) {
	for _, policy := range []func() error{func() error { return errBoom }, func() error { panic("policy") }} {
		bubble(t, returns(nil), func(r *rig) {
			r.cfg.Broker = redriving{r.q, policy}
			r.w = r.worker(nil)
			r.send("a")
			r.run(time.Second)
			r.wantStatus("a", dedupe.Done)
		})
	}
}

func TestDurableQueueWithAMemoryStoreWarns(t *testing.T) {
	bubble(t, returns(nil), func(r *rig) {
		r.q.limits = func(l broker.Limits) broker.Limits { l.Durable = true; return l }
		r.w = r.worker(nil)
		r.run(time.Second)
		if n := r.log.count("the queue is durable and the store is not"); n != 1 {
			t.Errorf("%d warnings", n)
		}
	})
}

// SQS holds a delivery for 12 hours in all: a nack's delay counts.
func TestLongDelaysOnSQS(t *testing.T) {
	h := func(context.Context, *onceq.Job) error {
		takes(time.Hour)
		return onceq.RetryAfter(100*time.Hour, errBoom)
	}
	bubble(t, h, func(r *rig) {
		r.send("a")
		r.start()
		pass(6 * time.Hour)
		if n := r.q.received("a"); n != 1 {
			t.Errorf("%d receives: the nack was not taken", n)
		}
		if got := r.q.delays("a"); len(got) == 0 || got[0] < 10*time.Hour || got[0] > 11*time.Hour {
			t.Errorf("nacked with %v, want about 11 hours", got)
		}
	}, preset(membroker.SQSStandard))
}

func TestNackThatTheBrokerCannotDoIsLogged(t *testing.T) {
	bubble(t, returns(errBoom), func(r *rig) {
		r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Nack {
				return faulty.Fail(broker.ErrUnsupported)
			}
			return nil
		})
		r.send("a")
		r.start()
		pass(45 * time.Second)
		if n := len(r.q.delays("a")); n != 2 || r.q.received("a") != 2 {
			t.Errorf("%d nacks, %d receives: want one each, and again after the timeout", n, r.q.received("a"))
		}
		if n := r.log.count("nack failed"); n != 2 {
			t.Errorf("%d log records", n)
		}
	}, steady)
}

func TestAckAndNackAreRepeated(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for _, err := range []error{nil, errBoom} {
			bubble(t, returns(err), func(r *rig) {
				r.q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					if (c.Op == onceqtest.Ack || c.Op == onceqtest.Nack) && c.N <= 4 {
						return faulty.Err(broker.ErrThrottled, applied)
					}
					return nil
				})
				r.send("a")
				r.start()
				pass(5 * time.Second)
				if err == nil {
					r.wantQueue(0)
				}
				if n := r.q.received("a"); n > 4 {
					t.Errorf("%d receives", n)
				}
				if err != nil && !applied && !slices.Contains(r.q.delays("a"), 2*time.Second) {
					t.Errorf("nacked with %v", r.q.delays("a"))
				}
			}, with(func(c *setup) { c.Defaults.Backoff = func(int, error) time.Duration { return 2 * time.Second } }))
		}
	}
}
