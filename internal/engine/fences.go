package engine

import (
	"sync/atomic"

	"github.com/onceq/onceq/dedupe"
)

// Fences notices that a store went back in time, as by the restore of a backup, or a failover to a
// replica that lacked the last commits. Where fences come in order (dedupe.Limits), a claim that is
// sent after another one was answered gets the higher fence. The store's own calls do not show it:
// all of them succeed, and give the fences of the hours before a second time.
//
// All engines of a Processor share one. It costs one atomic load and one store a batch.
type Fences struct{ highest atomic.Uint64 }

// Forget begins anew, with a store that went back. It answers the highest fence that was known.
func (f *Fences) Forget() uint64 { return f.highest.Swap(0) }

// note raises what is known.
func (f *Fences) note(fence uint64) {
	for {
		known := f.highest.Load()
		if fence <= known || f.highest.CompareAndSwap(known, fence) {
			return
		}
	}
}

// inOrder looks at the answers to claims that were sent when the highest fence was known. A repeated
// claim may get the fence of its first try, and is left out.
func (en *Engine[J]) inOrder(rs []*Run[J], answers []dedupe.Claim, known uint64) {
	var highest, back uint64
	for i, r := range rs {
		if c := &answers[i]; c.Err == nil && c.Outcome == dedupe.Won && r.tries == 0 {
			if f := c.Lease.Fence; f != 0 && f <= known {
				back = f
			}
			highest = max(highest, c.Lease.Fence)
		}
	}
	if back != 0 {
		en.o.WentBack(known, back)
	}
	en.o.Fences.note(highest)
}
