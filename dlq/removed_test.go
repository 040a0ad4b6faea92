package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// ledger is what may be removed, by the letters' keys: what was answered as sent, what was given to
// Export, and what a plan has removed.
type ledger map[string]string

// watched sees each ack of the dead-letter queue.
type watched struct {
	*faulty.Broker
	t    *testing.T
	may  ledger
	keys map[broker.Receipt]string
}

func (b *watched) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := b.Broker.Receive(ctx, o)
	for _, m := range ms {
		b.keys[m.Receipt] = m.Meta.Key
	}
	return ms, err
}

func (b *watched) Ack(ctx context.Context, rs []broker.Receipt) error {
	for _, r := range rs {
		if key := b.keys[r]; b.may[key] == "" {
			b.t.Errorf("the letter of %s is removed, and was neither sent nor purged", key)
		}
	}
	return b.Broker.Ack(ctx, rs)
}

// sent sees what the queue has answered.
type sent struct {
	*faulty.Broker
	may ledger
}

func (b *sent) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	ids, err := b.Broker.Send(ctx, ms)
	for i := range ms {
		if broker.ErrAt(err, i) == nil {
			b.may[ms[i].Meta.Key] = "sent"
		}
	}
	return ids, err
}

// The rule: no letter is removed before its send was answered, Export has stored it, or a plan has
// named it, whatever is called, whatever fails, and however it ends; and none is lost.
func TestNothingIsRemovedUnsent(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		became := map[string]int{}
		for seed := range uint64(12) {
			for _, what := range removeAtRandom(t, r, rand.New(rand.NewPCG(seed, 5)), fmt.Sprint("s", seed, "-")) {
				became[what]++
			}
		}
		if len(became) != 3 {
			t.Errorf("of the letters became %v, want some of each", became)
		}
	})
}

func removeAtRandom(t *testing.T, r *rig, rnd *rand.Rand, prefix string) ledger {
	may := ledger{}
	dead, to := &watched{Broker: r.dead, t: t, may: may, keys: map[broker.Receipt]string{}}, &sent{r.queue, may}
	const letters = 12
	for i := range letters {
		l := letterOf(fmt.Sprint(prefix, i), uint64(i+1))
		r.put(l)
		if rnd.IntN(4) == 0 {
			l.DedupID = "copy" + l.Meta.Key
			r.put(l)
		}
	}
	pass(time.Second)
	var mu sync.Mutex // extensions fail in goroutines of their own
	below := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	chance := func(n int) bool { return below(n) == 0 }
	fault := func(_ context.Context, c onceqtest.Call) faulty.Faults {
		switch {
		case c.Op == onceqtest.Extend && !chance(4), chance(12):
			return faulty.Fail(errFault)
		case c.Op == onceqtest.Send && !chance(3):
			return faulty.Fail(errFault).Only(below(2))
		case chance(12):
			return faulty.Lose(errFault)
		case chance(12):
			return faulty.Fail(broker.ErrReceiptExpired).Only(0)
		case chance(6):
			return faulty.SlowReply(4 * time.Second)
		}
		return nil
	}
	q := open(t, dead, &dlq.Options{Name: "dead", Visibility: max(time.Second, r.dead.Limits().MinHold), Wait: 2 * time.Second, CallTimeout: 3 * time.Second, RetryFor: time.Second, MaxHeld: 5 + below(40)})
	filter := func() (f dlq.Filter) {
		if chance(3) {
			f.Type = "charge"
		}
		if chance(3) {
			f.Max = 1 + below(letters)
		}
		return f
	}
	export := func(e dlq.Entry) error {
		if chance(8) {
			return errFault
		}
		may[e.Message.Meta.Key] = "exported"
		return nil
	}
	edit := func(*broker.Outgoing) error {
		if chance(5) {
			return errFault
		}
		return nil
	}
	for range 8 {
		r.dead.SetFault(fault)
		r.queue.SetFault(fault)
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		ended := time.AfterFunc(time.Duration(below(60))*time.Second, func() {
			if chance(2) {
				cancel()
			} else {
				close(stop)
			}
		})
		o := dlq.ReplayOptions{Filter: filter(), To: to, Edit: edit, Stop: stop}
		if chance(2) {
			o.Edit = nil
		}
		if chance(3) {
			o.PerSecond = 0.5
		}
		if o.Ramp = chance(3); o.Max != 1 && (o.Ramp || chance(3)) {
			o.Canary, o.CanaryWait = 1, 5*time.Second
		}
		po := dlq.PurgeOptions{Filter: filter(), Export: export, Stop: stop}
		po.All = po.Type == ""
		if po.All {
			po.Filter = dlq.Filter{}
		}
		switch below(8) {
		case 0:
			_, _ = q.PlanReplay(ctx, o)
		case 1:
			_, _ = q.PlanPurge(ctx, po)
		case 2:
			o.DryRun = true
			_, _ = q.Replay(ctx, o)
		case 3:
			po.DryRun = true
			_, _ = q.Purge(ctx, po)
		case 4:
			_, _ = q.Group(ctx, filter())
		case 5:
			_, _ = q.Replay(ctx, o)
		case 6:
			_, _ = q.Purge(ctx, po)
		case 7:
			p, _ := q.PlanReplay(ctx, o)
			if p == nil {
				break
			}
			o = dlq.ReplayOptions{Plan: p, To: to, Stop: stop, DryRun: chance(3)}
			for i := range p.Letters {
				switch l := &p.Letters[i]; {
				case chance(2):
				case chance(2):
					l.Decision = dlq.Leave
				case !o.DryRun:
					l.Decision, may[l.Key] = dlq.Remove, "removed by a plan"
				}
			}
			_, _ = q.Replay(ctx, o)
		}
		if err := errors.Join(q.CheckReplay(o), q.CheckPurge(po)); err != nil {
			t.Fatal(err)
		}
		ended.Stop()
		cancel()
	}
	r.dead.SetFault(nil)
	r.queue.SetFault(nil)
	pass(time.Hour) // what could not be handed back is hidden
	left := map[string]bool{}
	for _, m := range r.drain(r.dead) {
		left[m.Meta.Key] = true
	}
	for i := range letters {
		if key := fmt.Sprint(prefix, i); !left[key] && may[key] == "" {
			t.Errorf("%s is lost", key)
		}
	}
	r.drain(r.queue)
	return may
}
