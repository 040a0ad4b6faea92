package letters

import (
	"context"
	"slices"
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

func keeps(r *rig.Rig) { r.Cfg.DeadLetter = onceq.KeepInQueue }

func TestKeepInQueue(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.PubSub} {
		t.Run(p.String(), func(t *testing.T) {
			rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
				r.Send("a")
				r.Start()
				rig.Pass(time.Minute)
				rec := r.Record("a")
				if rec.Status != dedupe.Released || rec.ErrClass != onceq.ClassPermanent {
					t.Errorf("the record is %+v", rec)
				}
				most := min(time.Hour, r.Q.Limits().MaxNack)
				if got := r.Q.Delays("a"); len(got) != 1 || got[0] > most || got[0] < most-time.Minute {
					t.Errorf("nacked with %v, want about %v", got, most)
				}
				if r.Q.Acked("a") != 0 {
					t.Error("acked")
				}
				rig.Pass(8 * time.Minute) // PubSub's longest is ten minutes
				if n := r.Q.Received("a"); n != 1 {
					t.Errorf("%d receives: the nack was not taken", n)
				}
				if n := r.Logged.Count("stays in the queue"); n != 1 {
					t.Errorf("%d log records", n)
				}
				r.WantQueue(1)
			}, rig.Preset(p), keeps)
		})
	}
}

func TestKeepInQueueLeavesItToTheRedrive(t *testing.T) {
	rig.Bubble(t, rig.Failing, func(r *rig.Rig) {
		target := rig.NewBroker(t, membroker.Options{Preset: membroker.SQSStandard, Name: "dead"})
		r.Q = rig.NewQueue(t, membroker.Options{Preset: membroker.SQSStandard, Redrive: &membroker.Redrive{MaxReceives: 38, To: target.Broker}})
		r.Cfg.Broker = r.Q
		r.W = r.Worker(nil)
		r.Send("a")
		r.Start()
		rig.Pass(40 * time.Hour) // well before SQS's four days are over
		r.WantQueue(0)
		if n := rig.Depth(t, target); n != 1 {
			t.Errorf("%d messages in the redrive's target", n)
		}
		if n := r.Seen.Started("a"); n != r.Q.Received("a") {
			t.Errorf("%d runs of %d receives: it may have been mended meanwhile", n, r.Q.Received("a"))
		}
		if r.Q.Acked("a") != 0 {
			t.Error("acked")
		}
	}, keeps)
}

func TestKeepInQueueOfWhatIsRefused(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		if err := r.Q.SendRaw(r.Context(), []byte("a"), nil); err != nil {
			t.Fatal(err)
		}
		r.RunFor(time.Second)
		if got := r.Q.Delays("a"); len(got) != 1 || got[0] != time.Hour {
			t.Errorf("nacked with %v", got)
		}
		r.WantQueue(1)
	}, keeps)
}

// A parked job is not released: that would run it again.
func TestKeepInQueueOfAParkedJob(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { panic("boom") }, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(24 * time.Hour)
		r.WantStatus("a", dedupe.Parked)
		r.WantQueue(1)
		if r.Seen.Started("a") != 1 || r.Q.Acked("a") != 0 {
			t.Errorf("%d runs, %d acks", r.Seen.Started("a"), r.Q.Acked("a"))
		}
	}, rig.Preset(membroker.PubSub), keeps, rig.Parks)
}

func TestKeepInQueueWarnsWithoutARedrive(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.RunFor(time.Second)
		if n := r.Logged.Count("no redrive policy"); n != 1 {
			t.Errorf("%d warnings", n)
		}
	}, keeps)
}

func TestRedriveBelowMaxAttemptsWarns(t *testing.T) {
	for _, c := range []struct{ receives, attempts, want int }{{3, 3, 1}, {4, 3, 0}, {100, -1, 1}} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Q = rig.NewQueue(t, membroker.Options{Redrive: &membroker.Redrive{MaxReceives: c.receives, To: rig.NewBroker(t, membroker.Options{}).Broker}})
			r.Cfg.Broker = r.Q
			r.W = r.Worker(nil)
			r.RunFor(time.Second)
			if n := r.Logged.Count("moves a message away"); n != c.want {
				t.Errorf("%d receives, %d attempts: %d warnings, want %d", c.receives, c.attempts, n, c.want)
			}
		}, rig.Most(c.attempts))
	}
}

// redriving is a broker whose redrive policy cannot be read.
type redriving struct {
	*rig.Queue
	policy func() error
}

func (b redriving) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{}, b.policy()
}

func TestRedrivePolicyThatCannotBeRead(t *testing.T) {
	for _, policy := range []func() error{func() error { return rig.ErrBoom }, func() error { panic("policy") }} {
		rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
			r.Cfg.Broker = redriving{r.Q, policy}
			r.W = r.Worker(nil)
			r.Send("a")
			r.RunFor(time.Second)
			r.WantStatus("a", dedupe.Done)
		})
	}
}

func TestDurableQueueWithAMemoryStoreWarns(t *testing.T) {
	rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
		r.Q.ChangeLimits = func(l broker.Limits) broker.Limits { l.Durable = true; return l }
		r.W = r.Worker(nil)
		r.RunFor(time.Second)
		if n := r.Logged.Count("the queue is durable and the store is not"); n != 1 {
			t.Errorf("%d warnings", n)
		}
	})
}

// SQS holds a delivery for 12 hours in all: a nack's delay counts.
func TestLongDelaysOnSQS(t *testing.T) {
	h := func(context.Context, *onceq.Job) error {
		rig.Takes(time.Hour)
		return onceq.RetryAfter(100*time.Hour, rig.ErrBoom)
	}
	rig.Bubble(t, h, func(r *rig.Rig) {
		r.Send("a")
		r.Start()
		rig.Pass(6 * time.Hour)
		if n := r.Q.Received("a"); n != 1 {
			t.Errorf("%d receives: the nack was not taken", n)
		}
		if got := r.Q.Delays("a"); len(got) == 0 || got[0] < 10*time.Hour || got[0] > 11*time.Hour {
			t.Errorf("nacked with %v, want about 11 hours", got)
		}
	}, rig.Preset(membroker.SQSStandard))
}

func TestNackThatTheBrokerCannotDoIsLogged(t *testing.T) {
	rig.Bubble(t, rig.Returns(rig.ErrBoom), func(r *rig.Rig) {
		r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Nack {
				return faulty.Fail(broker.ErrUnsupported)
			}
			return nil
		})
		r.Send("a")
		r.Start()
		rig.Pass(45 * time.Second)
		if n := len(r.Q.Delays("a")); n != 2 || r.Q.Received("a") != 2 {
			t.Errorf("%d nacks, %d receives: want one each, and again after the timeout", n, r.Q.Received("a"))
		}
		if n := r.Logged.Count("nack failed"); n != 2 {
			t.Errorf("%d log records", n)
		}
	}, rig.Steady)
}

func TestAckAndNackAreRepeated(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for _, err := range []error{nil, rig.ErrBoom} {
			rig.Bubble(t, rig.Returns(err), func(r *rig.Rig) {
				r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					if (c.Op == onceqtest.Ack || c.Op == onceqtest.Nack) && c.N <= 4 {
						return faulty.Err(broker.ErrThrottled, applied)
					}
					return nil
				})
				r.Send("a")
				r.Start()
				rig.Pass(5 * time.Second)
				if err == nil {
					r.WantQueue(0)
				}
				if n := r.Q.Received("a"); n > 4 {
					t.Errorf("%d receives", n)
				}
				if err != nil && !applied && !slices.Contains(r.Q.Delays("a"), 2*time.Second) {
					t.Errorf("nacked with %v", r.Q.Delays("a"))
				}
			}, rig.With(func(c *rig.Setup) { c.Defaults.Backoff = func(int, error) time.Duration { return 2 * time.Second } }))
		}
	}
}
