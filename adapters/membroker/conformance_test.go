package membroker_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/broker/brokertest"
	"github.com/onceq/onceq/internal/must"
)

func TestConformance(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub} {
		t.Run(p.String(), func(t *testing.T) {
			h := brokertest.Harness{
				Virtual: true, StaleReceiptsVoid: true,
				Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
					return openQueue(t, p, o)
				},
			}
			if p == membroker.SQSFIFO {
				h.DedupWindow = 5 * time.Minute
			}
			brokertest.Run(t, h)
		})
	}
}

func openQueue(t testing.TB, p membroker.Preset, o brokertest.QueueOptions) brokertest.Queue {
	options := membroker.Options{Preset: p, Visibility: o.Visibility}
	var q brokertest.Queue
	if o.MaxReceives > 0 {
		letters := newBroker(t, options)
		options.Redrive = &membroker.Redrive{MaxReceives: o.MaxReceives, To: letters}
		q.DeadLetters = letters
	}
	b := newBroker(t, options)
	q.Broker, q.Close, q.SendRaw = b, b.Close, b.SendRaw
	return q
}

func newBroker(t testing.TB, o membroker.Options) *membroker.Broker {
	return must.Get(membroker.New(&o))
}

var _ broker.Broker = (*membroker.Broker)(nil)
