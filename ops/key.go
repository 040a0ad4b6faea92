package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/steps"
)

// This file owns the time line of a key: where its steps come from, and what is not known. Tools
// call Key; steps makes those of a record. All are values, and nothing is locked.

// KeyOptions say how far to look. The zero value looks into the store alone.
type KeyOptions struct {
	// Letters also goes through the dead-letter queue. Each letter there gets a receive more.
	Letters bool
	// NoAudit leaves the audit out, and its reads.
	NoAudit bool
}

// A Source says where a step is from.
type Source string

// The sources of a step.
const (
	FromRecord Source = "record" // the key's record
	FromPast   Source = "past"   // the earlier attempts in the record
	FromWorker Source = "seat"   // the owner's seat and card
	FromLetter Source = "letter" // the dead letter
	FromAudit  Source = "audit"  // an operator's act
)

// The kinds of steps, in TimeStep.What.
const (
	StepSent      = "sent"
	StepClaimed   = "claimed"
	StepReleased  = "released"
	StepLeaseDied = "lease died"
	StepRunning   = "running"
	StepDone      = "done"
	StepFailed    = "failed"
	StepParked    = "parked"
	StepLetter    = "dead letter"
	StepAct       = "act" // Text begins with what was done
)

// A TimeStep is something that happened to the key.
type TimeStep struct {
	// At is when; by the store's clock, but for FromLetter and FromAudit.
	At time.Time
	// What is the kind, and Text the rest of it for people. Class is that of a failure.
	What, Text, Class string
	// Attempt and Fence are those of the claim; 0 = the step is of none. Owner had it.
	Attempt int
	Fence   uint64
	Owner   string
	Source  Source
	// Audit is the act's id.
	Audit string
}

// SavedStep is what a job's handler has saved under a name, with [onceq.Step], [onceq.Save] or
// [onceq.Sleep].
type SavedStep struct {
	Name string
	// At is when it was saved, by the clock of the worker that did.
	At time.Time
	// Bytes is the size of its value, which is JSON; 0 of a sleep.
	Bytes int
	// Until is when a sleep ends, by the workers' clocks; zero of all others.
	Until time.Time
}

// TimeLine is what is known of a key, in the order of time.
type TimeLine struct {
	Key dedupe.Key
	// Record is nil where the store has none.
	Record *dedupe.Record
	Steps  []TimeStep
	// Saved is what the job's handler has saved, in the order of the saves. Gaps says so where that
	// cannot be read: a later version of onceq has written it, or something else.
	Saved []SavedStep
	// Gaps say what is not known, and why.
	Gaps []string
	// Worker is that of the worker that has the claim; nil where nobody has, or it has no seat. Job
	// is what its card says of the key.
	Worker *WorkerState
	Job    *control.RunningJob
	// Letter is the dead letter, where KeyOptions.Letters found one.
	Letter *dlq.Entry
	// Replayed is the last replay of the queue's letters since the job failed or was parked; nil =
	// there was none. Whether its letter was in it is known where Letter was looked for.
	Replayed *AuditEntry
	// Links are Options.Links, filled in.
	Links map[string]string
}

// auditDays is in how many days the audit is looked at for one key.
const auditDays = 4

// Key tells what happened to a key: from its record and the attempts in it, its owner's seat, the
// audit, and, where it is asked for, its dead letter. queue is a Target's name; empty = the first
// one. It costs a Get of the record, of a claimed one those of the seats, and two for each day of
// the audit, of which there are 4 at most: 12 reads in all, unless the queue has more than 64
// workers.
//
// A key without a record is answered with ErrNoKey, and a TimeLine that has what the audit knows.
func (o *Ops) Key(ctx context.Context, queue string, k dedupe.Key, ko KeyOptions) (*TimeLine, error) {
	t := o.ts[0]
	if queue != "" {
		var err error
		if t, err = o.target(queue); err != nil {
			return nil, err
		}
	}
	s, err := t.store()
	if err != nil {
		return nil, err
	}
	if err := k.Validate(); err != nil {
		return nil, err
	}
	r, err := get(ctx, s, k)
	if err != nil {
		return nil, err
	}
	l := &TimeLine{Key: k, Record: r, Links: o.links(k, r)}
	if r != nil {
		l.steps(r)
		l.addSaved(r)
		if r.Status == dedupe.Claimed {
			l.running(ctx, t, clock(ctx, s))
		}
	}
	if !ko.NoAudit {
		l.addAudit(ctx, s, t)
	}
	l.addDoubts()
	if ko.Letters {
		l.letter(ctx, t)
		if l.Letter != nil {
			l.Letter.Message = o.shown(l.Letter.Message)
		}
	}
	if e := l.Replayed; e != nil && l.Letter == nil {
		text := fmt.Sprintf("%s replayed letters of the queue since (%s, audit %s); was its letter among them, it waits in the queue, and is not claimed yet", e.By, e.Object, e.ID)
		if ko.Letters {
			text += ". Its letter is not there any more"
		}
		l.Gaps = append(l.Gaps, text)
	}
	if r == nil {
		l.Gaps = append(l.Gaps, "whether it ever ran: it was never claimed, or its retention is over; a list of what was due tells which (onceq reconcile --expect)")
	}
	slices.SortStableFunc(l.Steps, func(a, b TimeStep) int { return a.At.Compare(b.At) })
	if r == nil {
		return l, fmt.Errorf("%w: %v", ErrNoKey, k)
	}
	return l, nil
}

// addSaved names the steps that the job has saved, and says what of them cannot be read.
func (l *TimeLine) addSaved(r *dedupe.Record) {
	f, err := steps.Decode(r.State)
	if err != nil {
		l.Gaps = append(l.Gaps, fmt.Sprintf("its saved steps, %d bytes: %v", len(r.State), err))
		return
	}
	for _, e := range f.List() {
		if e.Err != nil {
			l.Gaps = append(l.Gaps, e.Err.Error())
			continue
		}
		l.Saved = append(l.Saved, SavedStep{Name: e.Name, At: e.At, Bytes: len(e.Value), Until: e.Until})
	}
}

// addDoubts says which attempts may have had their effect although the job was run again: those
// whose worker went silent.
func (l *TimeLine) addDoubts() {
	r := l.Record
	if r == nil {
		return
	}
	for _, a := range r.Past {
		if a.End == dedupe.Claimed {
			l.Gaps = append(l.Gaps, fmt.Sprintf("whether attempt %d had its effect, too: %s went silent, and the job was run again; a ledger of effects tells it (onceq reconcile --effects)", a.Number, named(a.Owner)))
		}
	}
}

// Find looks for a key in several scopes at once, and answers the records that there are. It is one
// Get for each [dedupe.Limits].MaxBatch scopes.
func (o *Ops) Find(ctx context.Context, queue string, scopes []string, key string) ([]*dedupe.Record, error) {
	s, err := o.storeOf(queue)
	if err != nil {
		return nil, err
	}
	var found []*dedupe.Record
	for part := range slices.Chunk(scopes, max(1, s.Limits().MaxBatch)) {
		ks := make([]dedupe.Key, len(part))
		for i, scope := range part {
			ks[i] = dedupe.Key{Scope: scope, Key: key}
			if err := ks[i].Validate(); err != nil {
				return nil, err
			}
		}
		rs, err := s.Get(ctx, ks)
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if r != nil {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// Scopes are those of a queue's records: Target.Scopes, or else what its workers' cards say, each
// scope alone and with each type, or where the card says that a type has its keys.
func (o *Ops) Scopes(ctx context.Context, queue string) ([]string, error) {
	t, err := o.target(queue)
	if err != nil {
		return nil, err
	}
	seats, err := t.seats(ctx)
	if err != nil {
		return nil, err
	}
	return t.scopesOf(seats), nil
}

// scopesOf is Scopes of workers that are known.
func (t *target) scopesOf(seats []WorkerState) []string {
	var all []string
	add := func(scope string, types []string) {
		if scope == "" {
			return
		}
		all = append(all, scope)
		for _, typ := range types {
			if typ != "" {
				all = append(all, scope+":"+typ)
			}
		}
	}
	types := map[string]bool{}
	for _, s := range seats {
		if s.Status == nil {
			continue
		}
		var usual []string
		for _, typ := range s.Status.Types {
			if _, ok := s.Status.Scopes[typ]; !ok {
				usual, types[typ] = append(usual, typ), true
			}
		}
		for _, own := range s.Status.Scopes {
			add(own, nil)
		}
		if len(t.Scopes) == 0 {
			add(s.Status.Scope, usual)
		}
	}
	for _, scope := range t.Scopes {
		if add(scope, nil); types[scope[strings.LastIndexByte(scope, ':')+1:]] && strings.Contains(scope, ":") {
			continue // it has its type already
		}
		for typ := range types {
			add(scope, []string{typ})
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (o *Ops) links(k dedupe.Key, r *dedupe.Record) map[string]string {
	if len(o.o.Links) == 0 {
		return nil
	}
	id := ""
	if r != nil {
		id, _, _ = strings.Cut(r.MessageID, "#")
	}
	fill := strings.NewReplacer("{key}", escape(k.Key), "{scope}", escape(k.Scope), "{message}", escape(id))
	links := map[string]string{}
	for name, template := range o.o.Links {
		if l := fill.Replace(template); !strings.Contains(l, "{") { // a link that lacks a part leads nowhere
			links[name] = l
		}
	}
	return links
}

// running tells what the owner's card says of a claimed record.
func (l *TimeLine) running(ctx context.Context, t *target, now time.Time) {
	r := l.Record
	dead := !now.Before(r.LeaseUntil)
	seats, err := t.seats(ctx)
	if err != nil {
		l.Gaps = append(l.Gaps, "the workers' seats could not be read: "+err.Error())
	}
	for i := range seats {
		s := &seats[i]
		if s.Owner != r.Owner {
			continue
		}
		l.Worker = s
		if s.Status == nil {
			continue
		}
		if j := slices.IndexFunc(s.Status.Jobs, func(j control.RunningJob) bool { return j.Fence == r.Fence }); j >= 0 {
			l.Job = &s.Status.Jobs[j] // by its fence, because a card may cut a key, or leave it out
		}
	}
	if dead {
		text := fmt.Sprintf("%s went silent %v ago; nobody has taken the key over yet", named(r.Owner), now.Sub(r.LeaseUntil).Round(time.Second))
		if l.Worker != nil && !l.Worker.Alive() {
			text += "; its seat is " + l.Worker.State
		}
		l.Steps = append(l.Steps, TimeStep{At: r.LeaseUntil, What: StepLeaseDied, Text: text, Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner, Source: FromRecord})
		return
	}
	step := TimeStep{At: now, What: StepRunning, Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner, Source: FromRecord}
	step.Text = fmt.Sprintf("for %v, its lease lasts %v more", now.Sub(r.ClaimedAt).Round(time.Millisecond), r.LeaseUntil.Sub(now).Round(time.Second))
	switch {
	case l.Job != nil && l.Job.Overdue:
		step.Source = FromWorker
		step.Text += "; its context has ended, and it runs on"
	case l.Worker == nil && err == nil:
		l.Gaps = append(l.Gaps, "its owner has no seat here, so nothing is known of it but the lease")
	case l.Worker != nil && l.Worker.Alive() && l.Job == nil && l.Worker.Status != nil && l.Worker.Status.More == 0:
		step.Text += "; the owner's last card does not name it"
	}
	l.Steps = append(l.Steps, step)
}

// addAudit finds in the audit what was done to the key, or to its queue's letters.
func (l *TimeLine) addAudit(ctx context.Context, s dedupe.Store, t *target) {
	days := l.days()
	if len(days) > auditDays {
		l.Gaps = append(l.Gaps, fmt.Sprintf("the audit was looked at on %d of %d days", auditDays, len(days)))
		days = days[len(days)-auditDays:]
	}
	for _, day := range days {
		for e, err := range controlstore.Acts(ctx, s, day, day.Add(24*time.Hour-time.Nanosecond)) {
			if err != nil {
				l.Gaps = append(l.Gaps, "the audit could not be read: "+err.Error())
				return
			}
			if step, ok := l.actOn(&e, t); ok {
				l.Steps = append(l.Steps, step)
			}
		}
	}
}

// days are those on which somebody may have acted: those on which the record's state changed.
func (l *TimeLine) days() (days []time.Time) {
	add := func(ts ...time.Time) {
		for _, at := range ts {
			if !at.IsZero() {
				days = append(days, at.UTC().Truncate(24*time.Hour))
			}
		}
	}
	if r := l.Record; r == nil {
		add(time.Now())
	} else {
		if r.Status == dedupe.Failed || r.Status == dedupe.Parked {
			add(time.Now()) // its letter may have been replayed since
		}
		for i, a := range r.Past {
			if a.Reopened {
				add(nextClaim(r, i))
			}
			if a.End == dedupe.Parked {
				add(a.Ended, nextClaim(r, i))
			}
		}
		add(r.ClaimedAt, r.Updated, r.Finished)
	}
	slices.SortFunc(days, time.Time.Compare)
	return slices.Compact(days)
}

// actOn is an act's step, where it was about this key. That of a replay is the queue's: it is the
// key's where the record was reopened while it ran.
func (l *TimeLine) actOn(e *AuditEntry, t *target) (TimeStep, bool) {
	text := fmt.Sprintf("%s by %s: %q", e.Act, e.By, e.Reason)
	step := TimeStep{At: e.Began, What: StepAct, Source: FromAudit, Audit: e.ID, Text: text}
	if e.Err != "" {
		step.Text += "; it failed: " + e.Err
	} else if e.Ended.IsZero() {
		step.Text += "; its end is not known"
	}
	if e.Object == l.Key.String() {
		return step, true
	}
	if e.Act != string(dlq.ActReplay) || l.Record == nil || e.Queue != t.known {
		return step, false
	}
	if s := l.Record.Status; (s == dedupe.Failed || s == dedupe.Parked) && e.Began.After(l.Record.Finished) && e.Result["sent"] != "" {
		l.Replayed = e
		return step, false
	}
	for i, a := range l.Record.Past {
		claimed := nextClaim(l.Record, i)
		if a.Reopened && !claimed.Before(e.Began) && a.Ended.Before(cmp.Or(e.Ended, time.Now())) && a.Ended.Before(claimed) {
			if e.Ended.IsZero() || claimed.Before(e.Ended.Add(replayReach)) {
				return step, true
			}
		}
	}
	return step, false
}

// replayReach is how long after a replay a claim that reopens a failure is taken to be its work.
const replayReach = 15 * time.Minute

// nextClaim is when the claim after the past attempt i was won.
func nextClaim(r *dedupe.Record, i int) time.Time {
	if i+1 < len(r.Past) {
		return r.Past[i+1].Claimed
	}
	return r.ClaimedAt
}

// letter looks for the key's dead letter.
func (l *TimeLine) letter(ctx context.Context, t *target) {
	q, err := t.letters()
	if err != nil {
		l.Gaps = append(l.Gaps, err.Error())
		return
	}
	found, err := q.Get(ctx, l.Key.Key)
	if err != nil && !errors.Is(err, dlq.ErrNoLetter) {
		l.Gaps = append(l.Gaps, "the dead-letter queue could not be looked through: "+err.Error())
	}
	for i := range found {
		e := &found[i]
		d := deadOf(e)
		if d != nil && d.Scope != "" && d.Scope != l.Key.Scope {
			continue
		}
		l.Letter = e
		step := TimeStep{At: e.At(), What: StepLetter, Class: e.Class(), Source: FromLetter}
		if d != nil {
			step.Fence = d.Fence
		}
		if n := e.Message.Attempt; n > 0 {
			step.Text = fmt.Sprintf("%d receives", n)
		}
		if e.Copies > 0 {
			step.Text = strings.TrimPrefix(fmt.Sprintf("%s, %d more copies", step.Text, e.Copies), ", ")
		}
		l.Steps = append(l.Steps, step)
	}
	if r := l.Record; errors.Is(err, dlq.ErrNoLetter) && r != nil && r.Status == dedupe.Failed && !IsCancelled(r) && l.Replayed == nil {
		l.Gaps = append(l.Gaps, "where its dead letter is: nothing brings the job back (onceq reconcile --expect --effects --letters --resend)")
	}
}

// steps are those that the record tells.
func (l *TimeLine) steps(r *dedupe.Record) {
	if !r.Sent.IsZero() {
		l.Steps = append(l.Steps, TimeStep{At: r.Sent, What: StepSent, Source: FromRecord})
	} else {
		l.Gaps = append(l.Gaps, "when it was sent is not recorded")
	}
	before := dedupe.Attempt{}
	for i, a := range r.Past {
		l.claimed(i, before, a, FromPast)
		l.ended(a)
		before = a
	}
	last := dedupe.Attempt{Number: r.Attempt, Fence: r.Fence, Owner: r.Owner, Claimed: r.ClaimedAt}
	if r.Status == dedupe.Released && !r.Updated.Equal(r.ClaimedAt) || r.Status != dedupe.Released {
		l.claimed(len(r.Past), before, last, FromRecord)
	}
	step := TimeStep{At: r.Updated, Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner, Source: FromRecord}
	switch r.Status {
	case dedupe.Done:
		step.At, step.What = r.Finished, StepDone
		step.Text = fmt.Sprintf("%v, result %d bytes", r.Finished.Sub(r.ClaimedAt).Round(time.Millisecond), len(r.Result))
	case dedupe.Failed:
		step.At, step.What, step.Class = r.Finished, StepFailed, r.ErrClass
		step.Text = r.LastErr
	case dedupe.Parked:
		step.At, step.What, step.Class = r.Finished, StepParked, r.ErrClass
		step.Text = r.LastErr
	case dedupe.Released:
		step.What, step.Class, step.Text = StepReleased, r.ErrClass, r.LastErr
	case dedupe.Claimed:
		return // what it does is told by its lease, and by its owner
	}
	l.Steps = append(l.Steps, step)
}

// claimed is the step of a claim; nth is how many attempts the record has of before it.
func (l *TimeLine) claimed(nth int, before, a dedupe.Attempt, from Source) {
	step := TimeStep{At: a.Claimed, What: StepClaimed, Attempt: a.Number, Fence: a.Fence, Owner: a.Owner, Source: from}
	switch {
	case nth == 0:
		if a.Number > 1 {
			l.Gaps = append(l.Gaps, lost(1, a.Number-1))
		}
		if sent := l.Record.Sent; a.Number == 1 && !sent.IsZero() && a.Claimed.After(sent) {
			step.Text = "waited " + a.Claimed.Sub(sent).Round(time.Millisecond).String()
		}
	case before.End == dedupe.Claimed:
		step.Text = "took over, dead for " + max(0, a.Claimed.Sub(before.Ended)).Round(time.Millisecond).String()
	case before.Reopened:
		step.Text = "reopened by a replay"
	}
	if nth > 0 && !before.Reopened && a.Number > before.Number+1 {
		l.Gaps = append(l.Gaps, lost(before.Number+1, a.Number-1))
	}
	l.Steps = append(l.Steps, step)
}

func lost(from, to int) string {
	if from == to {
		return fmt.Sprintf("attempt %d was dropped from the record", from)
	}
	return fmt.Sprintf("attempts %d–%d were dropped from the record", from, to)
}

// ended is the step of an earlier attempt's end.
func (l *TimeLine) ended(a dedupe.Attempt) {
	step := TimeStep{At: a.Ended, Attempt: a.Number, Fence: a.Fence, Owner: a.Owner, Class: a.Class, Text: a.Err, Source: FromPast}
	switch a.End {
	case dedupe.Released:
		step.What = StepReleased
	case dedupe.Failed:
		step.What = StepFailed
	case dedupe.Parked:
		step.What = StepParked
	default:
		step.What, step.Class, step.Text = StepLeaseDied, "", named(a.Owner)+" went silent"
	}
	l.Steps = append(l.Steps, step)
}

func named(owner string) string {
	if owner == "" {
		return "its owner"
	}
	return owner
}

func escape(s string) string { return url.QueryEscape(s) }

// deadOf is what a letter says of its failure; nil where it is no letter of ours.
func deadOf(e *dlq.Entry) *broker.Letter {
	if e.Message == nil || e.Message.Meta == nil {
		return nil
	}
	return e.Message.Meta.Dead
}
