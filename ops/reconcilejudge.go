package ops

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
)

// This file owns what a reconciliation says of a key: the table that chooses the kind of finding,
// and why an effect happened twice. Reconcile calls it. A judge is one call's.

type judge struct {
	e                *Evidence
	grace, retention time.Duration
	letters          map[Failure]bool // nil = not looked for
	past             *past            // what became of letters that are gone
	waits            string           // where the message of a missing job may be
	gone             string           // what a job that waits for its message should know; "" = nothing
}

func newJudge(e *Evidence, ro *ReconcileOptions, t *target) *judge {
	j := &judge{e: e, grace: ro.Grace, retention: t.Retention}
	if j.grace == 0 {
		j.grace = defaultGrace
	}
	j.grace = max(0, j.grace)
	for i := range e.State.Workers { // the dead ones, too: they have settled what lies there
		if c := e.State.Workers[i].Status; c != nil && c.Retention > 0 && (j.retention == 0 || c.Retention < j.retention) {
			j.retention = c.Retention
		}
	}
	j.retention = cmp.Or(j.retention, dedupe.DefaultRetention)
	e.retention = j.retention
	paused := ""
	if v := e.State.Paused; v != nil {
		paused = ", which is paused until " + v.Until.UTC().Format(time.RFC3339)
	}
	switch d := e.State.Depth; {
	case d == nil:
		j.waits = "its message may wait in the queue" + paused
	case d.Visible+d.InFlight+d.Delayed > 0:
		j.waits = fmt.Sprintf("about %d messages wait in the queue%s, and its may be among them", d.Visible+d.InFlight+d.Delayed, paused)
	default:
		j.waits = "the queue holds no message: it was never sent, or is lost, or waits in an outbox"
		j.gone = "; the queue holds no message, so nothing brings it"
	}
	return j
}

// isYoung reports whether a job need not be done yet.
func (j *judge) isYoung(g *keyGroup) bool {
	return g.expected != nil && !g.expected.Due.IsZero() && j.e.At.Before(g.expected.Due.Add(j.grace))
}

// of is what is wrong with a key; false = nothing is. other is a record of the key in another
// scope.
func (j *judge) of(g *keyGroup, r, other *dedupe.Record) (f Finding, found bool) {
	f = Finding{Key: g.key, Effects: g.effects}
	if g.expected != nil {
		f.Ref, f.Due = g.expected.Ref, g.expected.Due
	}
	if r != nil {
		f.Status, f.Fence = r.Status, r.Fence
	}
	n := len(g.effects)
	done := r != nil && r.Status == dedupe.Done
	switch {
	case n > 1:
		f.Kind, f.Why = FoundDuplicate, explain(g, r)
	case g.expected == nil:
		return f, false
	case done && n == 0 && j.e.Ledger && !j.e.At.Before(r.Finished.Add(j.grace)):
		f.Kind, f.Why = FoundNoEffect, "done at "+stamp(r.Finished)+", and the ledger has no effect of it"
	case done && !f.Due.IsZero() && r.Finished.After(f.Due.Add(j.grace)):
		f.Kind, f.Why = FoundLate, fmt.Sprintf("done at %s, %v after it was due", stamp(r.Finished), r.Finished.Sub(f.Due).Round(time.Second))
	case done:
		j.e.OK++
		return f, false
	case j.isYoung(g) && (r == nil || r.Status == dedupe.Claimed || r.Status == dedupe.Released):
		j.e.Young++
		return f, false
	case other != nil:
		f.Kind, f.Status, f.Fence = FoundElsewhere, other.Status, other.Fence
		f.Why = fmt.Sprintf("the scope %s has the key, and it is %v there: one of the two was sent, or is expected, under the wrong type or scope", other.Key.Scope, other.Status)
	case g.stray != "" && n == 0 && (r == nil || r.Status == dedupe.Failed):
		f.Kind = FoundElsewhere
		f.Why = fmt.Sprintf("the ledger has an effect of the key in the scope %s, where nobody expects it: one of the two has the wrong type or scope", g.stray)
	case n > 0 && r == nil:
		f.Kind, f.Why = FoundNoKey, "the ledger has an effect, and no record says so: it was forgotten, or has expired, or the store went back in time"
	case n > 0:
		f.Kind, f.Why = FoundNotDone, fmt.Sprintf("the ledger has an effect, and the record is %v: tell it by key resolve, or let its next run find the effect by its key", r.Status)
	default:
		j.state(&f, g, r)
	}
	return f, true
}

// state is the finding of a job that is not done and of which no effect is known.
func (j *judge) state(f *Finding, g *keyGroup, r *dedupe.Record) {
	sends := g.expected.Send != nil && !g.unlike
	noBody := ""
	switch {
	case g.unlike:
		noBody = "; it is expected with different bodies, types or groups, so none is sent"
	case !sends:
		noBody = "; there is no body to send it again"
	}
	became := "" // of a letter that is gone
	if r == nil {
		became = j.past.became(Failure{Key: g.key}, f.Due, j.e.Ledger)
	} else if r.Status == dedupe.Failed {
		became = j.past.became(Failure{g.key, r.Fence}, r.Finished, j.e.Ledger)
	}
	switch {
	case r == nil && j.letters[Failure{Key: g.key}]:
		f.Kind, f.Why = FoundFailed, "no worker could begin it, and its letter is there: dlq show, then dlq replay"
	case r == nil && f.Due.IsZero():
		f.Kind, f.Why = FoundUnproven, "no record, and when it was due is not known: an earlier record may have expired"
	case r == nil && !j.e.At.Before(f.Due.Add(j.retention)):
		f.Kind, f.Why = FoundUnproven, fmt.Sprintf("no record, but records are kept for %v: an earlier one may have expired", j.retention)
	case r == nil && became != "":
		f.Kind, f.Why = FoundFailed, became
	case r == nil:
		f.Kind, f.Sends = FoundMissing, sends
		f.Why = "no record: no worker has begun it; " + j.waits + noBody
	case r.Status == dedupe.Claimed && j.e.At.Before(r.LeaseUntil):
		f.Kind, f.Why = FoundRunning, fmt.Sprintf("attempt %d runs at %s since %s", r.Attempt, named(r.Owner), stamp(r.ClaimedAt))
	case r.Status == dedupe.Claimed:
		f.Kind, f.Why = FoundStalled, fmt.Sprintf("%s went silent: its lease died at %s, and nobody has taken the job over%s", named(r.Owner), stamp(r.LeaseUntil), j.gone)
	case r.Status == dedupe.Released && r.ErrClass == onceq.ClassPostponed:
		f.Kind, f.Why = FoundPostponed, "its handler has put it off, since "+stamp(r.Updated)+j.gone
	case r.Status == dedupe.Released:
		f.Kind, f.Why = FoundRetrying, fmt.Sprintf("attempt %d ended at %s: %s%s", r.Attempt, stamp(r.Updated), cmp.Or(r.ErrClass, "given back"), j.gone)
	case r.Status == dedupe.Parked:
		f.Kind, f.Why = FoundParked, fmt.Sprintf("%s was interrupted amid it: look whether the effect happened, then key resolve", named(r.Owner))
	case IsCancelled(r):
		f.Kind, f.Why = FoundCancelled, fmt.Sprintf("at %s: %s", stamp(r.Finished), r.LastErr)
	case j.letters == nil:
		f.Kind, f.Why = FoundFailed, fmt.Sprintf("%s at %s; its letter was not looked for", r.ErrClass, stamp(r.Finished))
	case j.letters[Failure{g.key, r.Fence}] || j.letters[Failure{dedupe.Key{Key: g.key.Key}, r.Fence}]:
		f.Kind, f.Why = FoundFailed, fmt.Sprintf("%s at %s, and its letter is there: dlq replay", r.ErrClass, stamp(r.Finished))
	case became != "":
		f.Kind, f.Why = FoundFailed, fmt.Sprintf("%s at %s; %s", r.ErrClass, stamp(r.Finished), became)
	case j.e.LettersErr != nil, j.e.At.Before(r.Finished.Add(min(letterLag, j.grace))):
		f.Kind, f.Why = FoundFailed, fmt.Sprintf("%s at %s; its letter was not seen, but not all were, or it may still come", r.ErrClass, stamp(r.Finished))
	default:
		f.Kind, f.Sends = FoundLost, sends && (j.e.Ledger || j.e.sendLost)
		if sends && !f.Sends {
			noBody = "; somebody may have removed it on purpose where no audit has it: it is sent only with a ledger, or with SendLost (--send-lost)"
		}
		f.Why = fmt.Sprintf("%s at %s, and no letter could replay it%s", r.ErrClass, stamp(r.Finished), noBody)
	}
}

// explain says why a job had its effect more than once, from the attempts in its record.
func explain(g *keyGroup, r *dedupe.Record) string {
	head := fmt.Sprintf("%d effects: ", len(g.effects)+g.more)
	if r == nil {
		return head + "no record tells of their claims"
	}
	all := append(slices.Clone(r.Past), dedupe.Attempt{
		Number: r.Attempt, Fence: r.Fence, Owner: r.Owner, Claimed: r.ClaimedAt, Ended: r.Updated, End: r.Status, Class: r.ErrClass,
	})
	first, last := &g.effects[0], &g.effects[len(g.effects)-1]
	for i := 1; i < len(g.effects); i++ { // of several the two that differ tell most
		if g.effects[i].Fence != first.Fence {
			last = &g.effects[i]
			break
		}
	}
	a, b := claimOf(first, all), claimOf(last, all)
	if a > b && b >= 0 {
		a, b, first, last = b, a, last, first
	}
	for _, e := range [...]*Effect{first, last} {
		if e.Fence > r.Fence {
			return head + fmt.Sprintf("fence %d is above the record's, %d: the ledger does not check fences, or the store went back in time", e.Fence, r.Fence)
		}
	}
	switch {
	case first.Fence != 0 && first.Fence == last.Fence && a < 0:
		return head + fmt.Sprintf("one claim did it twice, under fence %d, which the record does not have any more", first.Fence)
	case a >= 0 && a == b:
		x := &all[a]
		return head + fmt.Sprintf("one claim did it twice: attempt %d of %s, fence %d; the handler does not keep to job.EffectKey", x.Number, named(x.Owner), x.Fence)
	case a < 0 || b < 0:
		return head + "the record does not have all of their claims, so what came between is not known"
	}
	x, y := &all[a], &all[b]
	how := ""
	switch next := &all[a+1]; {
	case x.End == dedupe.Claimed:
		how = fmt.Sprintf("taken over between effect and record: the lease of %s died at %s, and %s took the job over at %s", named(x.Owner), stamp(x.Ended), named(next.Owner), stamp(next.Claimed))
	case x.Reopened:
		how = fmt.Sprintf("%s ended %v (%s) at %s after its effect, and was replayed", named(x.Owner), x.End, x.Class, stamp(x.Ended))
	default:
		how = fmt.Sprintf("%s ended %v (%s) at %s after its effect, and was tried again", named(x.Owner), x.End, cmp.Or(x.Class, "given back"), stamp(x.Ended))
	}
	return head + fmt.Sprintf("attempt %d under fence %d and attempt %d under fence %d; %s", x.Number, x.Fence, y.Number, y.Fence, how)
}

// claimOf is the place of the claim under which an effect happened; -1 = it is not known. An effect
// without a fence is that of the claim in whose time it happened, by the ledger's clock.
func claimOf(e *Effect, all []dedupe.Attempt) int {
	if e.Fence != 0 {
		return slices.IndexFunc(all, func(a dedupe.Attempt) bool { return a.Fence == e.Fence })
	}
	at := -1
	for i := range all {
		if !e.At.IsZero() && !e.At.Before(all[i].Claimed) {
			at = i
		}
	}
	return at
}
