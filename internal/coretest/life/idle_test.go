package life

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

// TestIdle: a worker that has nothing to do waits in its long polls, and does nothing else.
func TestIdle(t *testing.T) {
	for _, c := range []struct {
		name    string
		preset  membroker.Preset
		pollers int
		waiting int64
	}{
		{"one poller", membroker.SQSStandard, 1, 1},
		{"three pollers", membroker.SQSStandard, 3, 1},
		{"ordered groups", membroker.SQSFIFO, 2, 1},
		{"another wait", membroker.PubSub, 2, 1},
		{"requests are not billed", membroker.Memory, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig.Bubble(t, rig.Returns(nil), func(r *rig.Rig) {
				r.Start()
				r.Send("g1/a", "g2/b", "g1/c", "g3/d") // what a job leaves behind must be gone as well
				rig.Pass(30 * time.Second)
				r.WantQueue(0)

				calls := make(map[onceqtest.Op]*atomic.Int64)
				for _, op := range []onceqtest.Op{onceqtest.Receive, onceqtest.Ack, onceqtest.Nack, onceqtest.Extend, onceqtest.Send} {
					calls[op] = new(atomic.Int64)
				}
				r.Q.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					calls[c.Op].Add(1)
					return nil
				})
				store := storeCalls(r)
				wait := r.Q.Limits().MaxWait
				rig.Pass(time.Hour)
				want := int64(time.Hour/wait) * c.waiting
				if n := calls[onceqtest.Receive].Load(); n != want {
					t.Errorf("%d receives in an hour, want %d: one every %v from each of %d pollers", n, want, wait, c.waiting)
				}
				for _, op := range []onceqtest.Op{onceqtest.Ack, onceqtest.Nack, onceqtest.Extend, onceqtest.Send} {
					if n := calls[op].Load(); n != 0 {
						t.Errorf("%d calls of %v", n, op)
					}
				}
				if now := storeCalls(r); !slices.Equal(now, store) {
					t.Errorf("claims, renewals and settlements: %v, and %v an hour before", now, store)
				}
				r.NoLetters()
			}, rig.Preset(c.preset), rig.With(func(cfg *rig.Setup) { cfg.Pollers, cfg.Concurrency = c.pollers, 2000 }))
		})
	}
}

func storeCalls(r *rig.Rig) []int64 {
	return []int64{r.Store.Claims.Load(), r.Store.Renews.Load(), r.Store.Settles.Load()}
}

// TestAllocations keeps a job, from send to ack with the heartbeat on, within its number of
// allocations and bytes.
func TestAllocations(t *testing.T) {
	const jobs = 20_000
	for name, c := range map[string]struct {
		run   loop
		most  float64
		bytes float64
	}{
		"64 handlers": {runWorker, 4.5, 3500},
		"one handler": {runAlone, 22, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			best := cost{allocs: 1e9, bytes: 1e9}
			for range 3 { // what another goroutine of the process allocates meanwhile is not the worker's
				got := measured(t, benchStore(t), jobs, c.run)
				best.allocs, best.bytes = min(best.allocs, got.allocs), min(best.bytes, got.bytes)
				if best.allocs <= c.most && best.bytes <= c.bytes {
					break
				}
			}
			t.Logf("%.2f allocations and %.0f bytes a job", best.allocs, best.bytes)
			if best.allocs > c.most || best.bytes > c.bytes {
				t.Errorf("%.2f allocations and %.0f bytes a job, want at most %.1f and %.0f", best.allocs, best.bytes, c.most, c.bytes)
			}
		})
	}
}
