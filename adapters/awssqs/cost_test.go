package awssqs_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

// A message costs no more memory than it did: a receive and an ack of ten, on each transport.
// Without the race detector they take 841 allocations with 88,195 bytes, and 322 with 49,090. With
// it they take 858 and 108,062, 341 and 75,072: more bytes at times, because a sync.Pool then drops
// some of what it is given. The bounds are a tenth and a quarter above that. A time would depend on
// the machine, so none is asked for.
func TestCostOfTen(t *testing.T) {
	for name, c := range map[string]struct {
		over          awssqs.Transport
		allocs, bytes float64
	}{
		"SDK":  {awssqs.TransportSDK, 945, 135_000},
		"lean": {awssqs.TransportLean, 375, 94_000},
	} {
		t.Run(name, func(t *testing.T) {
			q := makeBroker(t, newCanned(t).client(), stubURL, &awssqs.Options{Transport: c.over})
			ten := func() {
				ms, err := q.Receive(context.Background(), broker.ReceiveOptions{Max: 10, Wait: -1, Visibility: time.Minute})
				if err != nil || len(ms) != 10 {
					t.Fatal(len(ms), err)
				}
				rs := make([]broker.Receipt, len(ms))
				for i, m := range ms {
					rs[i] = m.Receipt
				}
				if err := q.Ack(context.Background(), rs); err != nil {
					t.Fatal(err)
				}
			}
			ten() // what is made once
			const rounds = 200
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			allocs := testing.AllocsPerRun(rounds-1, ten)
			runtime.ReadMemStats(&after)
			bytes := float64(after.TotalAlloc-before.TotalAlloc) / rounds
			if allocs > c.allocs || bytes > c.bytes {
				t.Errorf("%v allocations and %.0f bytes; at most %v and %v may be", allocs, bytes, c.allocs, c.bytes)
			}
		})
	}
}
