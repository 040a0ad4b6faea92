package claims

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// TestSameKeyInOneReceive: where messages with one key come together, the store answers each of
// them. Where their job was done long ago, they must not wait for a lease that nobody holds.
func TestSameKeyInOneReceive(t *testing.T) {
	rig.Bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig.Rig) {
		r.Send("k")
		r.RunFor(time.Second)
		r.Send("k", "k", "k")
		r.RunFor(time.Second)
		if got := r.Seen.Outcomes("k"); !slices.Equal(got, []string{"done", "already-done", "already-done", "already-done"}) {
			t.Errorf("the deliveries of k ended as %q", got)
		}
		r.WantQueue(0)
	})
}
