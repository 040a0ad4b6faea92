package snippets

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/onceq/onceq/dedupe/memstore"
)

// TestOutline: the outline in onceq's package comment does what it says.
func TestOutline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		queue, dead := newQueue(t), newQueue(t)
		store, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := place(ctx, queue, Order{"A-1", 1250}); err != nil {
				t.Fatal(err)
			}
		}
		b, ended := &fakeBank{}, make(chan error, 1)
		go func() { ended <- work(ctx, queue, dead, store, b) }()
		synctest.Wait()
		stop()
		if err := <-ended; err != nil || b.charges != 1 {
			t.Errorf("%v, %d charges, want 1", err, b.charges)
		}
	})
}
