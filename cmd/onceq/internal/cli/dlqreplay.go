package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns the replay: plan, numbers, confirmation, act, report. It runs in the goroutine of
// Main, and dlqedit.go has what --edit does to bodies.

// replaying is what the flags of a replay say.
type replaying struct {
	filters
	plan, rate, edit, to                      string
	canary                                    int
	canaryWait                                time.Duration
	canaryAny                                 bool
	ramp, dry, vouch, expired, unproven, both bool
}

func (a *app) replayCommand() *cobra.Command {
	var o replaying
	c := &cobra.Command{
		Use: "replay QUEUE", Short: "Send dead letters back: a frozen plan first, then as many as you say", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeQueue,
		Long: "Freezes the letters that the filters choose, asks the store what became of their jobs, shows the\n" +
			"numbers and asks. What comes into the dead-letter queue afterwards stays there. Letters of jobs that are\n" +
			"done already are removed without being sent, and those of jobs that failed anew stay.\n\n" +
			"--dry-run --plan FILE writes the plan; --plan FILE alone replays it, within 15 minutes.\n" +
			"--canary N sends N letters and goes on only if all of these jobs are done, by their records. It ends at\n" +
			"the first that fails again (exit code 1), or when not all are done in time (4). --ramp sends 10, 50, 250\n" +
			"and so on so.\n" +
			"--edit CMD runs each body through a shell command; it must answer the same for the same body.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error { return a.replay(ctx, args[0], &o) }),
	}
	o.flags(c)
	f := c.Flags()
	f.BoolVar(&o.dry, "dry-run", false, "only say what would be done")
	f.StringVar(&o.plan, "plan", "", "with --dry-run: the new file for the plan; else the file of the plan to replay")
	f.IntVar(&o.canary, "canary", 0, "send so many first, and go on only if all of them are done")
	f.Var(span{&o.canaryWait}, "canary-wait", "how long each batch may take until it is done (default 1m)")
	f.BoolVar(&o.canaryAny, "canary-any", false, "go on although not all are done by then, if no letter came back: for jobs that take long")
	f.BoolVar(&o.ramp, "ramp", false, "send in batches that grow, and watch each")
	f.StringVar(&o.rate, "rate", "", "at most so many: 50/s, 10/m, 600/h")
	f.StringVar(&o.edit, "edit", "", "a shell command that gets a body and answers the mended one, such as 'jq .cents=800'")
	f.StringVar(&o.to, "to", "", "send them to this queue instead")
	f.BoolVar(&o.expired, "expired", false, "letters of jobs whose time is over, too")
	f.BoolVar(&o.unproven, "unproven", false, "letters that may have been done already, too: look at each first")
	f.BoolVar(&o.vouch, "vouch", false, "sign letters that nobody has signed: look at their bodies first")
	f.BoolVar(&o.both, "beside", false, "go on although somebody else replays the same letters")
	a.reasonFlag(c)
	return c
}

func (a *app) replay(ctx context.Context, queue string, o *replaying) error {
	spec, err := a.replaySpec(o)
	if err != nil {
		return err
	}
	var kept *dlq.Plan
	if o.plan != "" && !o.dry {
		if !o.none() {
			return exit(exitUsage, "--plan has chosen the letters already: leave the filters out")
		}
		if kept, err = readPlan(o.plan); err != nil {
			return err
		}
	}
	if !o.dry {
		if spec.Reason, err = a.reason(ctx); err != nil {
			return err
		}
	}
	w, err := a.open(ctx, needDead|storeUnless(o.dry), queue)
	if err != nil {
		return err
	}
	defer w.close()
	spec.Queue = w.Names()[0]
	if o.to != "" {
		if spec.To, err = a.openTo(ctx, w, o.to); err != nil {
			return err
		}
	}
	var edits edits
	if o.edit != "" {
		spec.Edit, spec.Note = edits.through(ctx, o.edit), o.edit
	}
	plan, incomplete, err := a.planned(ctx, w, kept, spec)
	if err != nil {
		return err
	}
	if o.dry {
		return a.dryRun(ctx, w, o, plan, edits.shown, incomplete)
	}
	n, remove := plan.Count(dlq.Take), plan.Count(dlq.Remove)
	text := a.planText(ctx, w, o, plan, edits.shown)
	if n+remove == 0 && plan.Rest == nil {
		a.say("%s", text)
		return a.show(out.Result{Lines: []string{"no letter to replay"}, Value: viewReport(spec.Queue, plan.Plan, &dlq.Report{}, ""), Next: "onceq dlq group " + spec.Queue})
	}
	q := question{Plan: text, Bounded: o.plan != "" || o.most > 0}
	q.Want, q.Act = reach(plan.Plan, n, "replay")
	if kept == nil {
		q.SoFar = lookedAt
	}
	if n == 0 && plan.Rest == nil {
		q.Want, q.Act = strconv.Itoa(remove), "remove "+out.Plural(remove, "letter", "letters")
	}
	if err := w.CheckReplay(ctx, plan); err != nil {
		a.say("%s", text)
		return canariesFailed(err)
	}
	if err := a.confirm(ctx, w, q); err != nil {
		return err
	}
	sent := func() {}
	if kept != nil && kept.Rest != nil && kept.Rest.Filter.Max > 0 {
		of, err := openSent(o.plan)
		if err != nil {
			return err
		}
		defer of.file.Close()
		left := kept.Rest.Filter.Max - of.n
		if left <= 0 {
			return exit(exitRefused, "plan %s has sent what its --max allows, %s letters: make another one", kept.ID, out.Int(of.n))
		}
		if m := &plan.Spec.Filter.Max; *m == 0 || *m > left {
			*m = left
		}
		sent = of.another
	}
	err = a.send(ctx, w, plan, sent)
	if err == nil && incomplete != nil {
		err = lettersFailed(incomplete)
	}
	return err
}

// canariesFailed is lettersFailed, with what to do where nobody would run the canaries.
func canariesFailed(err error) error {
	if errors.Is(err, ops.ErrRefused) {
		return exit(exitRefused, "%s; --canary-any goes by the letters that come back alone", strings.TrimPrefix(err.Error(), ops.ErrRefused.Error()+": "))
	}
	return lettersFailed(err)
}

// lookedAt is what a plan has done to the letters.
const lookedAt = "nothing was done, but each letter that was looked at has one receive more"

// planned makes the plan, or takes the one that was kept. incomplete says that there are more
// letters.
func (a *app) planned(ctx context.Context, w *world, kept *dlq.Plan, spec ops.ReplaySpec) (plan *ops.ReplayPlan, incomplete, err error) {
	if kept != nil {
		if kept.Note != spec.Note {
			return nil, nil, exit(exitRefused, "plan %s was made with --edit %q; give it again, or make it anew", kept.ID, kept.Note)
		}
		plan, err = w.Load(ctx, kept, spec)
	} else {
		plan, err = w.PlanReplay(ctx, spec)
	}
	if errors.Is(err, dlq.ErrIncomplete) && plan != nil {
		if incomplete, err = err, nil; plan.Rest != nil {
			incomplete = nil // the act goes on with the others
		}
	}
	return plan, incomplete, lettersFailed(err)
}

func storeUnless(dry bool) need {
	if dry {
		return 0
	}
	return needStore
}

func (a *app) replaySpec(o *replaying) (ops.ReplaySpec, error) {
	filter, err := a.chosen(&o.filters)
	if err != nil {
		return ops.ReplaySpec{}, err
	}
	s := ops.ReplaySpec{
		ReplayOptions: dlq.ReplayOptions{
			Filter: filter, Canary: o.canary, Ramp: o.ramp, CanaryWait: o.canaryWait, CanaryAny: o.canaryAny, TrustUnsigned: o.vouch, Expired: o.expired, Unproven: o.unproven,
		},
		Beside: o.both,
	}
	if o.rate != "" {
		if s.PerSecond, err = parseRate(o.rate); err != nil {
			return s, err
		}
	}
	switch {
	case o.canary < 0:
		return s, exit(exitUsage, "--canary: %d is negative", o.canary)
	case o.canary > 0 && o.most > 0 && o.canary >= o.most:
		return s, exit(exitUsage, "--canary: %d leaves nothing to go on with: --max is %d", o.canary, o.most)
	case o.canary > 0 && o.key != "":
		return s, exit(exitUsage, "--canary: %d leaves nothing to go on with: --key names one job", o.canary)
	case o.canaryAny && o.canary == 0 && !o.ramp:
		return s, exit(exitUsage, "--canary-any wants --canary or --ramp beside it")
	case o.canaryWait < 0:
		return s, exit(exitUsage, "--canary-wait: %v is negative", o.canaryWait)
	}
	return s, nil
}

// parseRate reads 50/s, 10/m, 600/h; without a unit it is a second's.
func parseRate(text string) (float64, error) {
	number, unit, found := strings.Cut(text, "/")
	per := map[string]float64{"s": 1, "m": 60, "min": 60, "h": 3600}[unit]
	if !found {
		per = 1
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || per == 0 || math.IsNaN(n) || math.IsInf(n, 0) || n <= 0 {
		return 0, exit(exitUsage, "--rate: %s is not a rate; want 50/s, 10/m, 600/h, or leave it out", text)
	}
	return n / per, nil
}

// maxPlan is more than the plan of all letters that one call holds.
const maxPlan = 64 << 20

// readPlan reads a plan from its file.
func readPlan(file string) (*dlq.Plan, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, exit(exitUsage, "--plan: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPlan+1))
	switch {
	case err != nil:
		return nil, exit(exitUsage, "--plan: %w", err)
	case len(b) > maxPlan:
		return nil, exit(exitUsage, "--plan %s: more than %s, so it is no plan", file, out.Bytes(maxPlan))
	}
	var p dlq.Plan
	if err := json.Unmarshal(b, &p); err != nil {
		if !errors.Is(err, dlq.ErrPlan) {
			err = fmt.Errorf("it is no plan, or was edited: make it again")
		}
		return nil, exit(exitRefused, "--plan %s: %s", file, strings.TrimPrefix(err.Error(), dlq.ErrPlan.Error()+": "))
	}
	if p.Rest != nil && p.Rest.Match != "" {
		if p.Rest.Filter.Match, err = matching(p.Rest.Match); err != nil {
			return nil, err
		}
	}
	return &p, nil
}

// writePlan keeps a plan in a new file.
func writePlan(file string, p *dlq.Plan) error {
	b, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return exit(exitUsage, "--plan: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// openTo opens another queue to send to.
func (a *app) openTo(ctx context.Context, w *world, name string) (broker.Sender, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	q, err := c.profile.Find(name)
	if err != nil {
		return nil, exit(exitUsage, "--to: %w", err)
	}
	u, err := settings.ParseQueue(q.URL)
	if err != nil {
		return nil, exit(exitUsage, "--to: %w", err)
	}
	b, err := w.places.Queue(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("--to: queue %s: %w", q.Name, err)
	}
	return b, nil
}

func (a *app) dryRun(ctx context.Context, w *world, o *replaying, p *ops.ReplayPlan, shown []edited, incomplete error) error {
	name := p.Spec.Queue
	text := a.planText(ctx, w, o, p, shown)
	next := fmt.Sprintf("onceq dlq replay %s%s --reason TEXT", name, o.flagsAgain(p, a.hold))
	if o.plan != "" {
		if p.Rest != nil {
			p.Rest.Match = o.match
		}
		if err := writePlan(o.plan, p.Plan); err != nil {
			return err
		}
		o.filters = filters{} // the plan has chosen
		next = fmt.Sprintf("onceq dlq replay %s --plan %s%s --reason TEXT", name, quote(o.plan), o.flagsAgain(p, a.hold))
	}
	lines := append(strings.Split(text, "\n"), "nothing was sent")
	var ids []string
	for i := range p.Letters {
		ids = append(ids, out.Text(p.Letters[i].Key))
	}
	if err := a.show(out.Result{Lines: lines, Value: viewPlan(name, p.Plan, p, o.plan), IDs: ids, Next: next}); err != nil {
		return err
	}
	return lettersFailed(incomplete)
}

// proposedCanary is how many canaries a dry run proposes, where that leaves something to go on
// with.
const proposedCanary = 5

// flagsAgain are the flags of a dry run for the act.
func (o *replaying) flagsAgain(p *ops.ReplayPlan, hold int) string {
	var b strings.Builder
	b.WriteString(o.again())
	for _, f := range [...][2]string{{"edit", o.edit}, {"to", o.to}, {"rate", o.rate}} {
		if f[1] != "" {
			b.WriteString(" " + flagged(f[0], f[1]))
		}
	}
	for _, f := range [...]struct {
		name string
		set  bool
	}{{"expired", o.expired}, {"unproven", o.unproven}, {"vouch", o.vouch}} {
		if f.set {
			b.WriteString(" --" + f.name)
		}
	}
	if hold > 0 {
		fmt.Fprintf(&b, " --hold %d", hold)
	}
	switch {
	case o.canary > 0 || o.ramp:
		if o.canary > 0 {
			fmt.Fprintf(&b, " --canary %d", o.canary)
		}
		if o.ramp {
			b.WriteString(" --ramp")
		}
		if o.canaryWait > 0 {
			fmt.Fprintf(&b, " --canary-wait %v", o.canaryWait)
		}
		if o.canaryAny {
			b.WriteString(" --canary-any")
		}
	case p.Count(dlq.Take) > proposedCanary || p.Rest != nil && o.most == 0:
		fmt.Fprintf(&b, " --canary %d --ramp", proposedCanary)
	}
	return b.String()
}

// planText is the plan for people, as lines.
func (a *app) planText(ctx context.Context, w *world, o *replaying, p *ops.ReplayPlan, shown []edited) string {
	to := p.Spec.Queue
	if o.to != "" {
		to = o.to
	}
	all := []string{fmt.Sprintf("plan %s (frozen %s): %s → %s", p.ID, a.until(p.Made), out.Plural(len(p.Letters), "letter", "letters"), out.Text(to))}
	var parts []string
	part := func(n int, text string) {
		if n > 0 {
			parts = append(parts, out.Int(n)+" "+text)
		}
	}
	part(p.Reopen, "reopen their failure")
	part(p.Ordinary, "are claimed like new ones")
	part(p.Unknown, "do not name their record: their claims decide")
	part(p.Done, "are done already (removed, nothing sent)")
	part(p.Moved, "failed anew since, or run (left)")
	if len(parts) > 0 {
		all = append(all, "  "+strings.Join(parts, "   "))
	}
	for _, why := range slices.Sorted(keysOf(p.Skipped)) {
		all = append(all, fmt.Sprintf("  %s left: %s", out.Int(p.Skipped[why]), out.Text(why)))
	}
	if p.Unsigned > 0 {
		all = append(all, fmt.Sprintf("  %s not signed: they reopen nothing", out.Int(p.Unsigned)))
	}
	if line := a.restLine(p.Plan, "replayed"); line != "" {
		all = append(all, line)
	}
	if p.Elsewhere > 0 {
		all = append(all, fmt.Sprintf("  about %s more are in other hands", out.Int(p.Elsewhere)))
	}
	if line := a.workersLine(ctx, w, p); line != "" {
		all = append(all, "  "+line)
	}
	for _, e := range shown {
		all = append(all, "  "+out.Text(e.key)+":", "  - "+out.Cut(out.Text(e.before), 100), "  + "+out.Cut(out.Text(e.after), 100))
	}
	return strings.Join(all, "\n")
}

func keysOf(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// workersLine says who would do the jobs, and how long sending takes.
func (a *app) workersLine(ctx context.Context, w *world, p *ops.ReplayPlan) string {
	var parts []string
	if states, err := w.Overview(ctx); err == nil && len(states) > 0 {
		q := &states[0]
		var line strings.Builder
		fmt.Fprintf(&line, "workers: %d live", q.Totals().Live)
		if q.Paused != nil {
			line.WriteString(", PAUSED until " + a.until(q.Paused.Until))
		}
		for r := range pausedParts(q) {
			line.WriteString(", " + ruled(r) + " PAUSED until " + a.until(r.Until))
		}
		parts = append(parts, line.String())
	}
	if r := p.Spec.PerSecond; r > 0 {
		parts = append(parts, fmt.Sprintf("at %s: %s, and the watches", strconv.FormatFloat(r, 'g', 4, 64)+"/s", out.Span(time.Duration(float64(p.Count(dlq.Take))/r*float64(time.Second)))))
	}
	return strings.Join(parts, "   ")
}

// send replays the plan, and prints what came of it.
func (a *app) send(ctx context.Context, w *world, p *ops.ReplayPlan, note func()) error {
	name, total := p.Spec.Queue, p.Count(dlq.Take)
	var batches []dlq.Progress
	p.Spec.EachBatch = func(b dlq.Progress) {
		batches = append(batches, b)
		a.progress("")
		a.say("%s", batchLine(&b))
	}
	began, sent := time.Now(), 0
	p.Spec.Each = func(s dlq.Step) {
		if s.Result == dlq.Replayed {
			note()
			if sent++; sent%10 == 0 {
				a.progress(fmt.Sprintf("%s of %s sent", out.Int(sent), out.Int(total)))
			}
		}
	}
	rep, audit, err := w.Replay(ctx, p)
	a.progress("")
	if audit == "" && err != nil && rep.Seen == 0 {
		return canariesFailed(err) // nothing was begun
	}
	v := viewReport(name, p.Plan, &rep, audit)
	v.Completed = err == nil
	back, came := errors.AsType[*dlq.CanaryError](err)
	if came {
		for _, r := range back.Back {
			v.Back = append(v.Back, r.Key)
		}
	}
	for _, b := range batches {
		v.Batches = append(v.Batches, batchView{
			Sent: b.Sent, Done: b.Done, Running: b.Running, Waiting: b.Waiting, Unknown: b.Unknown, Watched: seconds(b.Watched), Back: len(b.Back),
		})
	}
	lines := append([]string{sentLine(&rep, len(v.Back))}, reasonLines(&rep)...)
	if audit != "" {
		lines = append(lines, "audit "+audit)
	}
	next := fmt.Sprintf("onceq dlq ls %s --since %s", name, began.UTC().Format(time.RFC3339))
	if e := a.show(out.Result{Lines: lines, Value: v, IDs: []string{audit}, Next: next}); e != nil {
		return e
	}
	return sentError(ctx, err, came, &rep)
}

func batchLine(b *dlq.Progress) string {
	line := fmt.Sprintf("batch %d: %s sent, watched %s, %s", b.Number, out.Int(b.Sent), out.Span(b.Watched), strings.Join(becameParts(&b.Became), ", "))
	if len(b.Back) > 0 {
		return line + fmt.Sprintf(", %s came back", out.Int(len(b.Back)))
	}
	return line + ", none came back"
}

// becameParts says what became of the jobs of a batch.
func becameParts(b *dlq.Became) []string {
	parts := []string{out.Int(b.Done) + " done"}
	for _, p := range [...]struct {
		n    int
		text string
	}{{b.Running, "running"}, {b.Waiting, "not begun"}, {b.Unknown, "not known"}} {
		if p.n > 0 {
			parts = append(parts, out.Int(p.n)+" "+p.text)
		}
	}
	return parts
}

func sentLine(r *dlq.Report, back int) string {
	parts := []string{out.Int(r.Replayed) + " sent"}
	for _, p := range []struct {
		n    int
		text string
	}{
		{r.Purged, "purged"},
		{r.Removed, "removed"},
		{r.Copies, one(r.Copies, "copy", "copies") + " dropped"},
		{len(r.Skipped), "left"},
		{len(r.Failed), "failed"},
		{r.Missing, "of the plan gone"},
		{r.Unacked, "perhaps still there"},
		{r.Unsigned, "not signed"},
	} {
		if p.n > 0 {
			parts = append(parts, out.Int(p.n)+" "+p.text)
		}
	}
	return strings.Join(parts, ", ") + fmt.Sprintf(" · %s came back so far", out.Int(back))
}

// one is the word for n.
func one(n int, single, several string) string {
	if n == 1 {
		return single
	}
	return several
}

func reasonLines(r *dlq.Report) (lines []string) {
	for _, of := range []struct {
		what string
		n    map[string]int
	}{{"left", reasons(r.Skipped)}, {"failed", reasons(r.Failed)}} {
		for _, why := range slices.Sorted(keysOf(of.n)) {
			lines = append(lines, fmt.Sprintf("  %s %s: %s", out.Int(of.n[why]), of.what, out.Text(why)))
		}
	}
	return lines
}

// sentError is the code that a replay or a purge ends with.
func sentError(ctx context.Context, err error, came bool, r *dlq.Report) error {
	switch {
	case came:
		e, _ := errors.AsType[*dlq.CanaryError](err)
		if len(e.Back) == 0 {
			return exit(exitPartly, "%s sent, %s (timeout after %s): the others stay; look, and run it again, or wait longer (--canary-wait)",
				out.Int(e.Batch), strings.Join(becameParts(&e.Became), ", "), out.Span(e.Watched))
		}
		return exit(exitFound, "%s", strings.TrimPrefix(err.Error(), "dlq: "))
	case err != nil && ctx.Err() == nil && r.Replayed+r.Purged > 0:
		return exit(exitPartly, "%w; run it again", err)
	case err != nil:
		return lettersFailed(err)
	case len(r.Failed)+r.Unacked > 0:
		return exit(exitPartly, "some letters failed, or may still be there; run it again")
	}
	return nil
}
