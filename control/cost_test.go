package control_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/backoff"
)

func TestCost(t *testing.T) {
	for _, c := range []struct {
		d                 time.Duration
		receives, of, max int
		refused           bool
	}{
		{time.Minute, 5, 10, 15, false},
		{time.Minute, 5, 10, 14, true},
		{15 * time.Minute, 5, 10, 15, false},
		{15*time.Minute + 1, 6, 10, 15, true},
		{24 * time.Hour, 100, 10, 110, false},
		{24 * time.Hour, 100, 10, 109, true},
		{24 * time.Hour, 100, 10, 0, false}, // the queue moves nothing
		{24 * time.Hour, 100, -1, 100, false},
		{24 * time.Hour, 100, -1, 99, true},
	} {
		p := control.Cost{For: c.d, MaxReceives: c.max, MaxAttempts: c.of, Queue: "orders", Target: "orders-dead"}
		if err := p.Check(); p.Receives() != c.receives || (err != nil) != c.refused {
			t.Errorf("%+v: %d receives, %v", p, p.Receives(), err)
		}
	}
	err := control.Cost{For: 24 * time.Hour, MaxReceives: 40, MaxAttempts: 10, Queue: "orders", Target: "orders-dead"}.Check()
	const want = "orders moves a message to orders-dead after 40 receives; a pause of 24h costs about 100. Pause the queue, or raise maxReceiveCount"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	for _, c := range []struct {
		d, kept, oldest time.Duration
		want            string
	}{
		{30 * 24 * time.Hour, 0, 0, ""}, // for ever, or nobody knows
		{84 * time.Hour, 96 * time.Hour, 0, ""},
		{85 * time.Hour, 96 * time.Hour, 0, "orders keeps a message for 4d, paused or not; a pause of 3d13h deletes what waits. Pause for 3d12h at most, or make the queue keep messages for longer"},
		{time.Hour, 96 * time.Hour, 83 * time.Hour, ""},
		{time.Hour, 96 * time.Hour, 83*time.Hour + 30*time.Minute, "orders keeps a message for 4d, paused or not, and its oldest has waited for 3d12h; a pause of 1h deletes what waits. Pause for 30m at most, or make the queue keep messages for longer"},
		{time.Hour, 96 * time.Hour, 90 * time.Hour, "orders keeps a message for 4d, paused or not, and its oldest has waited for 3d18h; a pause of 1h deletes what waits. Make the queue keep messages for longer"},
	} {
		err, got := (control.Cost{For: c.d, Kept: c.kept, Oldest: c.oldest, Queue: "orders"}).Check(), ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v of %v: %q, want %q", c.d, c.kept, got, c.want)
		}
	}
	// The sum of what a message is given back for covers the pause with the receives that the price
	// has, also where each is an eighth shorter.
	for _, d := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour} {
		n, at := 0, time.Duration(0)
		for ; at < d; n++ {
			at += max(time.Second, backoff.For(d-at, n+1))
		}
		if most := (control.Cost{For: d}).Receives(); n > most {
			t.Errorf("a pause of %v costs %d receives, more than %d", d, n, most)
		}
	}
}
