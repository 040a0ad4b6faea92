package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

// This file owns pause, resume and limit: what is asked before, and what is said of the workers
// that follow. Each command runs in the goroutine of Main.

func (a *app) reasonFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.reasonText, "reason", "", "why; others read it, and the audit keeps it")
}

func (a *app) pauseCommand() *cobra.Command {
	var typ, scope, length string
	var force bool
	c := &cobra.Command{
		Use: "pause QUEUE", Short: "Pause a queue, a scope or a type of jobs, for a time", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSeated(nil),
		Long: "Workers of a paused queue stop receiving; what runs goes on. It costs no receives. A queue that\n" +
			"keeps messages for some days goes on counting, so a pause that outlasts it is refused (--force).\n" +
			"With --type or --scope they give the messages of these jobs back, again and again. Each time is a\n" +
			"receive, so a pause that the queue's redrive policy does not survive is refused (--force).\n" +
			"The command waits until each live worker's card shows the rule, for 15 s at most.",
		RunE: a.run(func(ctx context.Context, args []string) error {
			r := control.Rule{Do: control.Pause, Queue: args[0], Type: typ, Scope: scope}
			return a.rule(ctx, r, length, force)
		}),
	}
	f := c.Flags()
	f.StringVar(&typ, "type", "", "pause jobs of this type alone")
	f.StringVar(&scope, "scope", "", "pause jobs of this scope alone, as records have it")
	f.StringVar(&length, "for", "", "how long, such as 30m, 2h, 1d; at most 30d (required)")
	f.BoolVar(&force, "force", false, "pause although the queue may move messages away meanwhile, or delete them")
	a.reasonFlag(c)
	return c
}

func (a *app) limitCommand() *cobra.Command {
	var length string
	var slots int
	c := &cobra.Command{
		Use: "limit QUEUE", Short: "Bound the handlers that each worker runs at once, for a time", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSeated(nil),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if slots < 1 {
				return exit(exitUsage, "--slots: %d, want 1 or more; pause the queue for none", slots)
			}
			return a.rule(ctx, control.Rule{Do: control.Limit, Queue: args[0], Slots: slots}, length, false)
		}),
	}
	c.Flags().IntVar(&slots, "slots", 0, "handlers at once in each worker (required)")
	c.Flags().StringVar(&length, "for", "", "how long, such as 30m, 2h, 1d; at most 30d (required)")
	a.reasonFlag(c)
	return c
}

// rule makes a rule.
func (a *app) rule(ctx context.Context, r control.Rule, length string, force bool) error {
	if length == "" {
		return exit(exitUsage, "--for is missing: a rule without an end is forgotten; want 30m, 2h, 1d")
	}
	d, err := controlstore.ParseFor(length)
	if err != nil {
		return exit(exitUsage, "--for: %w", bare(err))
	}
	if r.Reason, err = a.reason(ctx); err != nil {
		return err
	}
	r.Until = a.io.Now().Add(d)
	w, err := a.open(ctx, needStore|needCards, r.Queue)
	if err != nil {
		return err
	}
	defer w.close()
	name := w.Names()[0]
	r.Queue = name
	if t, err := w.Target(name); err == nil && t.Queue == nil && !r.OfQueue() && r.Do == control.Pause {
		if !force {
			return exit(exitRefused, "only the workers' cards name %s, so nobody can tell what the pause costs in receives: give the queue's URL, or pause the whole queue (--force pauses all the same)", name)
		}
		a.say("careful: nobody can tell what the pause costs in receives, because only the workers' cards name %s", name)
	}
	price, err := w.Cost(ctx, r)
	if err != nil {
		if p := (*control.CostError)(nil); !errors.As(err, &p) {
			return usable(err)
		} else if !force {
			return exit(exitRefused, "%s (--force pauses all the same)", p.Error())
		}
		a.say("careful: %v", err)
	} else if price != nil && price.Unread != nil {
		a.say("careful: nobody can tell how long %s keeps messages, so a pause that is longer deletes them: %v", name, price.Unread)
	} else if price != nil && price.MaxReceives > 0 {
		a.say("each message of it is received about %d times meanwhile; %s lets it be received %d times", price.Receives(), name, price.MaxReceives)
	}
	plan := fmt.Sprintf("%s %s of %s until %s: %q", r.Do, ruled(&r), name, a.until(r.Until), r.Reason)
	if r.Do == control.Limit {
		plan = fmt.Sprintf("limit each worker of %s to %d handlers at once until %s: %q", name, r.Slots, a.until(r.Until), r.Reason)
	}
	lower, longer := a.othersHold(ctx, w, name, &r)
	for _, text := range []string{lower, longer} {
		if text != "" {
			plan += "\n  " + text
		}
	}
	if err := a.confirm(ctx, w, question{Plan: plan, Want: name, Act: string(r.Do) + " it", Bounded: true}); err != nil {
		return err
	}
	do := w.Pause
	if r.Do == control.Limit {
		do = w.Limit
	}
	followed, err := do(ctx, r, &ops.RuleOptions{Force: true, Each: a.following})
	a.progress("")
	if err != nil && len(followed.Rules) == 0 {
		return usable(err)
	}
	done := name + " paused"
	switch {
	case lower != "":
		done = name + " not changed, because " + lower + "; this limit is recorded"
	case r.Do == control.Limit:
		done = fmt.Sprintf("%s limited to %d a worker", name, r.Slots)
	case !r.OfQueue():
		done = fmt.Sprintf("%s of %s paused", ruled(&r), name)
	}
	line := fmt.Sprintf("%s until %s, rule %s", done, a.until(r.Until), followed.Rules[0].ID)
	if longer != "" {
		line += "\n" + longer
	}
	return a.followed(ctx, followed, err, line, fmt.Sprintf("onceq queue resume %s %s --reason TEXT", name, followed.Rules[0].ID))
}

// othersHold says which rule in force makes a new one mean little: a limit that is lower, and a
// pause that goes on when this rule has ended, or while it is in force.
func (a *app) othersHold(ctx context.Context, w *world, queue string, made *control.Rule) (lower, longer string) {
	rules, err := w.Rules(ctx, queue)
	if err != nil {
		return "", ""
	}
	var least, last *control.Rule
	for i := range rules {
		r := &rules[i]
		if r.Do == control.Limit && made.Do == control.Limit && r.Slots < made.Slots && (least == nil || r.Slots < least.Slots) {
			least = r
		}
		covers := r.Do == control.Pause && (r.OfQueue() || r.Type == made.Type && r.Scope == made.Scope)
		if covers && (made.Do == control.Limit || r.Until.After(made.Until)) && (last == nil || r.Until.After(last.Until)) {
			last = r
		}
	}
	end := func(r *control.Rule) string {
		return fmt.Sprintf("%s, by %s; end it: onceq queue resume %s %s --reason TEXT", r.ID, out.Text(r.By), queue, r.ID)
	}
	if least != nil {
		lower = fmt.Sprintf("a limit of %d is lower and holds until %s (%s)", least.Slots, a.until(least.Until), end(least))
	}
	switch {
	case last == nil:
	case made.Do == control.Limit:
		longer = fmt.Sprintf("%s is PAUSED until %s (rule %s by %s)", queue, a.until(last.Until), last.ID, out.Text(last.By))
	default:
		longer = fmt.Sprintf("a pause until %s goes on longer (%s)", a.until(last.Until), end(last))
	}
	return lower, longer
}

// ending are the rules that a resume would end, as lines of its question. known is the queue's name
// as its rules have it.
func (a *app) ending(rules []control.Rule, known, id string) (lines []string, parts bool) {
	for i := range rules {
		r := &rules[i]
		if id != "" && r.ID != id || id == "" && (r.Do != control.Pause || r.Queue != known) {
			continue
		}
		what := string(r.Do)
		if r.Do == control.Limit {
			what = fmt.Sprintf("limit to %d", r.Slots)
		}
		lines = append(lines, fmt.Sprintf("  %s: %s %s until %s, by %s: %q", r.ID, what, ruled(r), a.until(r.Until), out.Text(r.By), r.Reason))
		parts = parts || r.Do == control.Pause && !r.OfQueue()
	}
	return lines, parts
}

// resumed says what became of a queue of which rules were ended: another one may pause it.
func (a *app) resumed(ctx context.Context, w *world, queue string, f *ops.Followed) string {
	ended := out.Plural(len(f.Rules), "rule", "rules") + " ended"
	if rules, err := w.Rules(ctx, queue); err == nil {
		var last *control.Rule
		for i := range rules {
			if r := &rules[i]; r.Do == control.Pause && r.OfQueue() && (last == nil || r.Until.After(last.Until)) {
				last = r
			}
		}
		if last != nil {
			return fmt.Sprintf("%s, and %s STAYS paused until %s: rule %s by %s: %q", ended, queue, a.until(last.Until), last.ID, out.Text(last.By), last.Reason)
		}
	}
	return fmt.Sprintf("%s resumed at %s, %s", queue, a.until(time.Now()), ended)
}

// bare is an error of package control without the prefix that programs want.
func bare(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), control.ErrInvalid.Error()+": "))
}

func (a *app) following(f ops.Followed) {
	if len(f.Behind) > 0 {
		a.progress(fmt.Sprintf("%d of %d workers follow (%.0f s)", f.Live-len(f.Behind), f.Live, f.Took.Seconds()))
	}
}

// followed prints what became of a change of the rules. failed is why nobody knows who follows, or
// why the audit lacks it: the rules are changed all the same.
func (a *app) followed(ctx context.Context, f ops.Followed, failed error, line, next string) error {
	v := followedView{Rules: viewRules(f.Rules), Version: f.Version, Live: f.Live, Behind: []string{}, Took: *seconds(f.Took), Audit: f.Audit}
	lines := []string{line}
	switch {
	case failed != nil && f.Live == 0:
		lines = append(lines, "who follows is not known")
	case f.Live == 0:
		lines = append(lines, "no worker has a seat here: workers that start obey the rule; functions in Lambda do within 10 s")
	case len(f.Behind) == 0:
		lines = append(lines, fmt.Sprintf("all %d workers follow, after %s", f.Live, out.Span(f.Took)))
	default:
		lines = append(lines, fmt.Sprintf("%d of %d workers follow after %s; not yet:", f.Live-len(f.Behind), f.Live, out.Span(f.Took)))
	}
	for i := range f.Behind {
		s := &f.Behind[i]
		v.Behind = append(v.Behind, s.Owner)
		why := "has not written a card yet"
		if s.Status != nil {
			why = fmt.Sprintf("shows rules %d of %d, seen %s ago", s.Status.Rules, f.Version, out.Span(s.Ago))
			if s.Status.NoRules != "" {
				why = "cannot read the rules: " + out.Text(s.Status.NoRules)
			}
		}
		lines = append(lines, fmt.Sprintf("  %s %s", out.Text(s.Owner), why))
	}
	if f.Audit != "" {
		lines = append(lines, "audit "+f.Audit)
	}
	ids := make([]string, len(f.Rules))
	for i, r := range f.Rules {
		ids[i] = r.ID
	}
	if err := a.show(out.Result{Lines: lines, Value: v, IDs: ids, Next: next}); err != nil {
		return err
	}
	switch {
	case isInterrupted(ctx):
		return exit(exitInterrupted, "interrupted; the rules are changed all the same, and workers follow")
	case failed != nil:
		return usable(failed)
	case len(f.Behind) > 0:
		return exitWith(exitPartly, nil)
	}
	return nil
}

func (a *app) resumeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "resume QUEUE [RULE]", Short: "End the pauses of a queue, or one rule", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeSeated(a.completeRules),
		RunE: a.run(func(ctx context.Context, args []string) error {
			reason, err := a.reason(ctx)
			if err != nil {
				return err
			}
			w, err := a.open(ctx, needStore|needCards, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			name, id := w.Names()[0], ""
			plan := "end the pauses of " + name
			if len(args) > 1 {
				id = args[1]
				plan = fmt.Sprintf("end rule %s of %s", id, name)
			}
			plan += fmt.Sprintf(": %q", reason)
			var ending []string
			parts := false
			if t, err := w.Target(name); err == nil {
				rules, _ := w.Rules(ctx, name) // Resume says what is wrong
				ending, parts = a.ending(rules, t.Known, id)
			}
			if err := a.confirm(ctx, w, question{Plan: strings.Join(append([]string{plan}, ending...), "\n"), Want: name, Act: "go on", Bounded: true}); err != nil {
				return err
			}
			f, err := w.Resume(ctx, ops.ResumeSpec{Queue: name, Rule: id, Reason: reason}, &ops.RuleOptions{Each: a.following})
			a.progress("")
			if err != nil && len(f.Rules) == 0 {
				return usable(err)
			}
			line := a.resumed(ctx, w, name, &f)
			if parts {
				line += "\nmessages that were given back meanwhile come again within 15m"
			}
			return a.followed(ctx, f, err, line, "onceq queue show "+name)
		}),
	}
	a.reasonFlag(c)
	return c
}
