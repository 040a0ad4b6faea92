package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// lastMoment is a Sender whose first call fails just before the hard end, and whose next one is good.
type lastMoment struct {
	copies
	fails time.Duration
	calls int
}

func (s *lastMoment) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if s.calls++; s.calls == 1 {
		time.Sleep(s.fails)
		return nil, rig.ErrBoom
	}
	return s.copies.Send(ctx, ms)
}

// A copy that is tried once more after Run has given its job up is due when the job is.
func TestCopyOfAnAbandonedJob(t *testing.T) {
	const wait = 2 * time.Hour
	to := &lastMoment{}
	var due time.Time
	woke := 0
	rig.Bubble(t, func(context.Context, *onceq.Job) error {
		if woke++; time.Now().Before(due) {
			t.Errorf("the job went on %v too early", time.Until(due))
		}
		return nil
	}, func(r *rig.Rig) {
		to.to = r.Q.Broker
		r.Cfg.Carry = to
		r.Cfg.DrainTimeout, r.Cfg.CallTimeout = -1, 8*time.Second
		r.W = r.Worker(nil)
		m := rig.Message("a")
		due = time.Now().Add(wait)
		m.Meta.Postponed = due
		r.Put(m)
		to.fails = onceq.DefaultSettleTimeout + 999*time.Millisecond
		r.Start()
		rig.Pass(time.Second)
		if err := r.Stop(); err == nil {
			r.Error("the job was not abandoned")
		}
		rig.Pass(time.Minute)
		if to.sent != 1 {
			r.Errorf("%d copies", to.sent)
		}
		r.RunFor(wait + time.Hour)
		r.Letters() // the queue has moved the message itself
		r.WantStatus("a", dedupe.Done)
		r.WantQueue(0)
		if woke != 1 {
			r.Errorf("it woke %d times", woke)
		}
	}, redriven(1), rig.Warnings)
}
