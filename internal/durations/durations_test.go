package durations

import (
	"math"
	"testing"
	"time"
)

func TestSum(t *testing.T) {
	const most, least = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, c := range []struct{ a, b, want time.Duration }{
		{time.Hour, time.Minute, 61 * time.Minute},
		{time.Hour, -2 * time.Hour, -time.Hour},
		{most, 0, most},
		{most - 1, 1, most},
		{most, 1, most},
		{most, most, most},
		{most, least, -1},
		{least, 0, least},
		{least + 1, -1, least},
		{least, -1, least},
		{least, least, least},
	} {
		for _, got := range []time.Duration{Sum(c.a, c.b), Sum(c.b, c.a)} {
			if got != c.want {
				t.Errorf("Sum(%d, %d) is %d, want %d", c.a, c.b, got, c.want)
			}
		}
	}
}
