package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// This file owns key show: a key's time line as people read it. It runs in the goroutine of Main.

func (a *app) keyShowCommand() *cobra.Command {
	var letters, verbose bool
	var queue, effect string
	c := &cobra.Command{
		Use: "show [SCOPE] KEY", Short: "What happened to a key: a time line, with where each step is from", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeScope,
		Long: "The steps come from the key's record and the attempts in it, its owner's seat, the audit, and, with\n" +
			"--letters, the dead-letter queue (each letter there has one receive more then). KEY alone is looked\n" +
			"for in the scopes that the profile, or the workers' cards, name.",
		RunE: a.run(func(ctx context.Context, args []string) error {
			needs := needStore | needNoQueue
			var names []string
			if letters {
				needs = needStore
			}
			if queue != "" {
				names = []string{queue}
			} else if letters {
				if conf, err := a.config(); err == nil && conf.profile != nil && len(conf.profile.Order) > 1 {
					return exit(exitUsage, "--letters: name the --queue")
				}
			}
			w, err := a.open(ctx, needs, names...)
			if err != nil {
				return err
			}
			defer w.close()
			if queue != "" {
				queue = w.Names()[0]
			}
			k, err := a.where(ctx, w, queue, args)
			if err != nil {
				return err
			}
			if queue == "" {
				queue = w.ownerQueue(ctx, k)
			}
			l, err := w.Key(ctx, queue, k, ops.KeyOptions{Letters: letters})
			if l == nil {
				return usable(err)
			}
			if e := a.showKey(l, queue, verbose, letters, effect); e != nil {
				return e
			}
			if errors.Is(err, ops.ErrNoKey) {
				return exitWith(exitFound, nil)
			}
			return usable(err)
		}),
	}
	f := c.Flags()
	f.StringVar(&queue, "queue", "", "the key's queue")
	f.BoolVar(&letters, "letters", false, "also look for its dead letter, which costs each letter a receive")
	f.BoolVarP(&verbose, "verbose", "v", false, "show each attempt")
	f.StringVar(&effect, "effect", "", "also print the job's effect key of this step")
	return c
}

func (a *app) showKey(l *ops.TimeLine, queue string, verbose, looked bool, effect string) error {
	name := out.Text(l.Key.Scope) + " " + out.Text(l.Key.Key)
	v := keyView{Scope: l.Key.Scope, Key: l.Key.Key, Status: "none"}
	head := name + "   no record"
	next := ""
	if r := l.Record; r != nil {
		v = viewRecord(r)
		head, next = a.keyHead(name, l), keyNext(l, queue, looked)
	}
	lines := append([]string{head}, a.stepLines(l, verbose)...)
	for _, s := range l.Steps {
		v.Steps = append(v.Steps, stepView{
			At: out.Stamp(s.At), What: s.What, Text: s.Text, Class: s.Class, Attempt: s.Attempt, Fence: s.Fence, Owner: s.Owner, Source: string(s.Source), Audit: s.Audit,
		})
	}
	for _, s := range l.Saved {
		v.Saved = append(v.Saved, viewSaved(s))
	}
	v.Gaps, v.Links = l.Gaps, l.Links
	if effect != "" {
		v.EffectKey = onceq.EffectKey(l.Key, effect)
		lines = append(lines, fmt.Sprintf("  effect key: %s → %s", out.Text(effect), v.EffectKey))
	}
	return a.show(out.Result{Lines: lines, Value: v, IDs: []string{l.Key.String()}, Next: next})
}

// stepLines are the steps, the gaps and the links as people read them.
func (a *app) stepLines(l *ops.TimeLine, verbose bool) (lines []string) {
	for _, row := range fold(l.Steps, verbose) {
		at := a.out.Milli(row.At)
		if row.count > 1 {
			at = a.out.Time(row.At)
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %-14s  %-12s  %s", at, row.what, row.text), " "))
	}
	lines = append(lines, a.savedLines(l.Saved, verbose)...)
	for _, g := range l.Gaps {
		lines = append(lines, "  not known: "+out.Text(g))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Links)) {
		lines = append(lines, fmt.Sprintf("  %s: %s", out.Text(name), out.Text(l.Links[name])))
	}
	return lines
}

// savedShown is how many saved steps are shown, the last ones.
const savedShown = 20

// savedLines name what the job has saved.
func (a *app) savedLines(saved []ops.SavedStep, verbose bool) (lines []string) {
	if more := len(saved) - savedShown; more > 0 && !verbose {
		lines = append(lines, fmt.Sprintf("  saved: %s before these (-v shows each)", out.Plural(more, "step", "steps")))
		saved = saved[more:]
	}
	for _, s := range saved {
		what := out.Bytes(s.Bytes)
		if !s.Until.IsZero() {
			what = "asleep until " + a.out.Time(s.Until)
		}
		lines = append(lines, fmt.Sprintf("  %-14s  %-12s  %s, %s", a.out.Milli(s.At), "saved", out.Text(s.Name), what))
	}
	return lines
}

func (a *app) keyHead(name string, l *ops.TimeLine) string {
	r := l.Record
	at := r.Finished
	if at.IsZero() {
		at = r.Updated
	}
	head := fmt.Sprintf("%s   %s %s, attempt %d", name, strings.ToUpper(r.Status.String()), a.until(at), r.Attempt)
	if n := len(r.Past); n > 0 && r.Past[n-1].Reopened {
		head += " after a replay"
	}
	head += fmt.Sprintf(", fence %d", r.Fence)
	if !r.Expires.IsZero() {
		head += ", kept until " + a.out.Date(r.Expires)
	}
	return head
}

// keyNext is what one mostly does with such a record.
func keyNext(l *ops.TimeLine, queue string, looked bool) string {
	r := l.Record
	if queue == "" {
		queue = "QUEUE"
	}
	switch r.Status {
	case dedupe.Parked:
		return suggest("key resolve", fmt.Sprintf("--fence %d --to done|failed|released --reason TEXT", r.Fence), r.Key.Scope, r.Key.Key)
	case dedupe.Failed:
		switch {
		case ops.IsCancelled(r):
			return suggest("key forget", fmt.Sprintf("--fence %d --reason TEXT", r.Fence), r.Key.Scope, r.Key.Key) // should it run after all
		case l.Replayed == nil || l.Letter != nil:
		case looked:
			return "onceq queue show " + queue // its letter was sent, and nobody has claimed it yet
		default:
			return suggest("key show", "--letters --queue "+queue, r.Key.Scope, r.Key.Key)
		}
		return fmt.Sprintf("onceq dlq replay %s %s --dry-run", queue, flagged("key", r.Key.Key))
	case dedupe.Claimed:
		return "onceq jobs running " + queue
	}
	return "onceq queue show " + queue
}

// A row is a step as people read it, or several that are alike.
type row struct {
	ops.TimeStep
	what, text string
	count      int
}

// foldFrom is how many attempts that ended alike are shown as one line.
const foldFrom = 3

// fold makes the rows. Attempts in the middle that failed in the same way become one.
func fold(steps []ops.TimeStep, verbose bool) (rows []row) {
	for i := 0; i < len(steps); {
		if n, first, last := alike(steps[i:]); n >= foldFrom && !verbose {
			end := steps[i+2*n-1]
			rows = append(rows, row{
				TimeStep: steps[i], count: n, what: fmt.Sprintf("%d attempts", n),
				text: fmt.Sprintf("#%d to #%d, all %s, %s (-v shows each)", first, last, end.What, out.Or(end.Class)),
			})
			i += 2 * n
			continue
		}
		rows = append(rows, rowOf(steps[i]))
		i++
	}
	return rows
}

// alike counts pairs of a claim and its end, from the third attempt on, that have the same class,
// and leaves the last one out.
func alike(steps []ops.TimeStep) (n, first, last int) {
	for 2*n+1 < len(steps) {
		c, e := steps[2*n], steps[2*n+1]
		plain := c.What == ops.StepClaimed && e.What == ops.StepReleased && c.Fence == e.Fence && c.Attempt > 2 && c.Text == ""
		if !plain || e.Class != steps[1].Class {
			break
		}
		if n == 0 {
			first = c.Attempt
		}
		last = c.Attempt
		n++
	}
	return n, first, last
}

func rowOf(s ops.TimeStep) row {
	r := row{TimeStep: s, what: s.What, count: 1}
	text := out.Text(firstLine(s.Text))
	switch s.What {
	case ops.StepClaimed:
		r.text = fmt.Sprintf("#%d fence %d by %s", s.Attempt, s.Fence, out.Or(s.Owner))
		if text != "" {
			r.text += ", " + text
		}
	case ops.StepFailed, ops.StepParked, ops.StepReleased:
		if s.What != ops.StepReleased {
			r.text = fmt.Sprintf("#%d fence %d: ", s.Attempt, s.Fence)
		}
		if s.Class != "" {
			r.text += out.Text(s.Class)
		}
		if text != "" {
			r.text += ": " + text
		}
		r.text = strings.TrimPrefix(r.text, ": ")
	case ops.StepAct:
		word, rest, _ := strings.Cut(text, " ")
		r.what, r.text = word, fmt.Sprintf("%s   [audit %s]", rest, s.Audit)
	case ops.StepLetter:
		r.text = out.Text(s.Class)
		if text != "" {
			r.text += ", " + text
		}
	default:
		r.text = text
	}
	return r
}
