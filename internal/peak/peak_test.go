package peak

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestGauge: the most is what was under way at once since the last Reset, which counts nothing out.
func TestGauge(t *testing.T) {
	var g Gauge
	want := func(now, most int) {
		t.Helper()
		if g.Now() != now || g.Top() != most {
			t.Errorf("%d are under way, and at most %d were: want %d and %d", g.Now(), g.Top(), now, most)
		}
	}
	want(0, 0)
	g.In()
	g.In()
	g.Out()
	g.In()
	want(2, 2)
	g.Out()
	want(1, 2)
	g.Reset()
	want(1, 0)
	g.In()
	want(2, 2)
}

// TestGaugeOfTwo: of two that come in at once neither is lost.
func TestGaugeOfTwo(t *testing.T) {
	for range 20_000 {
		var g Gauge
		var ready atomic.Int32
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				for ready.Add(1); ready.Load() < 2; { // neither waits in a queue
					runtime.Gosched()
				}
				g.In()
			})
		}
		both.Wait()
		if g.Now() != 2 || g.Top() != 2 {
			t.Fatalf("2 came in: %d are under way, at most %d were", g.Now(), g.Top())
		}
	}
}
