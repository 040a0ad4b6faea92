package dlq_test

import (
	"fmt"
	"testing"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// tenant is a letter of one tenant's job k. Each tenant has such a job, because the worker's
// ProcessorConfig.Key takes the tenant from the attribute.
func tenant(name string, change ...func(*broker.Outgoing)) broker.Outgoing {
	return letterOf("k", 7, append([]func(*broker.Outgoing){func(o *broker.Outgoing) {
		o.Attributes, o.DedupID = map[string]string{"tenant": name}, name
	}}, change...)...)
}

// Letters that differ in one attribute alone are of two jobs. A letter is lost if it is taken for a
// copy of the other, or if a FIFO queue swallows it.
func TestReplayTellsJobsApartByAttributes(t *testing.T) {
	nostore := func(o *broker.Outgoing) { o.Meta.Dead.Fence = 0; o.Meta.Dead.Attempts = 1 }
	for _, change := range []func(*broker.Outgoing){func(*broker.Outgoing) {}, nostore} {
		onEach(t, func(t *testing.T, r *rig) {
			r.put(tenant("a", change), tenant("b", change))
			r.report(r.mustReplay(dlq.ReplayOptions{}), 2, 2)
			r.depths(0, 2)
		})
	}
}

// One letter with its attributes beside it, and one with them folded, are still copies of each
// other.
func TestReplayKnowsFoldedCopies(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(tenant("a"), tenant("a", func(o *broker.Outgoing) {
			o.Meta.Dead.Attributes, o.Attributes, o.DedupID = o.Attributes, nil, "folded"
		}))
		r.report(r.mustReplay(dlq.ReplayOptions{}), 2, 1, 1)
		r.depths(0, 1)
	})
}

// A FIFO queue must not take a letter that was edited otherwise for the one before.
func TestReplayOfTwoEditsIsTwoMessages(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for n := range 2 {
			r.put(tenant("a", func(o *broker.Outgoing) { o.DedupID = fmt.Sprint(n) }))
			r.mustReplay(dlq.ReplayOptions{Edit: func(o *broker.Outgoing) error { o.Meta.MaxAttempts = n + 1; return nil }})
		}
		r.depths(0, 2)
	})
}

// The rule: on a FIFO queue the deduplication id of a replay holds the body too.
func TestReplayOfTwoBodiesIsTwoMessages(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		for n := range 2 {
			r.put(tenant("a", func(o *broker.Outgoing) { o.Body, o.DedupID = fmt.Append(nil, "body ", n), fmt.Sprint(n) }))
			r.mustReplay(dlq.ReplayOptions{})
		}
		r.depths(0, 2)
	})
}
