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
