package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

// This file owns what workers' cards say: the workers, and the jobs that run or stand still. Each
// command runs in the goroutine of Main.

func (a *app) workersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "workers QUEUE [WORKER…]", Short: "Who works on a queue", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSeated(a.completeWorkers),
		Long: "One line a worker that has a seat: what its last card says, and when the store saw it. SKEW is how far\n" +
			"its clock is ahead of the store's. Functions in Lambda have no seats.",
		RunE: a.run(func(ctx context.Context, args []string) error {
			w, err := a.open(ctx, needStore|needNoQueue|needCards, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			name := w.Names()[0]
			seats, err := w.Workers(ctx, name)
			if err != nil {
				return usable(err)
			}
			if seats, err = named(seats, name, args[1:]); err != nil {
				return err
			}
			sum := ops.SumUp(seats)
			differ := differing(&sum)
			r := out.Result{
				Columns: append(workerColumns(), differ.columns()...), Items: []any{},
				Empty: "no worker has a seat at " + name + ": none runs, or it has no seat (Lambda, Control.Every < 0, a version before seats)",
				Next:  "onceq jobs running " + name,
			}
			for i := range seats {
				s := &seats[i]
				r.Add(out.Text(s.Owner), viewWorker(name, s), append(a.workerRow(s), differ.row(s)...)...)
				if s.State == ops.StateDead {
					r.Next = "onceq jobs stalled " + name
				}
			}
			if len(seats) == 0 {
				r.Next = "onceq queue show " + name
			}
			if err := a.show(r); err != nil {
				return err
			}
			for _, text := range differences(&sum) {
				a.say("%s", text)
			}
			return nil
		}),
	}
}

// A differs says in which settings the live workers differ: these are columns then.
type differs struct {
	scope, version bool
	scopes         map[string]string // by owner
}

func differing(w *ops.WorkerTotals) differs {
	d := differs{len(w.Scopes) > 1, len(w.Versions) > 1, map[string]string{}}
	for scope, owners := range w.Scopes {
		for _, owner := range owners {
			d.scopes[owner] = scope
		}
	}
	return d
}

func (d differs) columns() (cs []out.Column) {
	if d.scope {
		cs = append(cs, out.Columns("SCOPE")...)
	}
	if d.version {
		cs = append(cs, out.Columns("VERSION")...)
	}
	return cs
}

func (d differs) row(s *ops.WorkerState) (row []string) {
	scope, version := out.None, out.None
	if s.Status != nil {
		scope, version = out.Or(cmp.Or(d.scopes[s.Owner], s.Status.Scope)), out.Or(s.Status.Version)
	}
	if d.scope {
		row = append(row, scope)
	}
	if d.version {
		row = append(row, version)
	}
	return row
}

// named are the workers with these names; no name means all.
func named(seats []ops.WorkerState, queue string, owners []string) ([]ops.WorkerState, error) {
	if len(owners) == 0 {
		return seats, nil
	}
	var some []ops.WorkerState
	for _, owner := range owners {
		before := len(some)
		var all []string
		for _, s := range seats {
			if all = append(all, s.Owner); s.Owner == owner {
				some = append(some, s)
			}
		}
		if len(some) == before {
			return nil, exit(exitFound, "no worker %s has a seat at %s%s", out.Text(owner), queue, settings.DidYouMean(owner, all))
		}
	}
	return some, nil
}

func workerColumns() []out.Column {
	return out.Columns("WORKER", "HOST", "BUSY>", "DONE/MIN>", "FAIL%>", "P95>", "STATE", "SKEW>", "SEEN>", "RULES>", "OLDEST JOB")
}

func (a *app) workerRow(s *ops.WorkerState) []string {
	row := []string{out.Text(s.Owner), out.None, out.None, out.None, out.None, out.None, out.Or(s.State), out.None, out.Span(s.Ago), out.None, out.None}
	if s.State == ops.StateDead {
		row[6] = "DEAD"
	}
	c := s.Status
	if c == nil {
		return row
	}
	row[1] = out.Or(c.Host)
	if s.Alive() {
		row[2] = fmt.Sprintf("%d/%d", c.Busy, c.Slots)
		row[3] = out.Int(int64(c.Rate + 0.5))
		if d, ok := worst(c); ok {
			row[5] = out.Span(d)
		}
		if c.Minute != nil && c.Minute.Runs > 0 {
			row[4] = percent(*c.Minute)
		}
		if row[7] = fmt.Sprintf("%+.1fs", s.Skew.Seconds()); row[7] == "-0.0s" {
			row[7] = "+0.0s"
		}
		row[9] = fmt.Sprint(c.Rules)
	}
	if c.Outage != "" {
		row[6] += ": " + out.Text(c.Outage)
	}
	switch {
	case len(c.Jobs) == 0:
	case s.Alive():
		row[10] = fmt.Sprintf("%s  %s", cutKey(jobName(&c.Jobs[0])), out.Span(s.Running(&c.Jobs[0])))
	default:
		var names []string
		for i := range c.Jobs[:min(3, len(c.Jobs))] {
			names = append(names, cutKey(jobName(&c.Jobs[i])))
		}
		row[10] = strings.Join(names, ", ")
		if more := len(c.Jobs) - len(names) + c.More; more > 0 {
			row[10] += fmt.Sprintf(" and %d more", more)
		}
	}
	return row
}

func (a *app) jobsCommand() *cobra.Command {
	running := &cobra.Command{
		Use: "running QUEUE", Short: "The jobs that run longest, as the workers' cards name them", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSeated(nil),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.running(ctx, args[0]) }),
	}
	var scan bool
	stalled := &cobra.Command{
		Use: "stalled QUEUE", Short: "Jobs whose worker died or went silent, and that nobody has taken over", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSeated(nil),
		Long: "The cards of dead workers name some jobs; --scan looks at each claimed record instead, which reads\n" +
			"the table. Nothing has to be done: the next delivery of such a job takes it over.",
		RunE: a.run(func(ctx context.Context, args []string) error { return a.stalled(ctx, args[0], scan) }),
	}
	stalled.Flags().BoolVar(&scan, "scan", false, "look at all claimed records, and pay for it")
	return group("jobs", "Jobs that run, or stand still", running, stalled)
}

func (a *app) running(ctx context.Context, queue string) error {
	w, err := a.open(ctx, needStore|needNoQueue|needCards, queue)
	if err != nil {
		return err
	}
	defer w.close()
	name := w.Names()[0]
	seats, err := w.Workers(ctx, name)
	if err != nil {
		return usable(err)
	}
	var js []jobView
	more, silent, untimed := 0, 0, map[string]bool{}
	for i := range seats {
		s := &seats[i]
		if !s.Alive() {
			continue
		}
		if s.Status == nil {
			silent++
			continue
		}
		more += s.Status.More
		for n := range s.Status.Jobs {
			j := &s.Status.Jobs[n]
			if isUntimed(s.Status, j.Type) {
				untimed[out.Or(j.Type)] = true
			}
			js = append(js, jobView{
				Key: j.Key, ID: j.ID, Type: j.Type, Scope: controlstore.ScopeOf(s.Status, j.Type), Queue: name, Worker: s.Owner, State: "running",
				Running: seconds(s.Running(j)), Began: out.Stamp(j.At), Attempt: j.Attempt, Fence: j.Fence, Overdue: j.Overdue,
			})
		}
	}
	slices.SortStableFunc(js, func(x, y jobView) int { return cmp.Compare(*y.Running, *x.Running) })
	r := out.Result{Columns: out.Columns("JOB", "TYPE", "RUNNING>", "ATTEMPT>", "WORKER", "STATE"), Items: []any{}, Empty: "no card names a job", Next: "onceq workers " + name}
	for _, j := range js {
		state := j.State
		if j.Overdue {
			state = "OVERDUE: its context has ended"
		}
		r.Add(out.Text(cmp.Or(j.Key, j.ID)), j, cutKey(cmp.Or(j.Key, j.ID)), cutName(j.Type), out.Span(time.Duration(*j.Running*1e9)), out.Int(j.Attempt), out.Text(j.Worker), state)
	}
	if len(js) > 0 {
		r.Next = suggest("key show", "", js[0].Scope, cmp.Or(js[0].Key, js[0].ID))
	}
	if err := a.show(r); err != nil {
		return err
	}
	if more > 0 {
		a.say("%s run that no card names: a card has the oldest ones (Control.Jobs)", out.Plural(more, "more job", "more jobs"))
	}
	if len(untimed) > 0 {
		a.say("no timeout is set for %s: nothing but its own end ends such a job (JobOptions.Timeout)", strings.Join(slices.Sorted(maps.Keys(untimed)), ", "))
	}
	if silent > 0 {
		a.say("%s not written a card yet", out.Plural(silent, "worker has", "workers have"))
	}
	return nil
}

// isUntimed reports whether jobs of a type have no timeout, as far as the card says.
func isUntimed(c *control.WorkerStatus, typ string) bool {
	if c.DrainTimeout == 0 {
		return false // the card is of a version that does not say
	}
	if of, own := c.Timeouts[typ]; own {
		return of <= 0
	}
	return c.Timeout <= 0
}

func (a *app) stalled(ctx context.Context, queue string, scan bool) error {
	w, err := a.open(ctx, needStore|needNoQueue|needCards, queue)
	if err != nil {
		return err
	}
	defer w.close()
	name := w.Names()[0]
	found, err := w.Stalled(ctx, name, ops.StalledOptions{Scan: scan})
	if err != nil {
		return scanned(err)
	}
	r := out.Result{
		Columns: out.Columns("SCOPE", "KEY", "ATTEMPT>", "FENCE>", "WORKER", "DEAD FOR>"), Items: []any{},
		Empty: "nothing stands still, as far as the cards of dead workers tell (--scan looks at all)", Next: "onceq workers " + name,
	}
	if scan {
		r.Empty = "nothing stands still"
	}
	for _, s := range found {
		r.Add(out.Text(s.Record.Key.String()), stalledView(name, s),
			out.Text(s.Record.Key.Scope), cutKey(s.Record.Key.Key), out.Int(s.Record.Attempt), fmt.Sprint(s.Record.Fence), out.Or(s.Record.Owner), out.Span(s.DeadFor),
		)
	}
	more := 0
	if !scan {
		more = unnamed(ctx, w, name)
		if more > 0 && len(found) == 0 {
			r.Next = fmt.Sprintf("onceq jobs stalled %s --scan", name)
		}
	}
	if len(found) > 0 {
		k := found[0].Record.Key
		r.Next = suggest("key show", "", k.Scope, k.Key)
	}
	if err := a.show(r); err != nil {
		return err
	}
	if more > 0 {
		a.say("%s of dead workers that no card names, unless others have taken them over: --scan looks", out.Plural(more, "more job", "more jobs"))
	}
	return nil
}

// unnamed is how many jobs dead workers ran that their cards do not name.
func unnamed(ctx context.Context, w *world, queue string) (n int) {
	seats, err := w.Workers(ctx, queue)
	if err != nil {
		return 0
	}
	for i := range seats {
		if s := &seats[i]; s.State == ops.StateDead && s.Status != nil {
			n += s.Status.More
			if len(s.Status.Jobs) == 0 && s.Status.More == 0 {
				n += s.Status.Busy
			}
		}
	}
	return n
}

func stalledView(queue string, s ops.Stalled) jobView {
	r := s.Record
	return jobView{
		Key: r.Key.Key, Scope: r.Key.Scope, Queue: queue, Worker: r.Owner, State: dedupe.Claimed.String(), Began: out.Stamp(r.ClaimedAt),
		Attempt: r.Attempt, Fence: r.Fence, DeadFor: seconds(s.DeadFor),
	}
}
