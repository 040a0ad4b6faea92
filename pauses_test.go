package onceq

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
)

// TestPausesForTwoReasons: neither the program nor an operator ends the other's pause, in whatever
// order they come and go.
func TestPausesForTwoReasons(t *testing.T) {
	var ran atomic.Int32
	inside(t, 3, func(c *worked) {
		c.Handler = HandlerFunc(func(context.Context, *Job) error { ran.Add(1); return nil })
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil }
	}, func(w *Worker) {
		<-time.After(time.Second)
		wants := func(state State, jobs int, reasons ...string) {
			t.Helper()
			<-time.After(time.Minute)
			synctest.Wait()
			h := w.Health()
			if s := w.Stats(); h.State != state || !slices.Equal(s.Paused, reasons) || int(ran.Load()) != jobs {
				t.Errorf("%s, paused for %q, %d jobs have run; want %s, %q, %d", h.State, s.Paused, ran.Load(), state, reasons, jobs)
			}
			if len(h.Reasons) != len(reasons) || h.Ready(0) != nil || h.Live(nil) != nil {
				t.Errorf("health is %+v; ready: %v, live: %v", h, h.Ready(0), h.Live(nil))
			}
		}
		send := func() {
			t.Helper()
			if err := Send(t.Context(), w.queue.(broker.Sender), make([]broker.Outgoing, 1)); err != nil {
				t.Fatal(err)
			}
		}
		wants(StateRunning, 3)
		w.pause(engine.ByRules)
		send()
		wants(StatePaused, 3, ReasonRules)
		w.Resume() // there is no pause of the program
		wants(StatePaused, 3, ReasonRules)
		w.Pause()
		wants(StatePaused, 3, ReasonLocal, ReasonRules)
		w.Resume()
		wants(StatePaused, 3, ReasonRules)
		w.Pause()
		w.resume(engine.ByRules)
		wants(StatePaused, 3, ReasonLocal)
		w.resume(engine.ByRules)
		wants(StatePaused, 3, ReasonLocal)
		w.Resume()
		wants(StateRunning, 4)
	})
}

// TestBeatsLate: a scheduler of beats counts as late when it is later than a lease's whole time.
func TestBeatsLate(t *testing.T) {
	inside(t, 1, func(c *worked) {
		c.Handler = HandlerFunc(func(context.Context, *Job) error { <-time.After(time.Hour); return nil })
		c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: m.ID}, nil }
		c.Lease, c.Visibility, c.DrainTimeout = 30*time.Second, 60*time.Second, 2*time.Hour
	}, func(w *Worker) {
		<-time.After(10 * time.Minute)
		synctest.Wait()
		for after, late := range map[time.Duration]bool{0: false, 29 * time.Second: false, 45 * time.Second: true, time.Hour: true} {
			d := w.p.e.BeatsLate(time.Now().Add(after))
			h := Health{Late: d}
			if (d > 0) != late || (h.Live(nil) != nil) != late || d > after-30*time.Second && late {
				t.Errorf("%v later the beats are %v late, live: %v", after, d, h.Live(nil))
			}
		}
	})
}
