package onceq

import (
	"time"

	"github.com/onceq/onceq/internal/engine"
)

// Stats counts what is under way now. It is for metrics and pages; [Health] is for probes.
type Stats struct {
	// Slots is how many handlers may run at once; 0 while no Run is under way.
	Slots int
	// Busy is how many slots are taken, from the claim to the handler's return.
	Busy int
	// Held is how many messages were received and are not claimed yet.
	Held int
	// Unsettled is how many jobs are between their handler's return and their disposition.
	Unsettled int
	// Pollers is how many receives may be under way.
	Pollers int
	// Overdue is how many handlers run on although their context has ended.
	Overdue int
	// Oldest is how long the oldest handler has run.
	Oldest time.Duration
	// Leases is how many deliveries and claims are kept alive.
	Leases int
	// Margin is the least time to a deadline at which a beat was answered, since Stats was last
	// called: how close to a loss the beats come. 0 = none was answered. Whoever wants it for two
	// purposes must share one call.
	Margin time.Duration
	// Paused is why nothing is received, as ReasonLocal; empty = it is not paused.
	Paused []string
	// Draining reports whether the context of Run has ended.
	Draining bool
	// Outcomes counts how deliveries ended, since the Worker or the Processor was made.
	Outcomes map[Outcome]uint64
}

// Stats counts what the Worker has under way. It does no I/O, takes its locks for a moment, and may
// be called at any time, by many goroutines.
func (w *Worker) Stats() Stats {
	s := w.counted()
	s.Margin = w.p.e.TakeMargin()
	return s
}

// counted is Stats for the core's own use, which leaves Margin to the user.
func (w *Worker) counted() Stats {
	_, ps, _ := w.present()
	s := statsOf(w.p.e.Own.Count(time.Now(), true))
	s.Leases = w.p.e.Held()
	if ps != nil {
		s.Pollers = ps.running()
	}
	return s
}

// Stats counts what all Workers, Batches and calls of Do of the Processor have under way. Pollers
// and Margin are 0: ask the Workers. Where Workers differ in Paused and Draining, it tells what
// holds for any of them.
func (p *Processor) Stats() Stats {
	s := statsOf(p.all.Count(time.Now(), true))
	s.Leases = p.all.Leases()
	return s
}

func statsOf(c engine.Counts) Stats {
	s := Stats{
		Slots: c.Slots, Busy: c.Busy, Held: c.Held, Unsettled: c.Unsettled, Overdue: c.Overdue, Oldest: c.Oldest,
		Paused: reasons(c.Paused), Draining: !c.Stopped.IsZero(), Outcomes: make(map[Outcome]uint64, len(c.Ends)),
	}
	for _, e := range c.Ends {
		s.Outcomes[Outcome(e.Outcome)] = e.N
	}
	return s
}
