package onceq

import (
	"context"
	"log/slog"

	"github.com/onceq/onceq/internal/engine"
)

func (in *intake) observeStart(r *run) (ctx context.Context) {
	if in.c.Observer == nil {
		return r.Context()
	}
	defer func() {
		if v := recover(); v != nil {
			in.observerPanicked(v)
			ctx = r.Context()
		}
	}()
	switch ctx = in.c.Observer.JobStarted(r.Context(), &r.Job); ctx {
	case nil, r.Context():
		return r.Context()
	}
	r.Context().ObservedAs(ctx)
	return ctx
}

func (in *intake) observeEnd(r *run) {
	level := slog.LevelInfo
	if r.Verdict.Class != "" {
		level = slog.LevelWarn
	}
	logs := in.log.Enabled(r.Flow().Terms.Base, level)
	if in.c.Observer == nil && !logs {
		return
	}
	t := in.timing(r)
	in.tellEnd(r, &t)
	if logs {
		in.log.LogAttrs(r.Flow().Terms.Base, level, "job", t.attrs()...)
	}
}

// observeAbandoned tells of a run that was given up, and answers its record.
func (in *intake) observeAbandoned(r *run) JobReport {
	t := in.recordOf(r, in.e.TimingOfAbandoned(r))
	t.Outcome = OutcomeAbandoned
	in.tellEnd(r, &t)
	in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "job", t.attrs()...)
	return t
}

func (in *intake) tellEnd(r *run, t *JobReport) {
	if in.c.Observer == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			in.observerPanicked(v)
		}
	}()
	ctx := r.Context().Observer()
	if ctx == nil {
		ctx = r.Context()
	}
	in.c.Observer.JobEnded(ctx, t)
}

// timing is made only when somebody asks: most runs have no observer.
func (in *intake) timing(r *run) JobReport {
	t := in.recordOf(r, in.e.Timing(r))
	t.Outcome, t.ErrClass, t.Err = Outcome(r.Outcome), r.Verdict.Class, r.Verdict.Text
	if t.Outcome == OutcomePostponed {
		t.ErrClass = "" // nothing has failed
	}
	t.Saved = r.LastSaved()
	t.Result = r.Result()
	return t
}

func (in *intake) recordOf(r *run, t engine.Timing) JobReport {
	return JobReport{
		JobID: r.ID(), Type: r.Type(), Key: t.Key, QueueWait: t.QueueWait, Process: t.Process,
		Visibility: t.Visibility, Heartbeat: t.Heartbeat, Beats: t.Beats, Attempt: t.Attempt,
		Receives: t.Receives, Fence: t.Fence,
		Queue: in.queueName, Ran: t.Ran, Began: t.Began, Ended: t.Ended, Held: t.Held, Settle: t.Settle,
		Age: t.Age, Delay: t.Delay, Policy: t.Policy, PrevClass: t.PrevClass, From: t.From, DeadFor: t.DeadFor,
	}
}
