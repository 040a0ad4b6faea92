package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

// This file owns what is shown of queues. Each command runs in the goroutine of Main.

func (a *app) queueCommand() *cobra.Command {
	ls := &cobra.Command{
		Use: "ls [QUEUE…]", Short: "What waits, who works, what is paused: one line a queue",
		Long: "One line a queue: its depth, what its workers say of themselves, its dead letters, and its state.\n" +
			"DONE/MIN is how many deliveries ended a minute over the last five; FAIL% is of the handlers' runs of\n" +
			"the last minute (of workers of earlier versions: since they started). HEAD WAIT with ≥ says that all\n" +
			"slots are busy and nothing began for so long. What a service does not tell is –.",
		ValidArgsFunction: a.completeQueues,
		RunE: a.run(func(ctx context.Context, args []string) error {
			return a.listQueues(ctx, args)
		}),
	}
	show := &cobra.Command{
		Use: "show QUEUE", Short: "All that is known of a queue", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		RunE: a.run(func(ctx context.Context, args []string) error { return a.showQueue(ctx, args[0]) }),
	}
	return group("queue", "Queues: list, look, send, pause, resume, limit, purge",
		ls, show, a.peekCommand(), a.sendCommand(), a.purgeQueueCommand(), a.pauseCommand(), a.resumeCommand(), a.limitCommand())
}

func (a *app) listQueues(ctx context.Context, names []string) error {
	w, err := a.open(ctx, needParts, names...)
	if err != nil {
		return err
	}
	defer w.close()
	states, err := w.Overview(ctx)
	if err != nil {
		return err
	}
	r := out.Result{Columns: out.Columns("QUEUE", "VISIBLE>", "IN FLIGHT>", "DELAYED>", "HEAD WAIT>", "DONE/MIN>", "FAIL%>", "WORKERS", "LETTERS>", "STATE")}
	failed := 0
	for i := range states {
		q := &states[i]
		r.Add(q.Queue, a.viewQueue(q), a.queueRow(q)...)
		if q.Err() != nil {
			failed++
		}
	}
	r.Next = nextOf(states)
	if err := a.show(r); err != nil {
		return err
	}
	return a.partErrors(states, failed)
}

// partErrors says which parts could not be asked.
func (a *app) partErrors(states []ops.QueueState, failed int) error {
	if failed == 0 {
		return nil
	}
	var first error
	seen := map[string]bool{}
	for i := range states {
		q := &states[i]
		for _, part := range partsOf(q) {
			text := out.Error(part.err)
			if seen[text] {
				continue
			}
			seen[text] = true
			if first == nil {
				first = fmt.Errorf("%s: %s: %w", q.Queue, part.name, part.err)
				continue
			}
			a.say("%s: %s: %s", q.Queue, part.name, text)
		}
	}
	return first
}

type part struct {
	name string
	err  error
}

func partsOf(q *ops.QueueState) (ps []part) {
	for _, p := range [...]part{{"depth", q.DepthErr}, {"workers", q.WorkersErr}, {"rules", q.RulesErr}, {"letters", q.LettersErr}} {
		if p.err != nil {
			ps = append(ps, p)
		}
	}
	return ps
}

func (a *app) queueRow(q *ops.QueueState) []string {
	visible, flight, delayed := out.None, out.None, out.None
	if d := q.Depth; d != nil {
		visible, flight, delayed = out.Int(d.Visible), out.Int(d.InFlight), out.Int(d.Delayed)
	}
	w := q.Totals()
	wait, rate, fail, workers := out.None, out.None, out.None, out.None
	if w.HeadWait != nil {
		wait = headWait(&w)
	}
	if w.PerMinute != nil {
		rate = out.Int(int64(*w.PerMinute + 0.5))
	}
	if r := lately(&w); r.Runs > 0 {
		fail = percent(r)
	}
	if w.Live > 0 {
		workers = fmt.Sprintf("%d (%d/%d)", w.Live, w.Busy, w.Slots)
	}
	return []string{out.Text(q.Queue), visible, flight, delayed, wait, rate, fail, workers, out.IntOr(q.Letters), a.stateOf(q)}
}

// headWait is how long the head of the queue waits; where nothing begins, at least so long.
func headWait(w *ops.WorkerTotals) string {
	if w.HeadLeast {
		return "≥ " + out.Span(*w.HeadWait)
	}
	return out.Span(*w.HeadWait)
}

// lately are the runs of the last minute; of workers of earlier versions, those since they started.
func lately(w *ops.WorkerTotals) control.Runs {
	if w.Minute != nil {
		return *w.Minute
	}
	return control.Runs{Runs: w.Runs, Errors: w.Errors}
}

func percent(r control.Runs) string {
	return fmt.Sprintf("%.1f%%", 100*float64(r.Errors)/float64(r.Runs))
}

// standing says that workers stand still; empty = none does.
func standing(w *ops.WorkerTotals) string {
	switch {
	case w.Full == 0:
		return ""
	case w.Full < w.Live:
		return fmt.Sprintf("%s: all slots busy for %s, nothing ends", out.Plural(w.Full, "worker", "workers"), out.Span(w.FullFor))
	}
	return fmt.Sprintf("all slots busy for %s, nothing ends", out.Span(w.FullFor))
}

// unlike says that workers differ in a setting in which they must not: orders (7), order (1: w-8).
func unlike[K comparable](what string, by map[K][]string, text func(K) string) string {
	if len(by) < 2 {
		return ""
	}
	keys := slices.Collect(maps.Keys(by))
	slices.SortFunc(keys, func(a, b K) int {
		return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), cmp.Compare(text(a), text(b)))
	})
	parts := make([]string, len(keys))
	for i, k := range keys {
		owners := slices.Sorted(slices.Values(by[k]))
		parts[i] = fmt.Sprintf("%s (%d", out.Or(text(k)), len(owners))
		if i > 0 || len(by[keys[1]]) == len(owners) { // the few are those to look for, if they are few
			parts[i] += ": " + out.Text(strings.Join(owners[:min(3, len(owners))], ", "))
			if len(owners) > 3 {
				parts[i] += ", …"
			}
		}
		parts[i] += ")"
	}
	return fmt.Sprintf("%d %s: %s", len(by), what, strings.Join(parts, ", "))
}

// differences are the settings in which live workers of a queue must not differ, and do.
func differences(w *ops.WorkerTotals) (words []string) {
	same := func(s string) string { return s }
	for _, text := range []string{
		unlike("SCOPES, so jobs may be done twice", w.Scopes, same),
		unlike("retentions", w.Retentions, out.Span),
		unlike("policies for interrupted jobs", w.Interrupted, same),
	} {
		if text != "" {
			words = append(words, text)
		}
	}
	return words
}

// stateOf is a queue's state in words: the worst first.
func (a *app) stateOf(q *ops.QueueState) string {
	var words []string
	w := q.Totals()
	if q.Err() != nil {
		words = append(words, "NOT REACHED: "+strings.Join(partNames(q), ", "))
	}
	if v := q.Paused; v != nil {
		since := ""
		for _, r := range q.Rules {
			if r.ID == v.Rule {
				since = " " + out.Span(a.io.Now().Sub(r.Made))
			}
		}
		words = append(words, fmt.Sprintf("PAUSED%s by %s: %q, until %s", since, out.Text(v.By), v.Reason, a.until(v.Until)))
	}
	if n := w.Paused[onceq.ReasonBreaker]; n > 0 {
		words = append(words, fmt.Sprintf("a breaker has paused %s", out.Plural(n, "worker", "workers")))
	}
	if n := w.Paused[onceq.ReasonLocal]; n > 0 {
		words = append(words, fmt.Sprintf("%s paused by the program itself", out.Plural(n, "worker is", "workers are")))
	}
	for _, what := range [...]string{"store", "queue"} {
		if n := w.Outages[what]; n > 0 {
			words = append(words, fmt.Sprintf("OUTAGE: the %s does not answer %s", what, out.Plural(n, "worker", "workers")))
		}
	}
	if text := standing(&w); text != "" {
		words = append(words, text)
	}
	words = append(words, differences(&w)...)
	for r := range pausedParts(q) {
		words = append(words, fmt.Sprintf("part paused: %s by %s, until %s", ruled(r), out.Text(r.By), a.until(r.Until)))
	}
	if v := q.Limited; v != nil {
		words = append(words, fmt.Sprintf("limited to %d a worker by %s, until %s", v.Slots, out.Text(v.By), a.until(v.Until)))
	}
	if w.Dead > 0 && w.Live == 0 {
		words = append(words, "no worker lives")
	}
	if w.Dead > 0 {
		words = append(words, fmt.Sprintf("%s dead", out.Plural(w.Dead, "worker", "workers")))
	}
	if w.TooEarly > 0 && q.Letters != nil && *q.Letters > 0 {
		words = append(words, fmt.Sprintf("%s were due later than the queue keeps them: dlq group tells, class %s", out.Plural(int(w.TooEarly), "job", "jobs"), onceq.ClassTooEarly))
	}
	if w.NoRules > 0 {
		words = append(words, fmt.Sprintf("%s cannot read the rules", out.Plural(w.NoRules, "worker", "workers")))
	}
	if w.Live+w.Dead == 0 && q.WorkersErr == nil {
		words = append(words, "no worker has a seat here")
	}
	if len(words) == 0 {
		return "ok"
	}
	return strings.Join(words, "; ")
}

// pausedParts are the rules that pause a scope or a type alone.
func pausedParts(q *ops.QueueState) iter.Seq[*control.Rule] {
	return func(yield func(*control.Rule) bool) {
		for i := range q.Rules {
			if r := &q.Rules[i]; r.Do == control.Pause && !r.OfQueue() && !yield(r) {
				return
			}
		}
	}
}

func partNames(q *ops.QueueState) (names []string) {
	for _, p := range partsOf(q) {
		names = append(names, p.name)
	}
	return names
}

// nextOf is the command that leads on from the worst queue.
func nextOf(states []ops.QueueState) string {
	for i := range states {
		if w := states[i].Totals(); w.Full > 0 {
			return "onceq jobs running " + states[i].Queue
		}
	}
	for i := range states {
		if q := &states[i]; q.Letters != nil && *q.Letters > 0 {
			return "onceq dlq group " + q.Queue
		}
	}
	for i := range states {
		if q := &states[i]; q.Paused != nil || q.Limited != nil || q.PausedPart() != nil {
			return "onceq queue show " + q.Queue
		}
	}
	for i := range states {
		if states[i].Totals().Dead > 0 {
			return "onceq jobs stalled " + states[i].Queue
		}
	}
	if len(states) > 0 {
		return "onceq workers " + states[0].Queue
	}
	return ""
}

func (a *app) viewQueue(q *ops.QueueState) queueView {
	v := queueView{Queue: q.Queue, At: out.Stamp(q.At), Letters: q.Letters, State: a.stateOf(q), Rules: viewRules(q.Rules), Errors: []string{}}
	if d := q.Depth; d != nil {
		v.Visible, v.InFlight, v.Delayed = &d.Visible, &d.InFlight, &d.Delayed
	}
	for _, p := range partsOf(q) {
		v.Errors = append(v.Errors, p.name+": "+p.err.Error())
	}
	w := q.Totals()
	if w.Live > 0 || w.Dead > 0 {
		v.Workers, v.Dead, v.Busy, v.Slots = &w.Live, &w.Dead, &w.Busy, &w.Slots
	}
	v.Paused, v.Limited, v.Limiters = w.Paused, w.Limited, w.Limiters
	if w.HeadWait != nil {
		v.HeadWait = seconds(*w.HeadWait)
	}
	v.PerMin = w.PerMinute
	if w.Runs > 0 {
		v.Failed = new(float64(w.Errors) / float64(w.Runs))
	}
	if w.Minute != nil {
		v.RunsMin, v.ErrorsMin = &w.Minute.Runs, &w.Minute.Errors
	}
	v.Types = []typeView{}
	for _, typ := range slices.Sorted(maps.Keys(w.MinuteTypes)) {
		n := w.MinuteTypes[typ]
		v.Types = append(v.Types, typeView{Type: typ, RunsMin: n.Runs, ErrorsMin: n.Errors})
	}
	if w.Full > 0 {
		v.Full, v.FullFor = w.Full, seconds(w.FullFor)
	}
	v.HeadLeast = w.HeadLeast
	v.Scopes, v.Versions = settingsOf(w.Scopes), settingsOf(w.Versions)
	return v
}

// settingsOf are the workers by what their cards say of a setting, the most first.
func settingsOf(by map[string][]string) []settingView {
	l := []settingView{}
	for _, value := range slices.Sorted(maps.Keys(by)) {
		l = append(l, settingView{Value: value, Workers: slices.Sorted(slices.Values(by[value]))})
	}
	slices.SortStableFunc(l, func(a, b settingView) int { return cmp.Compare(len(b.Workers), len(a.Workers)) })
	return l
}

func (a *app) showQueue(ctx context.Context, name string) error {
	w, err := a.open(ctx, needParts, name)
	if err != nil {
		return err
	}
	defer w.close()
	states, err := w.Overview(ctx)
	if err != nil {
		return err
	}
	q := &states[0]
	lines := a.queueLines(q)
	next := nextOf(states)
	if next == "onceq queue show "+q.Queue {
		next = fmt.Sprintf("onceq queue resume %s --reason TEXT", q.Queue)
	}
	if err := a.show(out.Result{Lines: lines, Value: a.viewQueue(q), IDs: []string{q.Queue}, Next: next}); err != nil {
		return err
	}
	failed := 0
	if q.Err() != nil {
		failed = 1
	}
	return a.partErrors(states, failed)
}

// queueLines are all that is known of a queue, for people.
func (a *app) queueLines(q *ops.QueueState) []string {
	sum := q.Totals()
	lines := []string{fmt.Sprintf("%s   %s", out.Text(q.Queue), a.stateOf(q))}
	add := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-12s ", name)+fmt.Sprintf(format, args...))
	}
	if d := q.Depth; d != nil {
		add("depth", "%s visible, %s in flight, %s delayed", out.Int(d.Visible), out.Int(d.InFlight), out.Int(d.Delayed))
	} else if q.DepthErr == nil {
		add("depth", "%s (the service does not tell)", out.None)
	}
	if q.Letters != nil {
		add("letters", "%s", out.Int(*q.Letters))
	}
	if sum.Live+sum.Dead == 0 && q.WorkersErr == nil {
		add("workers", "%s (no worker has a seat here)", out.None)
	} else if q.WorkersErr == nil {
		add("workers", "%d live, %d dead; %d of %d slots busy", sum.Live, sum.Dead, sum.Busy, sum.Slots)
	}
	if sum.HeadWait != nil {
		add("head wait", "%s", headWait(&sum))
	}
	if sum.Oldest != nil {
		add("oldest job", "%s, for %s, on %s", out.Text(jobName(sum.Oldest)), out.Span(sum.On.Running(sum.Oldest)), out.Text(sum.On.Owner))
	}
	if sum.Minute != nil && sum.Minute.Runs > 0 {
		add("last minute", "%s", runsLine("all", *sum.Minute))
	}
	for _, typ := range slices.Sorted(maps.Keys(sum.MinuteTypes)) {
		add("", "%s", runsLine(typ, sum.MinuteTypes[typ]))
	}
	for _, why := range slices.Sorted(maps.Keys(sum.Paused)) {
		add("paused", "%s by %s", out.Plural(sum.Paused[why], "worker", "workers"), bounder(why))
	}
	for _, why := range slices.Sorted(maps.Keys(sum.Limited)) {
		add("limited", "%s by %s", out.Plural(sum.Limited[why], "worker", "workers"), bounder(why))
	}
	for _, name := range slices.Sorted(maps.Keys(sum.Limiters)) {
		add("limiter", "%s has postponed %s", out.Text(name), out.Plural(int(sum.Limiters[name]), "job", "jobs"))
	}
	types := make([]string, 0, len(sum.P95))
	for typ := range sum.P95 {
		types = append(types, typ)
	}
	slices.Sort(types)
	for _, typ := range types {
		add("p95", "%s %s", out.Text(typ), out.Span(sum.P95[typ]))
	}
	for i := range q.Rules {
		r := &q.Rules[i]
		what := string(r.Do)
		if r.Do == control.Limit {
			what = fmt.Sprintf("limit to %d", r.Slots)
		}
		add("rule "+r.ID, "%s %s until %s, by %s: %q", what, ruled(r), a.until(r.Until), out.Text(r.By), r.Reason)
	}
	return lines
}

// bounder is who has paused or limited a worker for a reason.
func bounder(why string) string {
	switch why {
	case onceq.ReasonLocal:
		return "the program itself"
	case onceq.ReasonRules:
		return "a rule"
	case onceq.ReasonBreaker:
		return "a breaker of the program"
	}
	return out.Text(why)
}

func runsLine(typ string, r control.Runs) string {
	return fmt.Sprintf("%s: %s, %s failed (%s)", out.Or(typ), out.Plural(int(r.Runs), "run", "runs"), out.Int(r.Errors), percent(r))
}

func jobName(j *control.RunningJob) string {
	if j.Key != "" {
		return j.Key
	}
	return j.ID
}
