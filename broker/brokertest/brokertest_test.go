package brokertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/suite"
)

const fifoWindow = 5 * time.Minute

// TestSound runs the suite on wrappers that change nothing. It shows that what fails below fails
// because of its fault.
func TestSound(t *testing.T) {
	for _, p := range []membroker.Preset{membroker.Memory, membroker.SQSFIFO} {
		t.Run(p.String(), func(t *testing.T) { Run(t, harness(p, nil)) })
	}
}

// TestHabits runs the suite on what a service may do and need not.
func TestHabits(t *testing.T) {
	t.Run("receipts of earlier deliveries work", func(t *testing.T) { Run(t, harness(sqs, receiptsFollow)) })
	t.Run("receipts of earlier deliveries are void", func(t *testing.T) {
		h := harness(sqs, nil)
		h.StaleReceiptsVoid = true
		Run(t, h)
	})
	t.Run("duplicates are told by group", func(t *testing.T) {
		h := harness(fifo, duplicatesByGroup)
		h.DedupPerGroup = true
		Run(t, h)
	})
	t.Run("a send takes long", func(t *testing.T) {
		const name = "failed-head-holds-group"
		late := harness(fifo, func(w *wrapped) {
			w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
				<-time.After(10 * time.Second)
				return w.Broker.Send(ctx, ms)
			}
		}).suite()
		late.Cases = slices.DeleteFunc(late.Cases, func(c suite.Case[*env, QueueOptions]) bool { return c.Name != name })
		late.Run(t)
	})
}

// TestFaultsAreFound runs cases on spoiled brokers.
func TestFaultsAreFound(t *testing.T) {
	var all []suite.Fault[*env, QueueOptions]
	for _, f := range faults() {
		all = append(all, suite.Fault[*env, QueueOptions]{Name: f.name, Fails: f.fails, On: f.suite})
	}
	harness(sqs, nil).suite().Prove(t, all)
}

// TestCases holds the number of the cases. It may only rise.
func TestCases(t *testing.T) { harness(sqs, nil).suite().Pin(t, 73, "../../docs/reliability.md") }

func TestKnownDifference(t *testing.T) {
	h := harness(membroker.SQSStandard, func(w *wrapped) {
		w.onMessage(func(m *broker.Message) { m.Attempt = 1 })
	})
	h.Known = map[string]string{"attempts-rise": "the emulator counts no receives"}
	Run(t, h)
}
