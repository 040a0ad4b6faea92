package engine

import (
	"sync"
	"sync/atomic"

	"github.com/onceq/onceq/internal/steps"
)

// saved is what a run's job has saved.
type saved struct {
	// saving has room for the one who saves, and keeps it while the store is asked. Who has it
	// alone changes form, last, no and unsure.
	saving chan struct{}

	mu   sync.Mutex // guards what follows; it is held for a moment
	form *steps.Form
	no   int    // of the last save, stored or not
	last string // the step that was saved last, and is known to be stored
	// unsure is the step of which nobody knows whether it is stored, and the form with it; "" =
	// none.
	unsure string
	// given has the names under which this run has had a value; false = a step of that name runs.
	given map[string]bool

	// asks is what is on its way to the store; nil = nobody waits. The carrier reads it without mu.
	asks atomic.Pointer[asked]
}

// asked is a state on its way to the store.
type asked struct {
	state []byte
	no    int
	tries int        // the carrier's
	done  chan error // takes one answer
	// why is the store's last answer that was none, for people.
	why atomic.Pointer[string]
}

// lastIn is the step of a state that was saved last; "" = none, or nobody can say.
func lastIn(state []byte) string {
	if f, err := steps.Decode(state); err == nil {
		return f.Last()
	}
	return ""
}
