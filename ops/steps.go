package ops

import (
	"fmt"
	"net/url"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

// steps are those that the record tells.
func (l *TimeLine) steps(r *dedupe.Record) {
	if !r.Sent.IsZero() {
		l.Steps = append(l.Steps, Step{At: r.Sent, What: StepSent, Source: FromRecord})
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
	step := Step{At: r.Updated, Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner, Source: FromRecord}
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
	step := Step{At: a.Claimed, What: StepClaimed, Attempt: a.Number, Fence: a.Fence, Owner: a.Owner, Source: from}
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
	step := Step{At: a.Ended, Attempt: a.Number, Fence: a.Fence, Owner: a.Owner, Class: a.Class, Text: a.Err, Source: FromPast}
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
func deadOf(e *dlq.Entry) *broker.Dead {
	if e.Message == nil || e.Message.Meta == nil {
		return nil
	}
	return e.Message.Meta.Dead
}
