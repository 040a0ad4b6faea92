package onceq

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/steering"
)

// This file owns Health: what a worker's state is, and what probes are told of it. Probes call
// Worker.Health from any goroutine. It does no I/O. It takes one lock after the other for a moment,
// and holds two only where it looks at a flow.

// State is what a worker is doing, in one word. The text of a constant never changes.
type State string

// The states of a Worker. Where several fit, the first of this list holds.
const (
	// StateStopped: no Run is under way.
	StateStopped State = "stopped"
	// StateDraining: the context of Run has ended, and jobs that run are waited for.
	StateDraining State = "draining"
	// StatePaused: nothing is received, because the program, a breaker of the program, or an
	// operator has said so.
	StatePaused State = "paused"
	// StateOutage: the queue or the store has not answered for a second or more, and was asked
	// again meanwhile.
	StateOutage State = "outage"
	// StateStarting: no receive was answered yet.
	StateStarting State = "starting"
	// StateRunning: none of these.
	StateRunning State = "running"
)

// Health is how a worker is doing. [Health.Ready] and [Health.Live] judge it for probes.
type Health struct {
	State State
	// Since is when the state began; the zero time where no Run ever was under way.
	Since time.Time
	// Reasons says why the worker does not run as it should, for people: why it is paused, and what
	// does not answer, with the error. It may name hosts and users.
	Reasons []string
	// Queue tells how receives go, Store how claims, renewals and ends go, and Letters how dead
	// letters go. Of the store, what all Workers of the Processor have seen counts.
	Queue, Store, Letters Dependency
	Load
	// Rules is the version of the rules that the worker obeys, and Seat its place among the workers
	// of the queue; zero = it has none.
	Rules uint64
	Seat  string
	// Silent is for how long no poller has come back, beyond the queue's longest wait and 2 s,
	// while all pollers are receiving, slots are free and nothing is paused. 0 = one has.
	Silent time.Duration
	// Late is how late the heartbeats' scheduler is, beyond the shorter of Lease and Visibility.
	// 0 = it is not.
	Late time.Duration
	// Stuck is for how long each slot has been held by a handler whose context has ended.
	Stuck time.Duration
}

// Load is what a [Worker], or a whole [Processor], has to do. [Health] and [Stats] have it.
type Load struct {
	// Slots is how many handlers may run at once; 0 while no Run is under way.
	Slots int
	// Busy is how many slots are taken, from the claim to the handler's return.
	Busy int
	// Overdue is how many handlers run on although their context has ended.
	Overdue int
	// Oldest is how long the oldest handler has run.
	Oldest time.Duration
}

// Dependency is how something answers that a worker needs.
type Dependency struct {
	// Seen is the last answer; zero = there was none yet.
	Seen time.Time
	// Failing is since when calls have no answer, up to now; zero = the last one had an answer, or
	// nobody asks any more.
	Failing time.Time
	// Err is the text of the last failure while it is failing. It may name hosts and users.
	Err string
}

// Liveness bounds what [Health.Live] lets pass. nil, zero and what is negative
// mean the defaults.
type Liveness struct {
	// Stuck is how long Health.Silent may last. Default 2 min.
	Stuck time.Duration
	// Overdue is how long Health.Stuck may last: all slots are held by handlers that ignore their
	// ended contexts. Default 0 = for ever, because a restart interrupts these jobs.
	Overdue time.Duration
}

const defaultStuck = 2 * time.Minute

// Health looks at the worker. It does no I/O, and takes about a microsecond.
func (w *Worker) Health() Health {
	now := time.Now()
	f, ps, ended := w.present()
	c := w.p.e.Own.Count(now, false)
	store, letters := w.p.e.Store(now), w.p.e.Letters(now)
	h := Health{
		Load: loadOf(&c), Stuck: c.Stuck, Late: w.p.e.BeatsLate(now),
		Store: dependency(&store), Letters: dependency(&letters),
	}
	if f == nil {
		h.State, h.Since = StateStopped, ended
		return h
	}
	if c.Paused == 0 && c.Stopped.IsZero() && c.Busy+c.Held < c.Slots {
		h.Silent = ps.silent(now)
	}
	queue, first := ps.vital(now), ps.first()
	if h.Silent > 0 && queue.Failing.IsZero() {
		queue.Failing, queue.Last, queue.Err = now.Add(-h.Silent), now, "a receive is overdue"
	}
	h.Queue = dependency(&queue)
	switch {
	case !c.Stopped.IsZero():
		h.State, h.Since = StateDraining, c.Stopped
	case c.Paused != 0:
		h.State, h.Since = StatePaused, later(f.Began(), c.Turned)
	case queue.IsAway() || store.IsAway():
		h.State, h.Since = StateOutage, queue.Failing
		if !queue.IsAway() || store.IsAway() && store.Failing.Before(h.Since) {
			h.Since = store.Failing
		}
	case first.IsZero():
		h.State, h.Since = StateStarting, later(f.Began(), c.Turned)
	default:
		h.State, h.Since = StateRunning, later(first, c.Turned, queue.Back, store.Back)
	}
	h.because(c.Paused)
	var steered []string
	h.Rules, h.Seat, steered = w.steering().Words()
	if c.Paused&engine.ByRules != 0 && len(steered) == 0 {
		steered = []string{"paused by a rule"}
	}
	h.Reasons = append(h.Reasons, steered...)
	return h
}

func dependency(v *engine.Vital) Dependency {
	return Dependency{Seen: v.Seen, Failing: v.Failing, Err: v.Err}
}

func later(t time.Time, others ...time.Time) time.Time {
	for _, o := range others {
		if o.After(t) {
			t = o
		}
	}
	return t
}

// because fills in the reasons.
func (h *Health) because(paused engine.Pauses) {
	if paused&engine.ByHand != 0 {
		h.Reasons = append(h.Reasons, "paused by the program")
	}
	if paused&engine.ByBreaker != 0 {
		h.Reasons = append(h.Reasons, "paused by a breaker of the program")
	}
	for _, d := range []struct {
		name string
		of   *Dependency
	}{{ReasonQueue, &h.Queue}, {ReasonStore, &h.Store}, {ReasonLetters, &h.Letters}} {
		if !d.of.Failing.IsZero() {
			h.Reasons = append(h.Reasons, d.name+": "+d.of.Err)
		}
	}
}

// Ready is nil where the worker does what it is for: it runs, and a receive was answered; or it is
// paused, because a rollout must finish. Its error is a sentence for a probe. It names no hosts and
// no users: Reasons have these.
//
// It fails while a drain is under way or no Run is, before the first receive was answered, and when
// the queue or the store has not answered for patience. With a patience of 0 any failure counts, as
// for a startup probe. It never fails because of dead letters that are not taken.
func (h *Health) Ready(patience time.Duration) error {
	switch h.State {
	case StateStopped:
		return errors.New("stopped: Run is not under way")
	case StateDraining:
		return errors.New("draining")
	}
	if h.State == StateStarting || h.State == StateOutage && h.Queue.Seen.IsZero() {
		return errors.New("starting: no poll was answered yet")
	}
	now := time.Now()
	return errors.Join(h.Queue.failingFor("the queue", now, patience), h.Store.failingFor("the store", now, patience))
}

// failingFor is an error where it has been failing for d.
func (d *Dependency) failingFor(what string, now time.Time, patience time.Duration) error {
	if d.Failing.IsZero() || now.Sub(d.Failing) < patience {
		return nil
	}
	return fmt.Errorf("%s has failed for %v", what, now.Sub(d.Failing).Round(time.Second))
}

// Live is nil unless the process itself is stuck, so that a restart helps. It never fails because
// the store, the queue or the network is away: a restart would lose what is held, and help nobody.
// nil means the defaults. It fails when
//
//   - no poller comes back, as from a connection that hangs without a deadline (Silent);
//   - heartbeats are not sent any more (Late);
//   - all slots are held by handlers that ignore their ended contexts, where Liveness.Overdue says
//     so (Stuck).
//
// Its error is a sentence for a probe.
func (h *Health) Live(o *Liveness) error {
	most := Liveness{Stuck: defaultStuck}
	if o != nil {
		most.Stuck, most.Overdue = cmp.Or(max(0, o.Stuck), defaultStuck), o.Overdue
	}
	switch {
	case h.Late > 0:
		return fmt.Errorf("no heartbeat was sent for %v beyond a lease's whole time", h.Late.Round(time.Second))
	case h.Silent >= most.Stuck:
		return fmt.Errorf("no receive has come back for %v beyond its time, and slots are free", h.Silent.Round(time.Second))
	case most.Overdue > 0 && h.Stuck >= most.Overdue:
		return fmt.Errorf("all %d slots are held by handlers that ignore their ended contexts, for %v", h.Slots, h.Stuck.Round(time.Second))
	}
	return nil
}

// Stats counts what is under way now. It is for metrics and pages; [Health] is for probes.
type Stats struct {
	Load
	// Held is how many messages were received and are not claimed yet.
	Held int
	// Unsettled is how many jobs are between their handler's return and their disposition.
	Unsettled int
	// Pollers is how many receives may be under way.
	Pollers int
	// Leases is how many deliveries and claims are kept alive.
	Leases int
	// Margin is the least time to a deadline at which a beat was answered, since Stats was last
	// called: how close to a loss the beats come. 0 = none was answered. Whoever wants it for two
	// purposes must share one call.
	Margin time.Duration
	// Paused is why nothing is received: ReasonLocal, ReasonRules, ReasonBreaker; empty = it is not
	// paused.
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

// Queue is the name of the Worker's queue, as JobReport.Queue has it.
func (w *Worker) Queue() string { return w.p.queue() }

// Types are the types that have a handler, sorted; nil where the Handler is no Mux.
func (w *Worker) Types() []string {
	if m := muxIn(w.p.c.Handler); m != nil {
		return m.Types()
	}
	return nil
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
		Load: loadOf(&c), Held: c.Held, Unsettled: c.Unsettled,
		Paused: reasons(c.Paused), Draining: !c.Stopped.IsZero(), Outcomes: make(map[Outcome]uint64, len(c.Ends)),
	}
	for _, e := range c.Ends {
		s.Outcomes[Outcome(e.Outcome)] = e.N
	}
	return s
}

func loadOf(c *engine.Counts) Load {
	return Load{Slots: c.Slots, Busy: c.Busy, Overdue: c.Overdue, Oldest: c.Oldest}
}

// This part owns what steering knows of a Worker. Run calls newSteward; the steward's goroutines
// call the rest, and hold no lock.

// newSteward is what obeys operators in one Run; nil where nothing does.
func (w *Worker) newSteward(f *flow) *steering.Steward {
	p, c := w.p, &w.p.c
	attempts, timeouts := p.cardBound()
	return steering.New(steering.Config{
		Book: p.book, Past: &p.past, Tell: p.tellSteering, Logger: p.log, Base: f.Terms.Base,
		Queue: p.queueName, Owner: c.Owner, Scope: c.Scope, Types: p.typeNames(), Retention: c.Retention,
		Interrupted: c.Defaults.Interrupted.String(), ShownJobs: c.Control.Jobs, NoKeys: c.Control.NoKeys,
		Scopes:      p.cardScopes(),
		MaxAttempts: attempts, Timeout: c.Defaults.Timeout, Timeouts: timeouts, DrainTimeout: cmp.Or(w.c.DrainTimeout, -1),
		Strict: c.Control.Strict, Took: p.took,
		Pause: w.pause, Resume: w.resume, Paused: w.isPaused, Glance: w.glance,
		Limit: w.limitByRules, Jobs: func() ([]engine.Job, int) { return f.Jobs(maxConcurrency) },
	})
}

// cardBound is what a card says of how jobs are run: the highest MaxAttempts, and the Timeouts of
// types that have another than the Defaults.
func (p *Processor) cardBound() (attempts int, timeouts map[string]time.Duration) {
	attempts = p.c.Defaults.MaxAttempts
	for _, t := range p.types {
		if n := t.options.MaxAttempts; n < 0 || attempts > 0 && n > attempts {
			attempts = n
		}
		if d := cmp.Or(t.options.Timeout, p.c.Defaults.Timeout); d != p.c.Defaults.Timeout && t.name != "" {
			if timeouts == nil {
				timeouts = make(map[string]time.Duration)
			}
			timeouts[t.name] = d
		}
	}
	return attempts, timeouts
}

// cardScopes is where a card says that the keys of types are, which nobody could tell from their
// names.
func (p *Processor) cardScopes() (of map[string]string) {
	add := func(typ, scope, usual string) {
		if scope == usual {
			return
		}
		if of == nil {
			of = make(map[string]string)
		}
		of[typ] = scope
	}
	if bare := p.c.scopes().bare; len(p.types) == 0 {
		add("", bare, p.c.Scope)
	}
	for typ, t := range p.types {
		if typ == "" {
			add("", t.scope, p.c.Scope)
		} else {
			add(typ, t.scope, p.c.Scope+":"+typ)
		}
	}
	return of
}

// glance is what the Worker's card says of it as a whole.
func (w *Worker) glance() steering.Glance {
	h, n := w.Health(), w.counted()
	g := steering.Glance{State: string(h.State), Slots: h.Slots, Busy: h.Busy, Held: n.Held, Paused: n.Paused, LimitedBy: w.limitedBy(), Limiters: w.p.limiters.counted(), Outcomes: make(map[string]uint64, len(n.Outcomes))}
	for outcome, n := range n.Outcomes {
		g.Outcomes[string(outcome)] = n
	}
	for _, d := range []struct {
		what string
		of   *Dependency
	}{{ReasonStore, &h.Store}, {ReasonQueue, &h.Queue}} {
		if since := d.of.Failing; !since.IsZero() && (g.Outage == "" || since.Before(g.Since)) {
			g.Outage, g.Since = d.what, since
		}
	}
	return g
}
