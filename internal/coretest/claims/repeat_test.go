package onceq_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq"
)

// TestSameKeyInOneReceive: where messages with one key come together, the store answers each of
// them. Where their job was done long ago, they must not wait for a lease that nobody holds.
func TestSameKeyInOneReceive(t *testing.T) {
	bubble(t, func(context.Context, *onceq.Job) error { return nil }, func(r *rig) {
		r.send("k")
		r.run(time.Second)
		r.send("k", "k", "k")
		r.run(time.Second)
		if got := r.seen.outcomes("k"); !slices.Equal(got, []string{"done", "already-done", "already-done", "already-done"}) {
			t.Errorf("the deliveries of k ended as %q", got)
		}
		r.wantQueue(0)
	})
}
