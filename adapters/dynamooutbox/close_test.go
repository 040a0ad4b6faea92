package dynamooutbox

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
)

// TestCloseDuringAClaim: a claim that is under way when Close begins is given back as well, so that
// another relay need not wait for its end.
func TestCloseDuringAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		next := w.outbox(nil)
		p := new(onceqtest.Process)
		p.At(onceqtest.Fault{Op: onceqtest.Claim, Times: -1, Kind: onceqtest.Slow, Delay: 2 * time.Second})
		b := newOutbox(t, w.f.client(), testTable, testQueue, p.Store(w.leases), nil)
		w.put(next, keyed("a"))
		received := make(chan int, 1)
		go func() {
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 10 * time.Second})
			if err != nil && !errors.Is(err, broker.ErrClosed) {
				t.Error(err)
			}
			received <- len(ms)
		}()
		pass(time.Second)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		pass(3 * time.Second) // the claim was there before that
		want(t, next, 1, "a")
		if n := <-received; n != 0 {
			t.Errorf("the relay that was closed has brought %d messages", n)
		}
	})
}

// TestCloseBeforeAClaim: a receive that has begun before Close claims nothing after it.
func TestCloseBeforeAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		next := w.outbox(nil)
		b := newOutbox(t, w.f.client(), testTable, testQueue, w.leases, nil) // its settings are not checked yet
		w.put(next, keyed("a"))
		w.f.before = func(string, object) {
			w.f.before = nil
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); len(ms) > 0 || !errors.Is(err, broker.ErrClosed) {
			t.Errorf("%q, %v, want %v", bodies(ms), err, broker.ErrClosed)
		}
		want(t, next, 1, "a")
	})
}
