package ops_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

// keeping is a queue that tells how long it keeps messages, or does not.
type keeping struct {
	broker.Broker
	kept time.Duration
	err  error
}

func (k keeping) Redrive(context.Context) (broker.RedrivePolicy, error) {
	return broker.RedrivePolicy{MaxReceives: 5, Target: "orders-dead", Retention: k.kept}, k.err
}

// TestPauseThatOutlastsTheQueue: what waits would be deleted, whatever is paused. The operator is
// told, and may insist. A queue that does not answer must not keep anybody from pausing it.
func TestPauseThatOutlastsTheQueue(t *testing.T) {
	const day = 24 * time.Hour
	bubble(t, ops.Options{}, func(r *rig) {
		away := errors.New("away")
		for name, c := range map[string]struct {
			queue   keeping
			rule    control.Rule
			d       time.Duration
			refused bool
		}{
			"the whole queue":         {keeping{kept: 4 * day}, control.Rule{Queue: "orders"}, 7 * day, true},
			"a type":                  {keeping{kept: 4 * day}, control.Rule{Queue: "orders", Type: "charge"}, 7 * day, true},
			"all queues":              {keeping{kept: 4 * day}, control.Rule{}, 7 * day, true},
			"within":                  {keeping{kept: 14 * day}, control.Rule{Queue: "orders"}, 7 * day, false},
			"for ever":                {keeping{}, control.Rule{Queue: "orders"}, 30 * day, false},
			"the queue does not tell": {keeping{err: away}, control.Rule{Queue: "orders"}, 7 * day, false},
			"it cannot":               {keeping{err: broker.ErrUnsupported}, control.Rule{Queue: "orders", Type: "charge"}, 7 * day, false},
		} {
			c.queue.Broker = r.queue
			other := must(membroker.New(&membroker.Options{Name: "mails"}))
			o := must(ops.New([]ops.Target{{Name: "mails", Queue: other, Store: r.store}, {Name: "orders", Queue: c.queue, Store: r.store}}, &ops.Options{By: "ana"}))
			c.rule.Do, c.rule.Until, c.rule.Reason = control.Pause, time.Now().Add(c.d), "x"
			p, perr := o.Cost(r.Context(), c.rule)
			_, err := o.Pause(r.Context(), c.rule, &ops.RuleOptions{Follow: -1})
			if c.refused != (errors.Is(err, ops.ErrRefused) && errors.As(perr, new(*control.CostError)) && strings.Contains(err.Error(), "keeps a message for 4d")) || !c.refused && err != nil {
				r.Errorf("%s: %v, %v", name, err, perr)
			}
			if c.queue.err == away && !errors.Is(p.Unread, away) {
				r.Errorf("%s: %+v", name, p)
			}
			if _, err := o.Pause(r.Context(), c.rule, &ops.RuleOptions{Follow: -1, Force: true}); err != nil {
				r.Errorf("%s, forced: %v", name, err)
			}
		}
	})
}
