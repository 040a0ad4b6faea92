package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns looking at dead letters, and the filters of all their commands. Each command runs
// in the goroutine of Main.

// filters are the flags that choose letters.
type filters struct {
	class, group, typ, key, since, until, match string
	most                                        int
}

func (f *filters) flags(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.class, "class", "", "of this class of errors, such as timeout")
	fs.StringVar(&f.group, "group", "", "of this group (onceq dlq group QUEUE)")
	fs.StringVar(&f.typ, "type", "", "of this type of jobs")
	fs.StringVar(&f.key, "key", "", "of this key")
	fs.StringVar(&f.since, "since", "", "failed since: a time (2026-11-22T03:00:00Z), or how long ago (2h)")
	fs.StringVar(&f.until, "until", "", "failed before")
	fs.StringVar(&f.match, "match", "", "a regular expression that the body, the key or the last error matches")
	fs.IntVar(&f.most, "max", 0, "how many at most")
}

// none reports whether the filters choose all.
func (f *filters) none() bool {
	return f.class == "" && f.group == "" && f.typ == "" && f.key == "" && f.since == "" && f.until == "" && f.match == ""
}

// chosen reads the flags.
func (a *app) chosen(f *filters) (dlq.Filter, error) {
	d := dlq.Filter{Class: f.class, Group: f.group, Type: f.typ, Key: f.key, Max: f.most}
	var err error
	if d.Since, err = a.moment("--since", f.since); err != nil {
		return d, err
	}
	if d.Until, err = a.moment("--until", f.until); err != nil {
		return d, err
	}
	if f.most < 0 {
		return d, exit(exitUsage, "--max: %d is negative", f.most)
	}
	if a.hold < 0 {
		return d, exit(exitUsage, "--hold: %d is negative", a.hold)
	}
	if f.match != "" {
		d.Match, err = matching(f.match)
	}
	return d, err
}

// matching is --match at work.
func matching(pattern string) (func(*broker.Message) bool, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, exit(exitUsage, "--match: %s", caret(pattern, err))
	}
	return func(m *broker.Message) bool {
		if re.Match(m.Body) {
			return true
		}
		if m.Meta == nil {
			return false
		}
		return re.MatchString(m.Meta.Key) || m.Meta.Dead != nil && re.MatchString(m.Meta.Dead.LastErr)
	}, nil
}

// caret is the error of a regular expression, with a caret below its place.
func caret(pattern string, err error) string {
	e, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return err.Error()
	}
	at := max(0, strings.Index(pattern, e.Expr))
	return fmt.Sprintf("%s\n  %s\n  %s^", e.Code, pattern, strings.Repeat(" ", out.Width(out.Text(pattern[:at]))))
}

// letterFlags are the flags that stand for the fields in dlq's sentences.
var letterFlags = strings.NewReplacer(
	"dlq: ReplayOptions.PerSecond:", "--rate:", "dlq: ReplayOptions.CanaryWait:", "--canary-wait:", "dlq: ReplayOptions.Canary:", "--canary:",
	"Options.MaxHeld: raise it", "--hold: raise it",
	"dlq: ReplayOptions.Max:", "--max:", "dlq: PurgeOptions.Max:", "--max:", "dlq: Filter.Group:", "--group:", "dlq: ReplayOptions.Group:", "--group:",
	"dlq: PurgeOptions.Group:", "--group:", "dlq: Filter.Since:", "--since:", "dlq: ReplayOptions.Since:", "--since:", "dlq: PurgeOptions.Since:", "--since:",
	"dlq: ReplayOptions.TrustUnsigned:", "--vouch:", "dlq: PurgeOptions.All:", "--all:", "Filter.Max", "--max", "ReplayOptions.Max", "--max", "ReplayOptions.Plan sends", "the plan sends",
	"ReplayOptions.Canary is 0, and Ramp is not set", "--canary is 0, and --ramp is not set",
)

// lettersFailed gives an error of a command on letters its code.
func lettersFailed(err error) error {
	if err == nil || isCoded(err) {
		return err
	}
	text := letterFlags.Replace(err.Error())
	switch {
	case errors.Is(err, dlq.ErrPlan):
		return exit(exitRefused, "%s", strings.TrimPrefix(text, dlq.ErrPlan.Error()+": "))
	case errors.As(err, new(*ops.ConflictError)):
		return exit(exitRefused, "%s; --beside goes on at once, and does no harm", strings.TrimPrefix(text, "ops: "))
	case errors.Is(err, dlq.ErrNoLetter):
		return exit(exitFound, "%s", strings.TrimPrefix(text, "dlq: "))
	case errors.Is(err, dlq.ErrIncomplete):
		return exit(exitPartly, "%s", strings.TrimPrefix(text, "dlq: "))
	case text != err.Error():
		return exit(exitUsage, "%s", text)
	}
	return usable(err)
}

// copiesLine says why a queue's own count is higher than that of its letters; empty = it is not.
func copiesLine(copies int) string {
	if copies == 0 {
		return ""
	}
	return fmt.Sprintf("%s more of these are in the queue, and queue ls counts them too; a replay sends one of each", out.Plural(copies, "copy", "copies"))
}

func (a *app) letterListCommand() *cobra.Command {
	var f filters
	c := &cobra.Command{
		Use: "ls QUEUE", Short: "List dead letters, the oldest failure first; each has one receive more then", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			filter, err := a.chosen(&f)
			if err != nil {
				return err
			}
			w, err := a.open(ctx, needDead, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			name := w.Names()[0]
			r := out.Result{Columns: out.Columns("FAILED@", "KEY", "TYPE", "CLASS", "GROUP", "ATTEMPTS>", "ERROR"), Empty: "no such letter", Items: []any{}}
			var failed error
			copies := 0
			for e, err := range w.Letters(ctx, name, filter) {
				if err != nil {
					failed = err
					break
				}
				v := viewLetter(e)
				copies += e.Copies
				r.Add(out.Text(v.Key), v,
					a.out.Date(e.At())+" "+a.out.Time(e.At()), cutKey(v.Key), cutName(v.Type), cutName(v.Class),
					v.Group, out.Int(v.Attempts), out.Cut(out.Text(firstLine(v.LastErr)), 60),
				)
				if r.Next == "" && v.Key != "" {
					r.Next = suggest("dlq show", "", name, v.Key)
				}
			}
			if err := a.show(r); err != nil {
				return err
			}
			if line := copiesLine(copies); line != "" {
				a.say("%s", line)
			}
			return lettersFailed(failed)
		}),
	}
	f.flags(c)
	return c
}

func (a *app) letterGroupCommand() *cobra.Command {
	var f filters
	c := &cobra.Command{
		Use: "group QUEUE", Short: "Dead letters by what went wrong: the first thing to ask in an outage", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "A group is one kind of failure: its class, and its error without ids, times and amounts. Its name stays\n" +
			"the same for ever, so alerts and tickets may name it. Each letter has one receive more then.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			filter, err := a.chosen(&f)
			if err != nil {
				return err
			}
			w, err := a.open(ctx, needDead, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			name := w.Names()[0]
			gs, failed := w.Groups(ctx, name, filter)
			if failed != nil && len(gs) == 0 {
				return lettersFailed(failed)
			}
			if err := a.showGroups(name, gs, failed); err != nil {
				return err
			}
			return lettersFailed(failed)
		}),
	}
	f.flags(c)
	return c
}

func (a *app) showGroups(name string, gs dlq.Groups, failed error) error {
	r := out.Result{Columns: out.Columns("GROUP", "CLASS", "TYPE", "LETTERS>", "FIRST@", "LAST@", "ERROR"), Empty: "no dead letter in " + name, Items: []any{}}
	n, copies, first, last := 0, 0, time.Time{}, time.Time{}
	for i := range gs {
		g := &gs[i]
		n += g.Count
		copies += g.Copies
		if first.IsZero() || g.Oldest.Before(first) {
			first = g.Oldest
		}
		if g.Newest.After(last) {
			last = g.Newest
		}
		r.Add(g.Group, viewGroup(g),
			g.Group, cutName(g.Class), typesOf(g.Types), out.Int(g.Count), a.out.Time(g.Oldest), a.out.Time(g.Newest), out.Cut(out.Text(g.Error), 70),
		)
	}
	r.Next = "onceq queue ls"
	if n > 0 {
		looked := "all looked at"
		if failed != nil {
			looked = "NOT all looked at"
		}
		r.Title = fmt.Sprintf("%s, %s %s – %s, %s", out.Plural(n, "letter", "letters"), a.out.Date(first), a.out.Time(first), a.until(last), looked)
		r.Next = fmt.Sprintf("onceq dlq replay %s --group %s --dry-run", name, gs[0].Group)
	}
	if err := a.show(r); err != nil {
		return err
	}
	if line := copiesLine(copies); line != "" {
		a.say("%s", line)
	}
	return nil
}

// typesOf names the types, the most frequent first.
func typesOf(n map[string]int) string {
	var names []string
	for t := range n {
		names = append(names, t)
	}
	slices.SortFunc(names, func(x, y string) int {
		if n[x] != n[y] {
			return n[y] - n[x]
		}
		return strings.Compare(x, y)
	})
	for i, t := range names {
		names[i] = out.Or(t)
	}
	return out.Cut(strings.Join(names, ", "), 30)
}

func (a *app) letterShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE KEY|ID", Short: "All that is known of a dead letter, its body too", Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeQueue,
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			w, err := a.open(ctx, needDead, args[0])
			if err != nil {
				return err
			}
			defer w.close()
			name := w.Names()[0]
			found, failed := w.Letter(ctx, ops.LetterQuery{Queue: name, Job: args[1]})
			if failed != nil && len(found) == 0 {
				return lettersFailed(failed)
			}
			r := out.Result{Items: []any{}}
			for i, e := range found {
				if i > 0 {
					r.Lines = append(r.Lines, "")
				}
				var b strings.Builder
				if err := e.Show(&b); err != nil {
					return err
				}
				r.Lines = append(r.Lines, strings.Split(strings.TrimRight(b.String(), "\n"), "\n")...)
				r.Items = append(r.Items, viewLetter(e))
				r.IDs = append(r.IDs, out.Text(e.Message.ID))
			}
			if rec := found[0].Record(); rec.Scope != "" {
				r.Next = suggest("key show", "", rec.Scope, rec.Key)
			} else {
				r.Next = fmt.Sprintf("onceq dlq replay %s %s --dry-run", name, flagged("key", found[0].Ref().Key))
			}
			if err := a.show(r); err != nil {
				return err
			}
			return lettersFailed(failed)
		}),
	}
}
