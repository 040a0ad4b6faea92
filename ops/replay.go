package ops

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns replays: the plan with what the store says of its letters, and the act. Tools call
// PlanReplay, show the numbers, and call Replay. A Plan is its caller's, and nothing is locked:
// fences decide where two replays meet.

// ReplaySpec says which letters are replayed, and how.
type ReplaySpec struct {
	// ReplayOptions are dlq's. Plan, Judge, Done and DryRun are left empty: ops sets the first
	// three by itself, and PlanReplay is the dry run. Other than in dlq:
	//
	//   - To is the Target's queue by default.
	//   - The act asks the store for the jobs of a batch. It goes on when all are done. It ends
	//     with a [*dlq.CanaryError] when an attempt of one has failed since, or when not all are
	//     done at the end of CanaryWait. Without a Store it goes by letters that come back.
	//   - Canaries that nobody would run are refused, unless CanaryAny is set: while a rule pauses
	//     the queue, or a scope or type of the plan's letters, and where all workers that have a
	//     seat at the queue are dead or have left. The error wraps [ErrRefused].
	dlq.ReplayOptions
	// Queue is a Target's name.
	Queue string
	// By is who acts; default: Options.By. Reason is why. Both are required for the act.
	By, Reason string
	// Beside lets the act go on although somebody else replays or purges the same queue, or did so
	// and died within the last half minute. That does no harm, because of each letter only one copy
	// runs; the numbers of both are then partial.
	Beside bool
	// Note is kept in the plan and in the audit, such as the command that Edit runs.
	Note string
}

// ReplayPlan is a frozen set of letters with what the store says of them.
type ReplayPlan struct {
	*dlq.Plan
	Spec ReplaySpec
	// Reopen is how many letters reopen their failure. Ordinary is how many are sent for an
	// ordinary claim: nothing is recorded that they would reopen. Unknown is how many do not name
	// their record, as letters of older versions; they are sent, and their claim decides.
	Reopen, Ordinary, Unknown int
	// Done is how many are removed without being sent, because their jobs are done. Moved is how
	// many stay, because their jobs have failed anew, or run again.
	Done, Moved int
}

// ConflictError says that somebody else acts on the same letters. Entry is his act, as far as the
// audit has it. Left is how long until he is known to have died, should he stay silent.
type ConflictError struct {
	Entry AuditEntry
	Left  time.Duration
}

// Error says who, and since when.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("ops: %s began a %s of the letters of %s at %s UTC, %s, and is at it (audit %s); should he have died, they are free in %v",
		e.Entry.By, e.Entry.Act, e.Entry.Queue, e.Entry.Began.UTC().Format("2006-01-02 15:04"), e.Entry.Object, e.Entry.ID, e.Left.Round(time.Second))
}

// PlanReplay freezes the letters that spec chooses, and asks the store what became of their jobs
// since. Nothing is sent. A letter whose job is done is to be removed; one whose job has a newer
// claim stays. It costs a pass through the dead-letter queue, and a read of each letter's record.
//
// With an error comes no plan, unless the error is dlq.ErrIncomplete: then there are more letters
// than those that the plan lists, and they are of its Rest.
func (o *Ops) PlanReplay(ctx context.Context, spec ReplaySpec) (*ReplayPlan, error) {
	t, q, err := o.replayOf(&spec)
	if err != nil {
		return nil, err
	}
	ro := spec.ReplayOptions
	ro.Each = nil
	ro.Canary, ro.CanaryWait, ro.Ramp, ro.CanaryAny = 0, 0, false, false // whether they fit is the act's to say
	made, err := q.PlanReplay(ctx, ro)
	if made == nil {
		return nil, err
	}
	p := &ReplayPlan{Plan: made, Spec: spec}
	p.Note = spec.Note
	if e := p.ask(ctx, t); e != nil {
		return nil, e
	}
	return p, err
}

// Load takes a plan that was kept in a file, and asks the store anew. Its letters are those of the
// file: spec's Filter means nothing.
func (o *Ops) Load(ctx context.Context, kept *dlq.Plan, spec ReplaySpec) (*ReplayPlan, error) {
	t, _, err := o.replayOf(&spec)
	if err != nil {
		return nil, err
	}
	p := &ReplayPlan{Plan: kept, Spec: spec}
	p.Spec.Filter = dlq.Filter{Max: spec.Filter.Max}
	return p, p.ask(ctx, t)
}

// CheckReplay is the error with which Replay would refuse the plan before it writes down anything:
// what the options contradict, and canaries that nobody would run. nil = none is known of. It reads
// the rules and the seats.
func (o *Ops) CheckReplay(ctx context.Context, p *ReplayPlan) error {
	_, _, _, err := o.acting(ctx, p)
	return err
}

// acting is what an act by the plan needs, after everything was checked that can be.
func (o *Ops) acting(ctx context.Context, p *ReplayPlan) (*target, *dlq.Queue, dlq.ReplayOptions, error) {
	spec := p.Spec
	t, q, err := o.replayOf(&spec)
	if err != nil {
		return nil, nil, dlq.ReplayOptions{}, err
	}
	ro := spec.ReplayOptions
	ro.Plan = p.Plan
	ro.Filter = dlq.Filter{Max: spec.Filter.Max}
	if t.Store != nil {
		ro.Judge = func(ctx context.Context, ls []dlq.Planned) error {
			of := make([]*dlq.Planned, len(ls))
			for i := range ls {
				of[i] = &ls[i]
			}
			return new(ReplayPlan{Plan: p.Plan, Spec: spec}).judgeAll(ctx, t, of) // its own counts: p's are of the list
		}
		before := clock(ctx, t.Store)
		ro.Done = func(ctx context.Context, batch []dlq.Ref) (dlq.Became, error) {
			return became(ctx, t.Store, batch, before), nil
		}
	}
	if err := q.CheckReplay(ro); err != nil {
		return nil, nil, ro, err
	}
	if (spec.Canary > 0 || spec.Ramp) && !spec.CanaryAny {
		err = t.canaries(ctx, spec.To, p.Plan)
	}
	return t, q, ro, err
}

// Replay sends the letters of a plan, and no others, but for those of its Rest, by the plan's Spec.
// The audit has the intent before, and the numbers after. The report says what was done, also
// beside an error: dlq's, a [*ConflictError], or ErrNoAudit, where nothing was done.
func (o *Ops) Replay(ctx context.Context, p *ReplayPlan) (rep dlq.Report, audit string, err error) {
	t, q, ro, err := o.acting(ctx, p)
	if err != nil {
		return rep, "", err
	}
	spec := &p.Spec
	detail := map[string]string{
		"letters": strconv.Itoa(p.Count(dlq.Take)), "remove": strconv.Itoa(p.Count(dlq.Remove)), "leave": strconv.Itoa(p.Count(dlq.Leave)),
	}
	for name, v := range map[string]string{
		"rest": restOf(p.Plan), "canary": number(spec.Canary), "canary any": word(spec.CanaryAny), "rate": rate(spec.PerSecond), "ramp": word(spec.Ramp), "expired": word(spec.Expired),
		"unproven": word(spec.Unproven), "vouch": word(spec.TrustUnsigned), "edit": cutTo(p.Note, maxText),
	} {
		if v != "" {
			detail[name] = v
		}
	}
	links := func() string { return "" }
	if ro.Edit != nil {
		detail[detailEdited] = word(true)
		ro.Edit, links = watchEdit(ro.Edit)
	}
	audit, err = o.letterAct(ctx, t, p.Plan, dlq.ActReplay, spec.By, spec.Reason, spec.Beside, detail, func(ctx context.Context) (map[string]string, error) {
		var err error
		rep, err = q.Replay(ctx, ro)
		result := counted(&rep)
		if all := links(); all != "" {
			result[resultRekeyed] = all
		}
		return result, err
	})
	return rep, audit, err
}

// letterAct is an act on the letters of a plan. While it lasts it holds the queue's letters, so
// that another operator hears of it. An operator who died holds them for half a minute longer.
func (o *Ops) letterAct(ctx context.Context, t *target, p *dlq.Plan, act dlq.Act, by, reason string, beside bool, detail map[string]string, do func(context.Context) (map[string]string, error)) (id string, err error) {
	began := false
	acting := func(ctx context.Context) error {
		began = true
		if o.hear.mayUse != nil {
			if err = o.hear.mayUse(ctx, t, p); err != nil {
				return err
			}
		}
		e := AuditEntry{Act: string(act), By: by, Reason: reason, Queue: t.known, Object: "plan " + p.ID, Detail: detail}
		id, err = o.act(ctx, t.Store, e, do)
		return err
	}
	if t.Store == nil || beside {
		err = acting(ctx)
		return id, err
	}
	err = control.WithLock(ctx, t.Store, heldLetters(t.known), acting)
	held, others := errors.AsType[*control.HeldError](err)
	switch {
	case began:
	case others:
		return "", besides(ctx, t, act, held.Left)
	case o.o.NoAudit:
		err = acting(ctx)
	default:
		err = fmt.Errorf("%w: %w", ErrNoAudit, err)
	}
	return id, err
}

// heldLetters is what an act on the letters of a queue holds.
func heldLetters(queue string) string { return "letters/" + queue }

// besideFor is how long ago an act may have begun that still may be under way.
const besideFor = 12 * time.Hour

// besides names who acts on the letters of the target: the last one who has not said that he ended.
func besides(ctx context.Context, t *target, act dlq.Act, left time.Duration) error {
	now := time.Now()
	found := &ConflictError{Entry: AuditEntry{Act: string(act), By: "somebody", Queue: t.known, Object: "a plan", Began: now}, Left: left}
	for e, err := range controlstore.Acts(ctx, t.Store, now.Add(-besideFor), now.Add(time.Minute)) {
		switch {
		case err != nil:
			return found
		case e.Queue != t.known || !e.Ended.IsZero():
		case e.Act == string(dlq.ActReplay), e.Act == string(dlq.ActPurge):
			found.Entry = e
		}
	}
	return found
}

func (o *Ops) replayOf(spec *ReplaySpec) (*target, *dlq.Queue, error) {
	if err := checkReplay(spec); err != nil {
		return nil, nil, err
	}
	t, err := o.target(spec.Queue)
	if err != nil {
		return nil, nil, err
	}
	q, err := t.letters()
	if err != nil {
		return nil, nil, err
	}
	if spec.To == nil {
		to, err := t.queue()
		if err != nil {
			return nil, nil, err
		}
		spec.To = to
	}
	return t, q, nil
}

// checkReplay is the error where something is set that ops sets by itself.
func checkReplay(s *ReplaySpec) error {
	switch {
	case s.Plan != nil || s.Judge != nil || s.Done != nil:
		return fmt.Errorf("%w: ReplaySpec: Plan, Judge and Done are set by ops itself", ErrRefused)
	case s.DryRun:
		return fmt.Errorf("%w: ReplaySpec.DryRun is set; PlanReplay is the dry run", ErrRefused)
	}
	return nil
}

// ask judges the letters by their records. Without a store nothing is known of any.
func (p *ReplayPlan) ask(ctx context.Context, t *target) error {
	p.Reopen, p.Ordinary, p.Unknown, p.Done, p.Moved = 0, 0, 0, 0, 0
	all := make([]*dlq.Planned, len(p.Letters))
	for i := range p.Letters {
		all[i] = &p.Letters[i]
	}
	return p.judgeAll(ctx, t, all)
}

func (p *ReplayPlan) judgeAll(ctx context.Context, t *target, all []*dlq.Planned) error {
	var of []*dlq.Planned
	for _, l := range all {
		l.Decision, l.Why = dlq.Take, ""
		if t.Store == nil || dedupe.Key(l.Record).Validate() != nil {
			p.Unknown++
			continue
		}
		of = append(of, l)
	}
	if len(of) == 0 {
		return nil
	}
	most := max(1, t.Store.Limits().MaxBatch)
	for from := 0; from < len(of); from += most {
		part := of[from:min(from+most, len(of))]
		ks := make([]dedupe.Key, len(part))
		for i, l := range part {
			ks[i] = dedupe.Key(l.Record)
		}
		rs, err := t.Store.Get(ctx, ks)
		switch {
		case err != nil:
			return fmt.Errorf("asking the store for the letters' records: %w", err)
		case len(rs) != len(ks):
			return fmt.Errorf("ops: the store answered %d of %d keys", len(rs), len(ks))
		}
		for i, r := range rs {
			p.judge(part[i], r)
		}
	}
	return nil
}

// judge is what the record says of a letter. A letter without a fence reopens nothing, and an
// edited one may have another key then, so that the record of this one says nothing of it.
func (p *ReplayPlan) judge(l *dlq.Planned, r *dedupe.Record) {
	switch {
	case r == nil, l.Fence == 0, r.Status == dedupe.Done && p.Spec.Edit != nil:
		p.Ordinary++
	case r.Status == dedupe.Done:
		p.Done++
		l.Decision, l.Why = dlq.Remove, "its job is done"
	case r.Fence > l.Fence:
		p.Moved++
		l.Decision, l.Why = dlq.Leave, fmt.Sprintf("its job has a newer claim: %v with fence %d", r.Status, r.Fence)
	case r.Fence == l.Fence && IsCancelled(r): // it failed in the moment of the cancel, or an old worker put it
		p.Moved++
		l.Decision, l.Why = dlq.Leave, "its job was cancelled"
	case r.Fence == l.Fence && (r.Status == dedupe.Failed || r.Status == dedupe.Parked):
		p.Reopen++
	default:
		p.Ordinary++
	}
}

// restOf is what the audit has of the letters that the plan does not list.
func restOf(p *dlq.Plan) string {
	if p.Rest == nil || p.Rest.Filter.Max > 0 && len(p.Letters) >= p.Rest.Filter.Max {
		return ""
	}
	return "what fits of about " + strconv.Itoa(p.Rest.About) + " more"
}

// counted is a report for the audit.
func counted(r *dlq.Report) map[string]string {
	m := map[string]string{}
	for name, n := range map[string]int{
		"sent": r.Replayed, "purged": r.Purged, "copies": r.Copies, "removed": r.Removed, "skipped": len(r.Skipped), "failed": len(r.Failed),
		"missing": r.Missing, "unacked": r.Unacked, "unsigned": r.Unsigned,
	} {
		if n > 0 {
			m[name] = strconv.Itoa(n)
		}
	}
	return m
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func rate(f float64) string {
	if f == 0 {
		return ""
	}
	return strconv.FormatFloat(f, 'g', -1, 64) + "/s"
}

func word(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func cutTo(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
