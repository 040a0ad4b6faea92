package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns the overview: what a screen of all queues shows. Tools call Overview, which asks
// all queues at once. Each part of a QueueState has a goroutine, which hands it over when it has
// it; they end before Overview returns, except those whose call does not end with its context.

// QueueState is what is known of a queue. Each part has an error of its own: where it is set, the
// part is as if it was not known.
type QueueState struct {
	// Queue is the Target's name, and At when it was asked.
	Queue string
	At    time.Time

	// Depth counts the messages, approximately; nil where the service does not tell.
	Depth    *broker.Depth
	DepthErr error
	// Letters are those in the dead-letter queue, seen or held by somebody; nil where there is no
	// such queue, or the service does not tell.
	Letters    *int64
	LettersErr error

	// Workers are those of the queue, the living and those that left or died lately.
	Workers    []WorkerState
	WorkersErr error
	// Rules are those in force that speak of this queue, or of all.
	Rules    []control.Rule
	RulesErr error
	// Paused is the rule that pauses the whole queue, and Limited the one that bounds its workers;
	// nil = none does. Version is that of the rules.
	Paused  *control.Verdict
	Limited *control.Verdict
	Version uint64
}

// WorkerTotals sum the cards up.
type WorkerTotals struct {
	// Live are those that work, Dead those that died in the last day.
	Live, Dead int
	// Busy of Slots handlers run.
	Busy, Slots int
	// PerMinute is how many deliveries ended a minute, over the last five; nil where no worker has
	// said.
	PerMinute *float64
	// Runs is how many handlers have run since the workers started, and Errors how many of these
	// failed, finally or to be tried again.
	Runs, Errors uint64
	// Minute counts the handlers that ended in about the last minute, and MinuteTypes those of each
	// type, as far as the cards have room for types. nil where no worker counts them.
	Minute      *control.Runs
	MinuteTypes map[string]control.Runs
	// HeadWait is the longest that one worker's last new job had waited; nil where no worker takes
	// jobs, so nobody knows. While nothing begins and something waits it is Stands at least, and
	// HeadLeast says so.
	HeadWait  *time.Duration
	HeadLeast bool
	// Full is how many workers have no free slot and have begun no job for half a minute, and for
	// twice their longest P95; FullFor is the shortest of these times. Stands is for how long no
	// worker at all has had a free slot and begun a job; 0 = one has.
	Full            int
	FullFor, Stands time.Duration
	// Scopes, Versions, Retentions and Interrupted are the owners of the live workers by what their
	// cards say of these settings. More than one of Scopes means that jobs are done once for each
	// of them. Workers of one Scope that have the keys of a type elsewhere stand apart: "orders
	// with charge in payments".
	Scopes, Versions map[string][]string
	Retentions       map[time.Duration][]string
	Interrupted      map[string][]string
	// P95 is the longest of the workers' times by type.
	P95 map[string]time.Duration
	// Oldest is the job that has run longest; nil where no card names one. On is its worker.
	Oldest *control.RunningJob
	On     *WorkerState
	// Outages are what does not answer, as workers say: "store", "queue".
	Outages map[string]int
	// NoRules are workers that cannot read the rules.
	NoRules int
	// TooEarly counts the jobs that were due later than the queue keeps them, and became letters of
	// class "too-early" since the workers started: also those of workers that left or died lately.
	TooEarly uint64
	// Paused are how many live workers are paused, and Limited how many run fewer handlers than
	// they could, by the reason: "local" (their program), "rules" or "breaker".
	Paused, Limited map[string]int
	// Limiters are how many jobs each limiter has postponed since the live workers started.
	Limiters map[string]uint64
}

// ran are the outcomes of runs, and whether the run had failed.
var ran = map[string]bool{
	string(onceq.OutcomeDone): false, string(onceq.OutcomeRetried): true, string(onceq.OutcomeFailed): true, string(onceq.OutcomeParked): true,
}

// Totals sums up what the cards say.
func (q *QueueState) Totals() WorkerTotals {
	w := SumUp(q.Workers)
	if d := q.Depth; d != nil && d.Visible > 0 {
		w.raiseHeadWait(w.Stands)
	}
	return w
}

// SumUp sums up the cards of some workers.
func SumUp(seats []WorkerState) WorkerTotals {
	w := WorkerTotals{
		P95: map[string]time.Duration{}, Outages: map[string]int{}, Paused: map[string]int{}, Limited: map[string]int{}, Limiters: map[string]uint64{}, MinuteTypes: map[string]control.Runs{},
		Scopes: map[string][]string{}, Versions: map[string][]string{}, Retentions: map[time.Duration][]string{}, Interrupted: map[string][]string{},
	}
	held, free := 0, false
	var places []placed
	for i := range seats {
		s := &seats[i]
		if s.State == StateDead {
			w.Dead++
		}
		if c := s.Status; c != nil {
			w.TooEarly += c.Outcomes[string(onceq.OutcomeTooEarly)]
		}
		if !s.Alive() {
			continue
		}
		w.Live++
		c := s.Status
		if c == nil {
			continue
		}
		w.compare(s)
		places = place(places, s)
		w.minute(c)
		held += c.Held
		if full := fullFor(c); full <= 0 {
			free = true
		} else if w.Stands == 0 || full < w.Stands {
			w.Stands = full
		}
		w.Busy += c.Busy
		w.Slots += c.Slots
		if w.PerMinute == nil {
			w.PerMinute = new(float64)
		}
		*w.PerMinute += c.Rate
		for outcome, n := range c.Outcomes {
			if failed, ok := ran[outcome]; ok {
				w.Runs += n
				if failed {
					w.Errors += n
				}
			}
		}
		if s.State == string(onceq.StateRunning) && (w.HeadWait == nil || c.HeadWait > *w.HeadWait) {
			w.HeadWait = &c.HeadWait
		}
		for typ, d := range c.Durations {
			w.P95[typ] = max(w.P95[typ], d.P95)
		}
		if c.Outage != "" {
			w.Outages[c.Outage]++
		}
		if c.NoRules != "" {
			w.NoRules++
		}
		for _, why := range c.Paused {
			w.Paused[why]++
		}
		if c.LimitedBy != "" {
			w.Limited[c.LimitedBy]++
		}
		for name, n := range c.Limiters {
			w.Limiters[name] += n
		}
		for j := range c.Jobs {
			if job := &c.Jobs[j]; w.Oldest == nil || age(job, c) > age(w.Oldest, w.On.Status) {
				w.Oldest, w.On = job, s
			}
		}
	}
	if free {
		w.Stands = 0
	}
	if held > 0 {
		w.raiseHeadWait(w.Stands)
	}
	w.full(seats)
	w.scopes(places)
	return w
}

// fullFor is for how long a worker has had no free slot and begun no job, when it wrote its card.
func fullFor(c *control.WorkerStatus) time.Duration {
	if c.FullSince.IsZero() {
		return 0
	}
	return max(0, c.At.Sub(c.FullSince))
}

// standsFrom is after what time without a beginning a worker counts as standing still.
const standsFrom = 30 * time.Second

// full counts the workers that stand still. A job that always takes an hour is no reason to say so
// after a minute.
func (w *WorkerTotals) full(seats []WorkerState) {
	least := standsFrom
	for _, d := range w.P95 {
		least = max(least, 2*d)
	}
	for i := range seats {
		s := &seats[i]
		if !s.Alive() || s.Status == nil {
			continue
		}
		if d := fullFor(s.Status); d >= least {
			if w.Full == 0 || d < w.FullFor {
				w.FullFor = d
			}
			w.Full++
		}
	}
}

// raiseHeadWait raises the wait of the queue's head: something waits, and nothing has begun for so
// long.
func (w *WorkerTotals) raiseHeadWait(d time.Duration) {
	if d > 0 && (w.HeadWait == nil || *w.HeadWait < d) {
		w.HeadWait, w.HeadLeast = &d, true
	}
}

// minute adds what a card says of the last minute.
func (w *WorkerTotals) minute(c *control.WorkerStatus) {
	if c.Minute == nil {
		return
	}
	if w.Minute == nil {
		w.Minute = new(control.Runs)
	}
	w.Minute.Runs += c.Minute.Runs
	w.Minute.Errors += c.Minute.Errors
	for typ, n := range c.MinuteTypes {
		sum := w.MinuteTypes[typ]
		sum.Runs += n.Runs
		sum.Errors += n.Errors
		w.MinuteTypes[typ] = sum
	}
}

// placed are workers that have their keys in the same scopes, and the card of one of them.
type placed struct {
	card   *control.WorkerStatus
	owners []string
}

// place adds a live worker to those that have their keys where it has.
func place(all []placed, s *WorkerState) []placed {
	for i := range all {
		p := &all[i]
		if _, _, _, differ := controlstore.Apart(p.card, s.Status); p.card.Scope == s.Status.Scope && !differ {
			p.owners = append(p.owners, s.Owner)
			return all
		}
	}
	return append(all, placed{s.Status, []string{s.Owner}})
}

// scopes names the places. The one with the most workers of a Scope has its name alone.
func (w *WorkerTotals) scopes(all []placed) {
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(len(b.owners), len(a.owners)), strings.Compare(slices.Min(a.owners), slices.Min(b.owners)))
	})
	for i, p := range all {
		name := p.card.Scope
		for _, most := range all[:i] {
			if typ, _, in, differ := controlstore.Apart(most.card, p.card); most.card.Scope == p.card.Scope && differ {
				name = fmt.Sprintf("%s with %s in %s", name, cmp.Or(typ, "jobs of no type"), in)
				break
			}
		}
		w.Scopes[name] = append(w.Scopes[name], p.owners...)
	}
}

// compare notes the settings of a live worker.
func (w *WorkerTotals) compare(s *WorkerState) {
	c := s.Status
	w.Versions[c.Version] = append(w.Versions[c.Version], s.Owner)
	if c.Retention > 0 {
		w.Retentions[c.Retention] = append(w.Retentions[c.Retention], s.Owner)
		w.Interrupted[c.Interrupted] = append(w.Interrupted[c.Interrupted], s.Owner)
	}
}

// age is for how long a job ran when its worker wrote the card; both times are by its clock.
func age(j *control.RunningJob, c *control.WorkerStatus) time.Duration { return c.At.Sub(j.At) }

// Running is for how long a card's job had run when the worker wrote the card. It may have ended
// since, so the card's own age is not added.
func (s *WorkerState) Running(j *control.RunningJob) time.Duration {
	if s.Status == nil || j.At.IsZero() {
		return 0
	}
	return max(0, age(j, s.Status))
}

// Overview asks what is known of the queues; no name means all targets. It costs two requests to
// each queue and its dead-letter queue where they tell depths, and reads of the store: the rules,
// and the seats of each queue. It returns a second after ctx's end at most: what has not answered
// by then has an error, and is not asked again before it has. The error is that of a name alone.
func (o *Ops) Overview(ctx context.Context, queues ...string) ([]QueueState, error) {
	ts := o.ts
	if len(queues) > 0 {
		ts = nil
		for _, name := range queues {
			t, err := o.target(name)
			if err != nil {
				return nil, err
			}
			ts = append(ts, t)
		}
	}
	v := overview{ts: ts, states: make([]QueueState, len(ts)), answers: make(chan given, len(ts)*int(allParts)), open: map[asked]bool{}}
	for i, t := range ts {
		v.states[i].Queue, v.states[i].At = t.Name, time.Now()
		if t.Queue != nil {
			v.ask(i, partDepth, func() (x QueueState) { x.Depth, x.DepthErr = depth(ctx, t.Queue); return x })
		}
		if t.DeadLetters != nil {
			v.ask(i, partLetters, func() (x QueueState) {
				var d *broker.Depth
				if d, x.LettersErr = depth(ctx, t.DeadLetters); d != nil {
					n := d.Visible + d.InFlight + d.Delayed
					x.Letters = &n
				}
				return x
			})
		}
		if t.Store == nil {
			continue
		}
		v.ask(i, partWorkers, func() (x QueueState) { x.Workers, x.WorkersErr = t.seats(ctx); return x })
		v.ask(i, partRules, func() (x QueueState) { x.rules(ctx, t); return x })
	}
	v.wait(ctx)
	return v.states, nil
}

// put takes over a part of x.
func (q *QueueState) put(of part, x *QueueState) {
	switch of {
	case partDepth:
		q.Depth, q.DepthErr = x.Depth, x.DepthErr
	case partLetters:
		q.Letters, q.LettersErr = x.Letters, x.LettersErr
	case partWorkers:
		q.Workers, q.WorkersErr = x.Workers, x.WorkersErr
	case partRules:
		q.Rules, q.RulesErr, q.Paused, q.Limited, q.Version = x.Rules, x.RulesErr, x.Paused, x.Limited, x.Version
	}
}

// overview is an Overview on its way. Its caller's goroutine alone has its fields.
type overview struct {
	ts      []*target
	states  []QueueState
	answers chan given // has room for all, so that nobody waits who answers too late
	open    map[asked]bool
}

type asked struct {
	i  int // of the target
	of part
}

type given struct {
	asked
	x QueueState
}

func (v *overview) ask(i int, of part, do func() QueueState) {
	if v.ts[i].deaf[of].Load() > 0 {
		v.states[i].put(of, deaf())
		return
	}
	q := asked{i, of}
	v.open[q] = true
	go func() { v.answers <- given{q, do()} }()
}

func deaf() *QueueState {
	return &QueueState{DepthErr: errDeaf, LettersErr: errDeaf, WorkersErr: errDeaf, RulesErr: errDeaf}
}

// wait takes the answers. Calls that go on after ctx has ended are left behind, each at most once
// at a time.
func (v *overview) wait(ctx context.Context) {
	end := ctx.Done()
	var deadline <-chan time.Time
	for len(v.open) > 0 {
		select {
		case a := <-v.answers:
			delete(v.open, a.asked)
			v.states[a.i].put(a.of, &a.x)
			continue
		case <-end:
			timer := time.NewTimer(deafAfter)
			defer timer.Stop()
			end, deadline = nil, timer.C
			continue
		case <-deadline:
		}
		for q := range v.open {
			v.states[q.i].put(q.of, deaf())
			v.ts[q.i].deaf[q.of].Add(1)
		}
		go func(n int, ts []*target, answers chan given) {
			for range n {
				a := <-answers
				ts[a.i].deaf[a.of].Add(-1)
			}
		}(len(v.open), v.ts, v.answers)
		return
	}
}

func depth(ctx context.Context, b broker.Broker) (*broker.Depth, error) {
	d, ok := broker.As[broker.Depther](b)
	if !ok {
		return nil, nil
	}
	n, err := d.Depth(ctx)
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// Rules are those in force that speak of a queue, or of all. It costs one read of the store.
func (o *Ops) Rules(ctx context.Context, queue string) ([]control.Rule, error) {
	t, err := o.target(queue)
	if err != nil {
		return nil, err
	}
	if _, err := t.store(); err != nil {
		return nil, err
	}
	var q QueueState
	q.rules(ctx, t)
	return q.Rules, q.RulesErr
}

func (q *QueueState) rules(ctx context.Context, t *target) {
	rules, err := controlstore.Read(ctx, t.Store)
	if err != nil {
		q.RulesErr = err
		return
	}
	q.Version = rules.Version
	now := time.Now()
	for _, r := range rules.Rules {
		if now.Before(r.Until) && (r.Queue == "" || r.Queue == t.known) {
			q.Rules = append(q.Rules, r)
		}
	}
	if v, ok := rules.For(t.known, "", "", now); ok {
		if v.Do == control.Pause {
			q.Paused = &v
		} else {
			q.Limited = &v
		}
	}
}

// PausedPart is a rule that pauses a scope or a type alone; nil = none does.
func (q *QueueState) PausedPart() *control.Rule {
	for i := range q.Rules {
		if r := &q.Rules[i]; r.Do == control.Pause && !r.OfQueue() {
			return r
		}
	}
	return nil
}

// Err is the first error of the parts.
func (q *QueueState) Err() error {
	for _, err := range [...]error{q.DepthErr, q.WorkersErr, q.RulesErr, q.LettersErr} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Failing is the share of the handlers of about the last minute that ended with an error, from 0 to
// 1. ok is false where none ended, or no worker counts them.
func (w *WorkerTotals) Failing() (share float64, ok bool) {
	if w.Minute == nil || w.Minute.Runs == 0 {
		return 0, false
	}
	return float64(w.Minute.Errors) / float64(w.Minute.Runs), true
}
