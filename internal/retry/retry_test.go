package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	for n, most := range map[int]time.Duration{
		-1: 50 * time.Millisecond, 0: 50 * time.Millisecond, 1: 50 * time.Millisecond, 2: 100 * time.Millisecond,
		7: 3200 * time.Millisecond, 8: 5 * time.Second, 1 << 40: 5 * time.Second,
	} {
		for range 100 {
			if d := Pause(n); d < most/2 || d > most {
				t.Errorf("Pause(%d) is %v, want %v to %v", n, d, most/2, most)
			}
		}
	}
}

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, c := range []struct {
			d, took time.Duration
			goes    bool
		}{{20 * time.Second, 20 * time.Second, true}, {time.Hour, 40 * time.Second, false}, {0, 0, false}} {
			begin := time.Now()
			if goes := Rest(ctx, c.d); goes != c.goes || time.Since(begin) != c.took {
				t.Errorf("Rest(%v) is %v after %v, want %v after %v", c.d, goes, time.Since(begin), c.goes, c.took)
			}
		}
	})
}
