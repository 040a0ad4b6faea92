package webonceq

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

// TestWarnings: the page warns of workers that are paused, that stand still, also some of many, or
// that are not there, and of nothing else. Long jobs are no standstill.
func TestWarnings(t *testing.T) {
	full := func(d time.Duration) func(*control.WorkerStatus) {
		return func(c *control.WorkerStatus) { c.Busy, c.FullSince = 10, c.At.Add(-d) }
	}
	paused := func(why string) func(*control.WorkerStatus) {
		return func(c *control.WorkerStatus) { c.State, c.Paused = "paused", []string{why} }
	}
	for name, c := range map[string]struct {
		workers []func(*control.WorkerStatus)
		want    string // empty = nothing
	}{
		"well":             {[]func(*control.WorkerStatus){nil, nil}, ""},
		"by the program":   {[]func(*control.WorkerStatus){paused("local"), paused("local"), nil}, "The program itself has paused 2 workers."},
		"by a breaker":     {[]func(*control.WorkerStatus){paused("breaker"), nil}, "A breaker of the program has paused 1 worker."},
		"by a rule":        {[]func(*control.WorkerStatus){paused("rules")}, ""}, // which has a banner
		"some stand still": {[]func(*control.WorkerStatus){full(45 * time.Second), nil, nil}, "All slots of 1 worker of 3 are busy, and nothing has begun there for 45 s."},
		"all stand still":  {[]func(*control.WorkerStatus){full(45 * time.Second), full(50 * time.Second)}, "No worker has begun a job for 45 s."},
		"jobs that are long": {[]func(*control.WorkerStatus){func(c *control.WorkerStatus) {
			full(2 * time.Minute)(c)
			c.Durations = map[string]control.Quantiles{"report": {P95: 90 * time.Second}}
		}}, ""},
		"nobody": {nil, "Jobs wait, and no worker is live."},
	} {
		q := &ops.BoardQueue{QueueState: ops.QueueState{Queue: "orders", Depth: &broker.Depth{Visible: 3}}}
		for i, change := range c.workers {
			s := &control.WorkerStatus{At: time.Now(), Scope: "orders", State: "running", Slots: 10}
			if change != nil {
				change(s)
			}
			q.Workers = append(q.Workers, ops.WorkerState{Owner: "w-" + string(rune('1'+i)), State: s.State, Status: s})
		}
		q.Sum = q.Totals()
		got := (&ask{}).warningList(q)
		if want := slices.DeleteFunc([]string{c.want}, func(s string) bool { return s == "" }); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, " "), c.want)
		}
	}
}
