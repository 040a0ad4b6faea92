package engine

import "sync/atomic"

// Fences notices that a store went back in time, as by the restore of a backup, or a failover to a
// replica that lacked the last commits. Where fences come in order (dedupe.Limits), a claim that is
// sent after another one was answered gets the higher fence. The store's own calls do not show it:
// all of them succeed, and give the fences of the hours before a second time.
//
// All engines of a Processor share one. It costs one atomic load and one store a batch.
type Fences struct{ highest atomic.Uint64 }

// Forget begins anew, with a store that went back. It answers the highest fence that was known.
func (f *Fences) Forget() uint64 { return f.highest.Swap(0) }

// Known is the highest fence that is known; whoever claims loads it before the claim is sent.
func (f *Fences) Known() uint64 { return f.highest.Load() }

// Learn raises what is known.
func (f *Fences) Learn(fence uint64) {
	for {
		known := f.highest.Load()
		if fence <= known || f.highest.CompareAndSwap(known, fence) {
			return
		}
	}
}
