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

func TestIsBare(t *testing.T) {
	for d, want := range map[time.Duration]bool{
		math.MinInt64: false, -30: false, 0: false, 1: true, 30: true,
		time.Millisecond - 1: true, time.Millisecond: false, math.MaxInt64: false,
	} {
		if got := IsBare(d); got != want {
			t.Errorf("IsBare(%d) is %v, want %v", d, got, want)
		}
	}
}

func TestAskUnit(t *testing.T) {
	for got, want := range map[string]string{
		AskUnit(30):            "30ns is below 1ms; is its unit missing?",
		Below(10, time.Second): "10ns is below 1s; is its unit missing?",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
