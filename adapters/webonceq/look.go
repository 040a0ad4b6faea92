package webonceq

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns the screens of queues: all of them, and one. They read the board, which asks for
// all viewers at once. A screen's values are its request's own.

// A card is a queue on the first screen.
type card struct {
	*ops.BoardQueue
	Line     spark
	Rate     string // ended a minute
	Fail     string // of the last minute
	FailLong string // since the workers began
	Bad      bool   // Fail is high
	Letters  string
	// HasLetters: there is one at least.
	HasLetters bool
	Trend      int // of the letters: 1 rises, -1 falls
	Warnings   []string
}

func (p *Page) home(a *ask) error {
	v := a.view("home", "Queues")
	s, err := p.board.Look(a.ctx())
	if err != nil {
		return err
	}
	v.Live, v.Reload = "board", 10
	a.frame(v, s)
	var cards []card
	for i := range s.Queues {
		if q := &s.Queues[i]; a.who.sees(q.Queue) {
			cards = append(cards, a.card(q))
		}
	}
	acts := a.actList()
	v.state = stateOfActs(acts)
	v.Data = struct {
		Cards []card
		Acts  []actView
		At    time.Time
	}{cards, acts, s.At}
	a.show(http.StatusOK, v)
	return nil
}

func (a *ask) card(q *ops.BoardQueue) card {
	w := &q.Sum
	c := card{BoardQueue: q, Line: sparkOf(q.Samples), Rate: "–", Fail: "–", Letters: "–", Warnings: a.warningList(q)}
	if w.PerMinute != nil {
		c.Rate = number(strconv.FormatFloat(*w.PerMinute, 'f', 0, 64))
	}
	if m := w.Minute; m != nil && m.Runs > 0 {
		c.Fail, c.Bad = percent(m.Errors, m.Runs), m.Errors*20 >= m.Runs
	}
	if w.Runs > 0 {
		c.FailLong = percent(w.Errors, w.Runs)
	}
	if q.Letters != nil {
		c.Letters, c.HasLetters = number(*q.Letters), *q.Letters > 0
	}
	c.Trend = trend(q.Samples)
	return c
}

// trend is whether the letters became more or fewer in the last five minutes.
func trend(ss []ops.Sample) int {
	if len(ss) < 2 {
		return 0
	}
	last := ss[len(ss)-1]
	i := len(ss) - 1
	for i > 0 && last.At.Sub(ss[i-1].At) <= 5*time.Minute {
		i--
	}
	if ss[i].Letters < 0 || last.Letters < 0 {
		return 0
	}
	return cmp.Compare(last.Letters, ss[i].Letters)
}

// warnings are what should not be so.
func (a *ask) warningList(q *ops.BoardQueue) (ws []string) {
	w := &q.Sum
	add := func(format string, args ...any) { ws = append(ws, fmt.Sprintf(format, args...)) }
	if text := differ(w.Scopes); text != "" {
		add("The workers differ in their scope, so jobs are done once for each: %s.", text)
	}
	if text := differ(w.Versions); text != "" {
		add("Several versions are live: %s.", text)
	}
	if len(w.Retentions) > 1 {
		m := map[string][]string{}
		for d, owners := range w.Retentions {
			m[span(d)] = owners
		}
		add("The workers differ in their retention: %s.", differ(m))
	}
	if text := differ(w.Interrupted); text != "" {
		add("The workers differ in what they do with an interrupted job: %s.", text)
	}
	for _, what := range slices.Sorted(maps.Keys(w.Outages)) {
		add("The %s does not answer %s.", what, count(w.Outages[what], "worker"))
	}
	if w.NoRules > 0 {
		add("%s cannot read the rules: a pause does not reach them.", count(w.NoRules, "worker"))
	}
	if w.Dead > 0 {
		add("%s died in the last day with jobs in hand; others take these over.", count(w.Dead, "worker"))
	}
	for _, by := range [...][2]string{{onceq.ReasonLocal, "The program itself"}, {onceq.ReasonBreaker, "A breaker of the program"}} {
		if n := w.Paused[by[0]]; n > 0 {
			add("%s has paused %s.", by[1], count(n, "worker"))
		}
	}
	switch {
	case w.Full == 0:
	case w.Full < w.Live:
		add("All slots of %s of %s are busy, and nothing has begun there for %s.", count(w.Full, "worker"), number(w.Live), span(w.FullFor))
	default:
		add("No worker has begun a job for %s.", span(w.FullFor))
	}
	if d := q.Depth; w.Live == 0 && q.WorkersErr == nil && d != nil && d.Visible > 0 {
		add("Jobs wait, and no worker is live.")
	}
	for _, part := range []struct {
		what string
		err  error
	}{{"how much waits", q.DepthErr}, {"the dead letters", q.LettersErr}, {"the workers", q.WorkersErr}, {"the rules", q.RulesErr}} {
		if part.err != nil && !errors.Is(part.err, ops.ErrMissing) {
			add("Nobody knows %s: %s", part.what, a.trouble(part.err))
		}
	}
	return ws
}

// differ names what differs, and who has it; empty where all are alike.
func differ(m map[string][]string) string {
	if len(m) < 2 {
		return ""
	}
	names := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(len(m[b]), len(m[a])) })
	var parts []string
	for i, name := range names {
		owners := m[name]
		text := fmt.Sprintf("%s (%s)", dlq.Printable(cmp.Or(name, "none")), number(len(owners)))
		if i > 0 && len(owners) <= 2 {
			text = fmt.Sprintf("%s (%s)", dlq.Printable(cmp.Or(name, "none")), dlq.Printable(strings.Join(owners, ", ")))
		}
		if parts = append(parts, text); len(parts) == 4 {
			break
		}
	}
	return strings.Join(parts, ", ")
}

// A worker is a card of the screen of a queue.
type worker struct {
	*ops.WorkerState
	Fail string
	Busy string
	Rate string
	P95  string
	Note []string
}

type job struct {
	Key, ID, Type, Owner string
	For                  time.Duration
	Attempt              int
	Overdue              bool
}

// shownWorkers and shownJobs bound the screen of a queue.
const (
	shownWorkers = 100
	shownJobs    = 20
)

func (p *Page) queue(a *ask) error { return p.queueScreen(a, http.StatusOK, nil) }

// queueScreen shows a queue; change, where it is set, adds what an act was answered.
func (p *Page) queueScreen(a *ask, status int, change func(*view)) error {
	name, err := a.queue()
	if err != nil {
		return err
	}
	s, err := p.board.Look(a.ctx())
	if err != nil {
		return err
	}
	q := s.Queue(name)
	if q == nil {
		return fmt.Errorf("%w: %q", ops.ErrUnknownQueue, name)
	}
	v := a.view("queue", name)
	v.state = stateOfActs(a.actList())
	if v.Live = "board"; !a.can(Pause) {
		v.Reload = 10 // it has no form
	}
	a.frame(v, s)
	d := struct {
		card
		Card        card
		Workers     []worker
		MoreWorkers int
		Jobs        []job
		Stalled     []ops.Stalled
		StalledErr  string
		Types       []string
		Scopes      []string
		Rules       []banner
		Followed    string
		At          time.Time
	}{card: a.card(q), At: s.At}
	d.Card = d.card
	d.Rules = a.addBanners(nil, &q.QueueState)
	d.Followed = follows(q)
	types, scopes := map[string]bool{}, map[string]bool{}
	for i := range q.Workers {
		w := &q.Workers[i]
		if w.State == ops.StateLeft {
			continue
		}
		if len(d.Workers) < shownWorkers {
			d.Workers = append(d.Workers, workerOf(w))
		} else {
			d.MoreWorkers++
		}
		if w.Status == nil || !w.Alive() {
			continue
		}
		for _, t := range w.Status.Types {
			types[t] = true
		}
		scopes[w.Status.Scope] = true
		for j := range w.Status.Jobs {
			x := &w.Status.Jobs[j]
			d.Jobs = append(d.Jobs, job{cmp.Or(x.Key, x.ID), x.ID, x.Type, w.Owner, w.Running(x), x.Attempt, x.Overdue})
		}
	}
	slices.SortStableFunc(d.Workers, func(a, b worker) int { return cmp.Compare(rank(b), rank(a)) })
	slices.SortStableFunc(d.Jobs, func(a, b job) int { return cmp.Compare(b.For, a.For) })
	d.Jobs = d.Jobs[:min(len(d.Jobs), shownJobs)]
	d.Types, d.Scopes = offered(types), offered(scopes)
	if q.Sum.Dead > 0 {
		ctx, cancel := a.within()
		defer cancel()
		if d.Stalled, err = a.ops.Stalled(ctx, name, ops.StalledOptions{}); err != nil {
			d.StalledErr = a.trouble(err)
		}
		d.Stalled = d.Stalled[:min(len(d.Stalled), shownJobs)]
	}
	v.Data = d
	if change != nil {
		change(v)
	}
	a.show(status, v)
	return nil
}

// follows is how many live workers have read the rules.
func follows(q *ops.BoardQueue) string {
	read := 0
	for i := range q.Workers {
		if w := &q.Workers[i]; w.Alive() && w.Status != nil && w.Status.Rules >= q.Version {
			read++
		}
	}
	if q.Sum.Live == 0 {
		return "No worker is live."
	}
	return fmt.Sprintf("%d of %s follow.", read, count(q.Sum.Live, "live worker"))
}

// rank puts first what one looks for: the dead, then those that cannot work.
func rank(w worker) int {
	switch {
	case w.State == ops.StateDead:
		return 3
	case w.Status != nil && (w.Status.Outage != "" || w.Status.NoRules != ""):
		return 2
	case w.State != "running":
		return 1
	}
	return 0
}

func workerOf(s *ops.WorkerState) worker {
	w := worker{WorkerState: s, Fail: "–", Busy: "–", Rate: "–", P95: "–"}
	c := s.Status
	if c == nil {
		return w
	}
	w.Busy, w.Rate = fmt.Sprintf("%d/%d", c.Busy, c.Slots), number(strconv.FormatFloat(c.Rate, 'f', 0, 64))
	if m := c.Minute; m != nil && m.Runs > 0 {
		w.Fail = percent(m.Errors, m.Runs)
	}
	var p95 time.Duration
	for _, q := range c.Durations {
		p95 = max(p95, q.P95)
	}
	if p95 > 0 {
		w.P95 = span(p95)
	}
	if c.Outage != "" {
		w.Note = append(w.Note, "the "+c.Outage+" does not answer")
	}
	if c.NoRules != "" {
		w.Note = append(w.Note, "cannot read the rules")
	}
	return w
}

// spark is the line of jobs a minute, 100 wide and 24 high.
type spark struct{ Line, Area, Text string }

func sparkOf(ss []ops.Sample) spark {
	const points = 60
	var vs []float64
	for part := range slices.Chunk(ss, max(1, (len(ss)+points-1)/points)) {
		top := -1.0
		for _, s := range part {
			top = max(top, s.PerMinute)
		}
		vs = append(vs, top)
	}
	top := -1.0
	for _, v := range vs {
		top = max(top, v)
	}
	if len(vs) < 2 || top < 0 {
		return spark{Text: "no history yet"}
	}
	var b strings.Builder
	for i, v := range vs {
		y := 23.0
		if v > 0 && top > 0 {
			y = 23 - 21*v/top
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", 100*float64(i)/float64(len(vs)-1), y)
	}
	line := strings.TrimSpace(b.String())
	return spark{
		Line: line, Area: "0,24 " + line + " 100,24",
		Text: fmt.Sprintf("jobs that ended a minute, over the last %s, at most %s", span(ss[len(ss)-1].At.Sub(ss[0].At)), number(strconv.FormatFloat(top, 'f', 0, 64))),
	}
}
