package fan_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq"
)

// TestFan: a parent goes on once all of its children are done, each of which ran once. It holds no
// slot meanwhile, and uses no attempt.
func TestFan(t *testing.T) {
	for _, n := range []int{0, 1, 99, 100, 101, 1203} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			play(t, n, func(w *family) {
				w.works(func(ctx context.Context, _ *onceq.Job, i int) error {
					if i == n/2 {
						return after(time.Minute)(ctx, nil, i)
					}
					return nil
				})
				w.Send("p")
				w.RunFor(3 * time.Minute)
				w.wants("p")
				if got := w.Record("p").Attempt; got != 1 {
					t.Errorf("the parent has used %d attempts, want 1", got)
				}
			})
		})
	}
}
