package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns key resolve: an operator's word on parked jobs, and what becomes of their letters.
// It runs in the goroutine of Main.
//
// A parked job's message was acked, so a record that may run again runs by its letter alone. The
// word on the record comes first: where the letter then fails, the same command goes on there.

// resolving is what the flags of a resolve say.
type resolving struct {
	to, result, from, queue string
	fence                   uint64
	noLetter                bool
}

func (a *app) resolveCommand() *cobra.Command {
	var o resolving
	c := &cobra.Command{
		Use: "resolve [SCOPE] KEY", Short: "Decide on parked jobs: they were done, they failed, or they shall run", Args: cobra.MaximumNArgs(2), ValidArgsFunction: a.completeScope,
		Long: "A parked job was interrupted amid its effect. Look whether that happened; then say so:\n" +
			"  done      it did. Its dead letter is removed.\n" +
			"  failed    it did not, and shall not. Its letter stays; dlq purge takes it away.\n" +
			"  released  it did not, and the job shall run. Its message was acked, so its letter is sent; a job\n" +
			"            whose letter is not found is refused, because nothing would run it.\n" +
			"--no-letter leaves the letters alone. Use it for jobs of a caller of Do, who comes again, and where\n" +
			"the message stayed in its queue.\n" +
			"--fence is the record's, as key show has it: a record that was parked anew since is not touched.\n" +
			"--from FILE takes many: lines of SCOPE KEY FENCE, or what key ls --status parked -o ndjson prints.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error { return a.resolve(ctx, args, &o) }),
	}
	f := c.Flags()
	f.StringVar(&o.to, "to", "", "done, failed or released (required)")
	f.StringVar(&o.result, "result", "", "with --to done: a file with the job's result")
	f.StringVar(&o.from, "from", "", "a file with many: lines of SCOPE KEY FENCE, or NDJSON; - = the input")
	f.BoolVar(&o.noLetter, "no-letter", false, "do not look for the letter: something else brings the job")
	a.wordFlags(c, &o.fence, &o.queue)
	_ = c.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"done", "failed", "released"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// A resolution is one job with what becomes of it.
type resolution struct {
	ops.Failure
	was    *dedupe.Record
	left   string // why it is not touched; empty = it is
	audit  string
	letter string // sent, removed, none; or kept, where it is left alone
}

func (r *resolution) name() string { return out.Text(r.Key.Scope) + " " + out.Text(r.Key.Key) }

func (a *app) resolve(ctx context.Context, args []string, o *resolving) error {
	to, err := dedupe.ParseStatus(o.to)
	if err != nil || to == dedupe.Claimed || to == dedupe.Parked {
		return exit(exitUsage, "--to: %q, want done, failed or released", o.to)
	}
	var result []byte
	if o.result != "" {
		if to != dedupe.Done || o.from != "" {
			return exit(exitUsage, "--result is for --to done, and for one job")
		}
		if result, err = a.read(ctx, o.result); err != nil {
			return err
		}
	}
	all, err := a.resolutions(ctx, args, o)
	if err != nil {
		return err
	}
	reason, err := a.reason(ctx)
	if err != nil {
		return err
	}
	in := o.queue
	w, err := a.openKeys(ctx, &in)
	if err != nil {
		return err
	}
	defer w.close()
	if o.from == "" {
		k, err := a.where(ctx, w, in, args)
		if err != nil {
			return err
		}
		all = []*resolution{{Failure: ops.Failure{Key: k, Fence: o.fence}}}
	}
	if err := lookUp(ctx, w, all, to, o.from == ""); err != nil {
		return err
	}
	plan, wl, err := a.lettersOf(ctx, w, all, to, o)
	if err != nil {
		return err
	}
	if wl != nil {
		defer wl.close()
	}
	n := touched(all)
	if n > 0 {
		q := question{Plan: resolveText(all, to, plan), Want: strconv.Itoa(n), Act: fmt.Sprintf("resolve %s to %s", out.Plural(n, "job", "jobs"), o.to), Bounded: true}
		if o.from == "" {
			q.Want, q.Act = all[0].Key.Key, "resolve it to "+o.to
		}
		if err := a.confirm(ctx, w, q); err != nil {
			return err
		}
	}
	failed := a.resolveAll(ctx, w, all, to, result, reason)
	sent := a.resolveLetters(ctx, wl, all, to, plan, reason)
	return a.showResolved(all, o, errors.Join(failed, sent))
}

// resolutions are those that a file names; none where the words name one.
func (a *app) resolutions(ctx context.Context, args []string, o *resolving) ([]*resolution, error) {
	switch {
	case o.from == "" && len(args) == 0:
		return nil, exit(exitUsage, "key resolve: which job? name its KEY, or --from FILE")
	case o.from == "" && o.fence == 0:
		return nil, exit(exitUsage, "--fence is missing: the record's, as onceq key show has it")
	case o.from == "":
		return nil, nil
	case len(args) > 0 || o.fence != 0:
		return nil, exit(exitUsage, "--from names the jobs and their fences: leave KEY and --fence out")
	}
	var text []byte
	var err error
	if o.from == "-" {
		text, err = a.read(ctx, o.from)
	} else if text, err = os.ReadFile(o.from); err != nil {
		err = exit(exitUsage, "--from: %w", err)
	}
	if err != nil {
		return nil, err
	}
	fs, err := failuresIn(text)
	if err != nil {
		return nil, exit(exitUsage, "--from %s:%w", o.from, err)
	}
	var all []*resolution
	for _, f := range fs {
		all = append(all, &resolution{Failure: f})
	}
	return all, nil
}

// mostResolved bounds what one command decides on.
const mostResolved = 10_000

// failuresIn reads lines of SCOPE KEY FENCE, or of JSON with these fields. A line without a fence
// is refused: the job may have been parked anew since somebody looked at the other side.
func failuresIn(text []byte) (fs []ops.Failure, err error) {
	at := 0
	for line := range bytes.Lines(text) {
		at++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var f ops.Failure
		if line[0] == '{' {
			var v struct {
				Scope, Key string
				Fence      uint64
			}
			if err := json.Unmarshal(line, &v); err != nil {
				return nil, fmt.Errorf("%d: %w", at, err)
			}
			f = ops.Failure{Key: dedupe.Key{Scope: v.Scope, Key: v.Key}, Fence: v.Fence}
		} else if words := strings.Fields(string(line)); len(words) == 3 {
			f.Key = dedupe.Key{Scope: words[0], Key: words[1]}
			f.Fence, _ = strconv.ParseUint(words[2], 10, 64)
		}
		if f.Fence == 0 {
			return nil, fmt.Errorf("%d: want SCOPE KEY FENCE, or a line of key ls -o ndjson", at)
		}
		if err := f.Key.Validate(); err != nil {
			return nil, fmt.Errorf("%d: %w", at, err)
		}
		if !slices.Contains(fs, f) {
			fs = append(fs, f)
		}
		if len(fs) > mostResolved {
			return nil, fmt.Errorf("%d: more than %d jobs", at, mostResolved)
		}
	}
	if len(fs) == 0 {
		return nil, errors.New(" it names no job")
	}
	return fs, nil
}

// lookUp reads the records. What is not parked under its fence is left alone; where it is the only
// one, that is an error.
func lookUp(ctx context.Context, w *world, all []*resolution, to dedupe.Status, alone bool) error {
	for _, r := range all {
		if strings.HasPrefix(r.Key.Scope, ":") {
			return exit(exitUsage, "%s: a scope that begins with a ':': such scopes are onceq's own", r.name())
		}
		l, err := w.Key(ctx, "", r.Key, ops.KeyOptions{NoAudit: true})
		if errors.Is(err, ops.ErrNoKey) && !alone {
			r.left = "no such key"
			continue
		}
		if err != nil {
			return usable(err)
		}
		r.was = l.Record
		switch {
		case r.was.Fence != r.Fence:
			r.left = fmt.Sprintf("it is %v with fence %d, not %d: look again", r.was.Status, r.was.Fence, r.Fence)
		case r.was.Status != dedupe.Parked && r.was.Status != to:
			r.left = fmt.Sprintf("it is %v, not parked", r.was.Status)
		}
		if r.left != "" && alone {
			return exit(exitRefused, "%s: %s", r.name(), r.left)
		}
	}
	return nil
}

func touched(all []*resolution) (n int) {
	for _, r := range all {
		if r.left == "" {
			n++
		}
	}
	return n
}

// lettersOf looks for the letters, in a world of its own that has the queue. Without a queue to
// look in there is none.
func (a *app) lettersOf(ctx context.Context, w *world, all []*resolution, to dedupe.Status, o *resolving) (*ops.ReplayPlan, *world, error) {
	var of []ops.Failure
	for _, r := range all {
		if r.letter = "kept"; r.left == "" {
			of = append(of, r.Failure)
		}
	}
	if len(of) == 0 || o.noLetter || to == dedupe.Failed {
		return nil, nil, nil
	}
	queue := o.queue
	if queue == "" {
		queue = w.ownerQueue(ctx, of[0].Key)
	}
	if queue == "" {
		if to == dedupe.Released {
			return nil, nil, exit(exitUsage, "which queue has the letter? Its message was acked, so the job runs by its letter alone: name --queue, or --no-letter where something else brings it")
		}
		return nil, nil, nil
	}
	wl, err := a.open(ctx, needStore|needDead, queue)
	if err != nil {
		return nil, nil, err
	}
	a.progress("looking for letters")
	plan, err := wl.PlanLetters(ctx, ops.ReplaySpec{Queue: wl.Names()[0]}, of)
	a.progress("")
	incomplete := errors.Is(err, dlq.ErrIncomplete)
	if err != nil && (!incomplete || plan == nil) {
		wl.close()
		return nil, nil, lettersFailed(err)
	}
	for _, r := range all {
		if r.left != "" {
			continue
		}
		if plan.Of(r.Failure) >= 0 {
			r.letter = ""
			continue
		}
		if r.letter = "none"; to == dedupe.Released {
			r.left = "no letter of it in the dead-letter queue of " + queue + ", and its message was acked: nothing would run it (--no-letter, where something else brings it)"
			if incomplete {
				r.left = "no letter of it among those that were looked at; there are more"
			}
			for _, l := range plan.Letters {
				if l.Key == r.Key.Key && l.Fence == r.Fence && l.Decision == dlq.Leave {
					r.left = "its letter stays: " + l.Why
				}
			}
			if o.from == "" {
				wl.close()
				return nil, nil, exit(exitRefused, "%s: %s", r.name(), r.left)
			}
		}
	}
	return plan, wl, nil
}

func resolveText(all []*resolution, to dedupe.Status, plan *ops.ReplayPlan) string {
	var lines []string
	if len(all) == 1 {
		r := all[0].was
		lines = append(lines, fmt.Sprintf("%s is %v, attempt %d, fence %d", all[0].name(), r.Status, r.Attempt, r.Fence))
	} else {
		lines = append(lines, fmt.Sprintf("%s to be %v", out.Plural(touched(all), "parked job", "parked jobs"), to))
		for _, r := range all {
			if r.left != "" {
				lines = append(lines, "  not touched: "+r.name()+": "+out.Text(r.left))
			}
		}
	}
	if plan != nil {
		n := out.Plural(len(plan.Letters), "letter", "letters")
		if to == dedupe.Done {
			lines = append(lines, "  "+n+" to be removed")
		} else {
			lines = append(lines, "  "+n+" → "+out.Text(plan.Spec.Queue)+": the message was acked, so the letter runs the job")
		}
	}
	return strings.Join(lines, "\n")
}

// resolveAll says the word on each record.
func (a *app) resolveAll(ctx context.Context, w *world, all []*resolution, to dedupe.Status, result []byte, reason string) error {
	var first error
	for i, r := range all {
		if r.left != "" {
			continue
		}
		var err error
		if r.audit, err = w.Resolve(ctx, ops.ResolveSpec{Key: r.Key, Fence: r.Fence, To: to, Result: result, Reason: reason}); err != nil {
			r.left = err.Error()
			if first == nil {
				first = usable(err)
			}
		}
		if err == nil || ctx.Err() == nil {
			continue
		}
		for _, later := range all[i+1:] {
			later.left = cmp.Or(later.left, "not reached")
		}
		break
	}
	return first
}

// resolveLetters sends the letters of what is released, and removes those of what is done.
func (a *app) resolveLetters(ctx context.Context, w *world, all []*resolution, to dedupe.Status, plan *ops.ReplayPlan, reason string) error {
	if w == nil || plan == nil || len(plan.Letters) == 0 {
		return nil
	}
	at := map[int]*resolution{}
	for _, r := range all {
		if i := plan.Of(r.Failure); i >= 0 {
			at[i] = r
		}
	}
	n := 0
	for i := range plan.Letters {
		l := &plan.Letters[i]
		switch r := at[i]; {
		case r == nil || r.left != "":
			l.Decision, l.Why = dlq.Leave, "its job was not resolved"
		case to == dedupe.Done:
			l.Decision, l.Why = dlq.Remove, "its job is done"
			n++
		default:
			n++
		}
	}
	if n == 0 {
		return nil
	}
	plan.Spec.Reason = reason
	plan.Spec.Each = func(s dlq.Step) {
		for i := range plan.Letters {
			if r := at[i]; r != nil && s.Entry.Message != nil && plan.Letters[i].MessageID == s.Entry.Message.ID {
				switch s.Result {
				case dlq.Replayed:
					r.letter = "sent"
				case dlq.Removed:
					r.letter = "removed"
				}
			}
		}
	}
	rep, _, err := w.Replay(ctx, plan)
	if err == nil && len(rep.Failed)+rep.Unacked+rep.Missing > 0 {
		err = errors.New("some letters failed, or were not met any more")
	}
	if err == nil {
		return nil
	}
	what := "sent"
	if to == dedupe.Done {
		what = "removed"
	}
	return exit(exitPartly, "the word is recorded, and not every letter was %s: %w; give the command again", what, lettersFailed(err))
}

func (a *app) showResolved(all []*resolution, o *resolving, err error) error {
	next := "onceq key ls --status parked"
	if o.from == "" {
		r := all[0]
		if r.left != "" {
			return err
		}
		line := fmt.Sprintf("%s is %s now   audit %s", r.name(), o.to, r.audit)
		lines := []string{line}
		if text := letterLine(r.letter, o); text != "" {
			lines = append(lines, text)
		}
		v := doneView{Scope: r.Key.Scope, Key: r.Key.Key, Status: o.to, Letter: r.letter, Audit: r.audit}
		if e := a.show(out.Result{Lines: lines, Value: v, IDs: []string{r.audit}, Next: suggest("key show", "", r.Key.Scope, r.Key.Key)}); e != nil {
			return e
		}
		return err
	}
	res := out.Result{Columns: out.Columns("SCOPE", "KEY", "STATUS", "LETTER", "AUDIT", "NOT TOUCHED"), Items: []any{}, Next: next}
	left := 0
	for _, r := range all {
		v := doneView{Scope: r.Key.Scope, Key: r.Key.Key, Status: o.to, Letter: r.letter, Audit: r.audit, Left: r.left}
		if r.left != "" {
			left++
			v.Status = ""
		}
		res.Add(r.audit, v, out.Text(r.Key.Scope), cutKey(r.Key.Key), out.Or(v.Status), out.Or(r.letter), out.Or(r.audit), out.Text(r.left))
	}
	if e := a.show(res); e != nil {
		return e
	}
	if err == nil && left > 0 {
		return exit(exitPartly, "%s of %d not touched", out.Plural(left, "job", "jobs"), len(all))
	}
	return err
}

// letterLine is what became of one job's letter.
func letterLine(fate string, o *resolving) string {
	switch {
	case fate == "sent":
		return "its message was acked; its letter was sent, and runs it"
	case fate == "removed":
		return "its letter was removed"
	case fate == "none":
		return "no letter of it was found"
	case fate == "kept" && o.to == "released":
		return "its next message runs it; its letter, if it has one, was not looked for"
	case fate == "kept":
		return "its letter, if it has one, stays in the dead-letter queue"
	}
	return ""
}
