package visibility

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// Ten thousand leases at once: every call is full, sixteen at once, and one goroutine looks at
// them.
func TestManyLeasesHeldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		r := newRig(t, Options[int]{}, takes(20*time.Millisecond, nil))
		hs := held(n)
		r.Hold(hs...)
		for round := 1; round <= 3; round++ {
			for len(r.calls) < round*n/10 {
				wait(10 * time.Millisecond)
			}
			wait(time.Second)
			if len(r.calls) != round*n/10 || len(r.beats) != round*n || r.most != 16 {
				t.Fatalf("round %d: %d calls, %d beats, %d at once", round, len(r.calls), len(r.beats), r.most)
			}
		}
		r.silent(t)
		r.Release(hs...)
	})
}

// Leases that are held at random times, and have timeouts of their own, gather into full calls too.
func TestManyLeasesHeldAtRandomTimes(t *testing.T) {
	for _, timeouts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const n = 10_000
			r := newRig(t, Options[int]{}, takes(time.Millisecond, nil))
			hs := held(n)
			for i, h := range hs {
				if i%10 == 0 {
					wait(rand.N(2 * interval / (n / 10)))
				}
				h.Deadline = time.Now().Add(timeout)
				r.Hold(h)
			}
			from := len(r.calls)
			const intervals = 4
			for range intervals * 20 {
				if timeouts {
					for _, h := range hs[:n/2] {
						r.SetTimeout(h, time.Now().Add(rand.N(interval)))
					}
				}
				wait(interval / 20)
			}
			for _, w := range r.told() {
				if w.err != nil {
					t.Fatalf("told %v", w)
				}
			}
			calls := (len(r.calls) - from) / intervals
			t.Logf("timeouts %v: %d calls an interval, %d at once", timeouts, calls, r.most)
			// A beat comes after 7/8 to 1 of the interval, less the eighth by which it may go
			// along.
			if calls > 1000*100/80 {
				t.Errorf("timeouts %v: %d calls an interval", timeouts, calls)
			}
			r.Release(hs...)
		})
	}
}

// With nothing held there is no goroutine, and the timer fires once more at most.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := goroutines()
		r := newRig(t, Options[int]{}, nil)
		hs := held(100)
		r.Hold(hs...)
		wait(time.Minute)
		if n := goroutines() - before; n != 0 {
			t.Errorf("%d goroutines while nothing is due", n)
		}
		r.Release(hs...)
		wait(interval)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.wakes != never || r.timer.Stop() {
			t.Error("the timer is still set")
		}
	})
}

// With something held the timer fires for what is due, and for nothing else.
func TestTimerFiresForWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{}, nil)
		hs := held(3)
		r.Hold(hs...)
		fired, last := 0, int64(never)
		for range 6000 {
			wait(100 * time.Millisecond)
			r.mu.Lock()
			if r.wakes != last {
				fired, last = fired+1, r.wakes
			}
			r.mu.Unlock()
		}
		if most := len(r.calls) + 2; fired > most {
			t.Errorf("set %d times for %d calls", fired, len(r.calls))
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options[int]{Timeout: minTimeout, MaxBatch: 3, MaxCalls: 4, Revives: true},
			func(ctx context.Context, ls []int) error {
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(2 * time.Millisecond)):
				}
				errs := make([]error, len(ls))
				for i := range errs {
					errs[i] = []error{nil, nil, nil, errTransient, broker.ErrReceiptExpired, ErrLater}[rand.IntN(6)]
				}
				return broker.JoinEntries(errs)
			})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				hs := held(20)
				for i := range 300 {
					h := hs[rand.IntN(len(hs))]
					switch rand.IntN(7) {
					case 0, 1:
						// Only who has quiesced a lease may change it.
						if r.Quiesce(t.Context(), h) == nil {
							h.Lease, h.Deadline = g*1000+i, time.Now().Add(minTimeout)
							r.Hold(h)
						}
					case 2:
						r.Hold(hs...)
					case 3:
						r.Update(h, time.Now().Add(rand.N(2*minTimeout)))
					case 4:
						r.SetTimeout(h, time.Now().Add(rand.N(minTimeout)))
					case 5:
						_, _ = r.Deadline(h), r.Len()
					case 6:
						<-time.After(rand.N(time.Millisecond))
					}
				}
				if err := r.Quiesce(t.Context(), hs...); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.leases.Len() != 0 || r.waiting.Len() != 0 {
			t.Errorf("%d held, %d waiting at the end", r.leases.Len(), r.waiting.Len())
		}
		if r.most > 4 || slices.Max(r.calls) > 3 {
			t.Errorf("%d calls at once", r.most)
		}
	})
}

func TestMemoryOfALease(t *testing.T) {
	const n, most = 10_000, 500
	m := must.Get(New(func(context.Context, []int) error { return nil }, Options[int]{Timeout: time.Hour}))
	before := heapInUse()
	hs := held(n)
	m.Hold(hs...)
	each := int(heapInUse()-before) / n
	t.Logf("Held is %d bytes; %d a lease, with its place in the manager", unsafe.Sizeof(*hs[0]), each)
	if each > most {
		t.Errorf("%d bytes a lease, want %d at most", each, most)
	}
	m.Release(hs...)
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
