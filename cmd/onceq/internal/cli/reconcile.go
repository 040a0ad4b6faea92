package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/ops"
)

// This file owns reconcile: what should have run, beside what did, and what becomes of what is
// missing. It runs in the goroutine of Main; reconcileinput.go reads the two inputs.

// reconciling is what the flags of a reconciliation say.
type reconciling struct {
	expect, effects, scope, since, rate, baseline string
	grace                                         time.Duration
	noGrace, letters, resend, sendLost            bool
	most                                          int

	expected, ledger *table // ledger is nil where there is none
}

func (o *reconciling) close() {
	for _, t := range [...]*table{o.expected, o.ledger} {
		if t != nil {
			_ = t.in.Close()
		}
	}
}

func (a *app) reconcileCommand() *cobra.Command {
	var o reconciling
	c := &cobra.Command{
		Use: "reconcile QUEUE", Short: "Compare what should have run with what did; send what is missing", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "Reads the jobs that should have run (--expect: NDJSON, or CSV with a header; columns key, due, ref,\n" +
			"body, type, scope, group), asks the store for each, and compares both with a ledger of effects\n" +
			"(--effects: key, id, at, fence, type, scope). A database is read by its own client:\n" +
			"  psql -c \"copy (select …) to stdout csv header\" | onceq reconcile orders --expect -\n" +
			"due is when the job was made or could begin, not a deadline. Without due or body nothing is sent.\n\n" +
			"--resend sends missing jobs and lost failures (--letters), after it has asked. It never sends a key\n" +
			"that has an effect in the ledger, or a record under another scope. A key absorbs whatever comes second.\n" +
			"A lost failure needs --effects, or --send-lost: somebody may have removed its letter on purpose.\n" +
			"--baseline FILE takes what an earlier run printed with -o json, and shows what has changed since; with\n" +
			"-o md it is a block for a ticket.\n" +
			"Exit code 1 says that there are findings; 0, that all that was due is done, once and in time.",
	}
	c.RunE = a.unbounded(func(ctx context.Context, args []string) error {
		o.noGrace = c.Flags().Changed("grace") && o.grace == 0
		return a.reconcile(ctx, args[0], &o)
	})
	f := c.Flags()
	f.StringVar(&o.expect, "expect", "", "a file with the jobs that should have run; - is the input (required)")
	f.StringVar(&o.effects, "effects", "", "a file with the effects that happened, of one kind; - is the input")
	f.StringVar(&o.scope, "scope", "", "the scope of lines that name none (default: that of the queue)")
	f.BoolVar(&o.letters, "letters", false, "look for failures without a letter; each letter gets a receive more")
	f.StringVar(&o.since, "since", "", "leave out what was due before: a time, or how long ago (24h)")
	f.Var(span{&o.grace}, "grace", "how long after due a job is late (default 15m)")
	f.BoolVar(&o.resend, "resend", false, "send missing jobs, and lost failures")
	f.BoolVar(&o.sendLost, "send-lost", false, "with --resend and without --effects: send lost failures, too; nobody removed their letters on purpose")
	f.IntVar(&o.most, "max", 0, "where more is missing, nothing is sent (default 1000)")
	f.StringVar(&o.rate, "rate", "", "with --resend: at most so many: 50/s, 10/m, 600/h")
	f.StringVar(&o.baseline, "baseline", "", "what an earlier run printed with -o json")
	a.reasonFlag(c)
	return c
}

func (a *app) reconcile(ctx context.Context, queue string, o *reconciling) error {
	spec, before, err := a.reconcileFlags(ctx, o)
	if err != nil {
		return err
	}
	defer o.close()
	needs := needStore
	if o.letters {
		needs |= needDead
	}
	w, err := a.open(ctx, needs, queue)
	if err != nil {
		return err
	}
	defer w.close()
	ro, err := a.reconcileOptions(ctx, w, o)
	if err != nil {
		return err
	}
	e, err := w.Reconcile(ctx, ro)
	a.progress("")
	if err != nil {
		return lettersFailed(err)
	}
	v := a.viewEvidence(ctx, w, o, e)
	if o.resend && e.ToSend() > 0 {
		spec.Evidence = e
		if err := a.resend(ctx, w, o, spec, v); err != nil {
			return err
		}
	}
	if err := a.showEvidence(ctx, w, o, e, v, before); err != nil {
		return err
	}
	switch {
	case v.Failed > 0:
		return exit(exitPartly, "%s may not have been sent; run it again, which does no harm", out.Plural(v.Failed, "job", "jobs"))
	case e.LettersErr != nil:
		return lettersFailed(e.LettersErr)
	case e.Found() > 0:
		return exitWith(exitFound, nil)
	}
	return nil
}

// reconcileFlags reads what needs no queue.
func (a *app) reconcileFlags(ctx context.Context, o *reconciling) (spec ops.ResendSpec, before *evidenceView, err error) {
	switch {
	case o.expect == "":
		return spec, nil, exit(exitUsage, "--expect is missing: the file with the jobs that should have run, or - for the input")
	case o.expect == "-" && o.effects == "-":
		return spec, nil, exit(exitUsage, "--expect and --effects cannot both be the input")
	case o.most < 0:
		return spec, nil, exit(exitUsage, "--max: %d is negative", o.most)
	case o.grace < 0:
		return spec, nil, exit(exitUsage, "--grace: %v is negative", o.grace)
	case !o.resend && o.rate != "":
		return spec, nil, exit(exitUsage, "--rate wants --resend beside it")
	case o.sendLost && !o.letters:
		return spec, nil, exit(exitUsage, "--send-lost wants --letters beside it, which tells a lost failure from one that has its letter")
	}
	if o.rate != "" {
		if spec.PerSecond, err = parseRate(o.rate); err != nil {
			return spec, nil, err
		}
	}
	if o.baseline != "" {
		b, err := a.read(ctx, o.baseline)
		if err == nil {
			err = json.Unmarshal(b, &before)
		}
		if err != nil || before == nil || before.At == nil || before.Counts == nil {
			return spec, nil, exit(exitUsage, "--baseline %s: it is not what reconcile prints with -o json", o.baseline)
		}
	}
	if o.expected, err = a.table(ctx, "--expect", o.expect, expectColumns); err == nil && o.effects != "" {
		o.ledger, err = a.table(ctx, "--effects", o.effects, effectColumns)
	}
	if err == nil && o.resend {
		spec.Reason, err = a.reason(ctx)
	}
	return spec, before, err
}

func (a *app) reconcileOptions(ctx context.Context, w *world, o *reconciling) (ops.ReconcileOptions, error) {
	ro := ops.ReconcileOptions{Letters: o.letters, SendLost: o.sendLost, Max: o.most, Grace: o.grace}
	if o.noGrace {
		ro.Grace = -1
	}
	var err error
	if ro.Since, err = a.moment("--since", o.since); err != nil {
		return ro, err
	}
	scopes, err := w.Scopes(ctx, "")
	if err != nil {
		return ro, usable(err)
	}
	typed := map[string]string{}
	if seats, err := w.Workers(ctx, ""); err == nil {
		for i := range seats {
			if c := seats[i].Status; c != nil {
				maps.Copy(typed, c.Scopes)
			}
		}
	}
	o.expected.scope = scoping(o.scope, scopes, typed)
	ro.Expected = o.expected.readExpected()
	if o.ledger != nil {
		o.ledger.scope = o.expected.scope
		ro.Effects = o.ledger.readEffects()
	}
	ro.Before = func(c ops.ReconcileCost) error {
		if c.Units > 0 {
			a.say("%s", costLine(c))
		}
		return nil
	}
	if a.out.Format == out.NDJSON && !a.quiet {
		ro.Each = func(f ops.Finding) { _ = a.out.Item(viewFinding(&f)) }
	}
	return ro, nil
}

// costLine tells what a look costs where the store bills it.
func costLine(c ops.ReconcileCost) string {
	line := fmt.Sprintf("reads %s and the audit: %s, %.4f $", out.Plural(c.Keys, "key", "keys"), out.Plural(int(c.Units), "read unit", "read units"), c.Dollars)
	if c.Dollars < 0 {
		line = fmt.Sprintf("reads %s and the audit: %s", out.Plural(c.Keys, "key", "keys"), out.Plural(int(c.Units), "billed read", "billed reads"))
	}
	if c.Scopes > 0 {
		line += fmt.Sprintf("; a key without a record costs %s more", out.Plural(c.Scopes, "unit", "units"))
	}
	return line
}

// resend asks and sends, and notes in v what came of it.
func (a *app) resend(ctx context.Context, w *world, o *reconciling, spec ops.ResendSpec, v *evidenceView) error {
	e := spec.Evidence
	if err := w.CheckResend(ctx, e); err != nil {
		return usable(err)
	}
	plan := fmt.Sprintf("%s: %s of %s missing and %s to send to %s; each is asked for once more before it is sent", e.Queue, out.Int(e.ToSend()),
		out.Int(e.Counts[ops.FoundMissing]), out.Plural(e.Counts[ops.FoundLost], "lost failure", "lost failures"), out.Text(e.Queue))
	if d := e.State.Depth; d != nil && d.Visible+d.InFlight+d.Delayed > 0 {
		plan += fmt.Sprintf("\nabout %s wait in the queue: jobs that are among them run once all the same", out.Plural(int(d.Visible+d.InFlight+d.Delayed), "message", "messages"))
	}
	q := question{Plan: plan, Want: strconv.Itoa(e.ToSend()), Act: "send " + out.Plural(e.ToSend(), "job", "jobs"), Bounded: o.most > 0}
	if err := a.confirm(ctx, w, q); err != nil {
		return err
	}
	r, audit, err := w.Resend(ctx, spec)
	v.Sent, v.Left, v.Failed, v.Audit = r.Sent, r.Moved, len(r.Failed), audit
	for _, err := range r.Failed {
		a.say("not sent: %s", out.Error(err))
	}
	if audit == "" && err != nil {
		return usable(err)
	}
	if err != nil && len(r.Failed) == 0 {
		return exit(exitPartly, "%d sent: %w; run it again, which does no harm", r.Sent, err)
	}
	return nil
}

// viewEvidence is what JSON has of the evidence.
func (a *app) viewEvidence(ctx context.Context, w *world, o *reconciling, e *ops.Evidence) *evidenceView {
	v := &evidenceView{
		Queue: e.Queue, At: out.Stamp(e.At), By: a.by(), Workers: settingsOf(e.State.Totals().Versions), Expect: o.expected.digest(),
		Expected: e.Expected, Repeated: e.Repeated, Older: e.Older, Young: e.Young, OK: e.OK, Effects: e.Effects, Others: e.Others, Reads: e.Reads,
		Counts: map[string]int{}, Findings: []findingView{}, ToSend: e.ToSend(),
	}
	v.Version, _ = version()
	if c, err := a.config(); err == nil {
		v.Store = settings.Mask(c.store)
	}
	if o.ledger != nil {
		v.Ledger = o.ledger.digest()
	}
	for kind, n := range e.Counts {
		v.Counts[string(kind)] = n
	}
	for i := range e.Findings {
		v.Findings = append(v.Findings, viewFinding(&e.Findings[i]))
	}
	v.More = e.Found() - len(v.Findings)
	return v
}

func viewFinding(f *ops.Finding) findingView {
	v := findingView{Kind: string(f.Kind), Scope: f.Key.Scope, Key: f.Key.Key, Ref: f.Ref, Due: out.Stamp(f.Due), Status: f.Status.String(), Fence: f.Fence, Why: f.Why, Sends: f.Sends, Effects: []effectView{}}
	for _, x := range f.Effects {
		v.Effects = append(v.Effects, effectView{ID: x.ID, At: out.Stamp(x.At), Fence: x.Fence})
	}
	return v
}

// showEvidence prints what was found; beside a baseline, and as Markdown, in four parts.
func (a *app) showEvidence(ctx context.Context, w *world, o *reconciling, e *ops.Evidence, v *evidenceView, before *evidenceView) error {
	r := out.Result{Title: a.evidenceLine(v), Columns: out.Columns("FINDING", "KEY", "REF", "DUE@", "SENDS", "WHY"), Value: v}
	for i := range v.Findings {
		f := &v.Findings[i]
		sends := ""
		if f.Sends {
			sends = "yes"
		}
		r.IDs = append(r.IDs, out.Text(f.Key))
		r.Rows = append(r.Rows, []string{f.Kind, out.Cut(out.Text(f.Key), shownKey), out.Or(f.Ref), a.out.Time(e.Findings[i].Due), sends, out.Text(f.Why)})
	}
	if v.More > 0 {
		r.Lines = append(r.Lines, fmt.Sprintf("and %s more; -o ndjson prints all", out.Int(v.More)))
	}
	if v.Audit != "" {
		r.Lines = append(r.Lines, fmt.Sprintf("%s sent, %s left because they have begun since, %s failed   audit %s", out.Plural(v.Sent, "job", "jobs"), out.Int(v.Left), out.Int(v.Failed), v.Audit))
	}
	switch {
	case v.Audit != "":
		r.Next = suggest("reconcile", flagged("expect", o.expect)+" "+"--baseline FILE -o md", e.Queue)
	case e.ToSend() > 0:
		r.Next = suggest("reconcile", fmt.Sprintf("%s --resend --max %d --reason TEXT", flagged("expect", o.expect), e.ToSend()), e.Queue)
	case len(v.Findings) > 0:
		r.Next = suggest("key show", "", v.Findings[0].Scope, v.Findings[0].Key)
	}
	switch {
	case a.out.Format == out.NDJSON:
		return nil // each was printed when it was found
	case a.out.Format == out.JSON || a.quiet || before == nil && a.out.Format != out.Markdown:
		return a.show(r)
	}
	parts := []out.Result{a.signature(v)}
	if before != nil {
		applied, err := a.applied(ctx, w, e, before)
		if err != nil {
			return err
		}
		parts = append(parts, a.baseline(before, v), applied)
	}
	r.Title = "Validation: " + r.Title
	for _, part := range append(parts, r) {
		if err := a.show(part); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) evidenceLine(v *evidenceView) string {
	found := 0
	var line strings.Builder
	line.WriteString(fmt.Sprintf("%s: %s expected, %s done once and in time", v.Queue, out.Int(v.Expected), out.Int(v.OK)))
	for _, kind := range ops.FindingKinds() {
		if n := v.Counts[string(kind)]; n > 0 {
			line.WriteString(fmt.Sprintf(", %s %s", out.Int(n), kind))
			found += n
		}
	}
	for _, x := range []struct {
		n    int
		text string
	}{{v.Young, "not due for long enough"}, {v.Older, "due before --since"}, {v.Repeated, "lines more of the same keys"}} {
		if x.n > 0 {
			line.WriteString(fmt.Sprintf("; %s %s", out.Int(x.n), x.text))
		}
	}
	return line.String()
}

// signature says what the evidence is of, and whose.
func (a *app) signature(v *evidenceView) out.Result {
	r := out.Result{Title: "Signature", Columns: out.Columns("WHAT", "IS")}
	add := func(what, is string) { r.Rows = append(r.Rows, []string{what, out.Or(is)}) }
	add("queue", v.Queue)
	add("store", v.Store)
	add("taken", *v.At)
	add("by", v.By)
	add("onceq", v.Version)
	for _, s := range v.Workers {
		add("workers", fmt.Sprintf("%s × %d", s.Value, len(s.Workers)))
	}
	add("expected", v.Expect)
	add("effects", v.Ledger)
	return r
}

// baseline compares the counts of two runs.
func (a *app) baseline(before, after *evidenceView) out.Result {
	r := out.Result{Title: "Baseline: " + *before.At + " by " + out.Text(before.By), Columns: out.Columns("FINDING", "BEFORE>", "AFTER>")}
	if before.Expect != after.Expect {
		r.Lines = append(r.Lines, "the input of the baseline was another: "+out.Text(before.Expect))
	}
	add := func(what string, n, m int) { r.Rows = append(r.Rows, []string{what, out.Int(n), out.Int(m)}) }
	add("expected", before.Expected, after.Expected)
	add("done once and in time", before.OK, after.OK)
	for _, kind := range ops.FindingKinds() {
		if n, m := before.Counts[string(kind)], after.Counts[string(kind)]; n+m > 0 {
			add(string(kind), n, m)
		}
	}
	return r
}

// applied are the acts since the baseline.
func (a *app) applied(ctx context.Context, w *world, e *ops.Evidence, before *evidenceView) (out.Result, error) {
	r := out.Result{Title: "Change applied", Columns: out.Columns("AT", "BY", "ACT", "OBJECT", "RESULT", "REASON")}
	from, err := time.Parse(time.RFC3339, *before.At)
	if err != nil || before.Queue != e.Queue {
		return r, exit(exitUsage, "--baseline: it is of the queue %s at %s", out.Text(before.Queue), out.Text(*before.At))
	}
	t, err := w.Target("")
	if err != nil {
		return r, err
	}
	for x, err := range w.Audit(ctx, from, a.io.Now().Add(time.Minute)) {
		if err != nil {
			return r, usable(err)
		}
		if x.Queue != "" && x.Queue != t.Known {
			continue
		}
		result := pairs(x.Result)
		if x.Err != "" {
			result = "FAILED: " + firstLine(x.Err)
		}
		r.Rows = append(r.Rows, []string{*out.Stamp(x.Began), out.Text(x.By), out.Text(x.Act), out.Or(x.Object), out.Text(result), out.Text(x.Reason)})
	}
	if len(r.Rows) == 0 {
		r.Lines = []string{"no act is in the audit"}
	}
	return r, nil
}
