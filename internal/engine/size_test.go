package engine

import (
	"testing"
	"unsafe"
)

// What Job holds in package onceq: three words.
type job [3]unsafe.Pointer

// A run is one allocation; beyond 512 bytes it would be one of 576.
func TestSizeOfARun(t *testing.T) {
	if n := unsafe.Sizeof(Run[job]{}); n > 504 {
		t.Errorf("a run has %d bytes, want 504 at most", n)
	}
}

// A job that saves nothing allocates nothing for what it might have saved, also where its handler
// asks how the attempt before has ended.
func TestRunThatSavesNothing(t *testing.T) {
	r := new(Run[job])
	if n := testing.AllocsPerRun(100, func() {
		class, at := r.Last()
		if r.LastSaved() != "" || r.Limiter() != "" || class != "" || !at.IsZero() || !r.Due().IsZero() || r.Result() != nil {
			t.Error("a run that knows nothing tells of something")
		}
	}); n != 0 || r.later.Load() != nil || r.known != nil {
		t.Errorf("%v allocations; later %v, known %v", n, r.later.Load(), r.known)
	}
}
