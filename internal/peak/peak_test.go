package peak

import (
	"sync"
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

// TestGaugeOfMany: of those that come in together none is lost.
func TestGaugeOfMany(t *testing.T) {
	for range 200 {
		var g Gauge
		var all sync.WaitGroup
		for range 8 {
			all.Go(g.In)
		}
		all.Wait()
		if g.Now() != 8 || g.Top() != 8 {
			t.Fatalf("8 came in: %d are under way, at most %d were", g.Now(), g.Top())
		}
	}
}
