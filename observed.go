package onceq

import (
	"context"
	"log/slog"

	"github.com/onceq/onceq/internal/engine"
)

func (p *Processor) observeStart(r *run) (ctx context.Context) {
	if p.c.Observer == nil {
		return r.Context()
	}
	defer func() {
		if v := recover(); v != nil {
			p.observerPanicked(v)
			ctx = r.Context()
		}
	}()
	switch ctx = p.c.Observer.JobStarted(r.Context(), &r.Job); ctx {
	case nil, r.Context():
		return r.Context()
	}
	r.Context().ObservedAs(ctx)
	return ctx
}

func (p *Processor) observeEnd(r *run) {
	level := slog.LevelInfo
	if r.Verdict.Class != "" {
		level = slog.LevelWarn
	}
	logs := p.c.Logger.Enabled(r.Flow().Terms.Base, level)
	if p.c.Observer == nil && !logs {
		return
	}
	t := p.timing(r)
	p.tellEnd(r, &t)
	if logs {
		p.c.Logger.LogAttrs(r.Flow().Terms.Base, level, "job", t.attrs()...)
	}
}

// observeAbandoned tells of a run that was given up, and answers its record.
func (p *Processor) observeAbandoned(r *run) TimingRecord {
	t := recordOf(r, p.e.TimingOfAbandoned(r))
	t.Outcome = OutcomeAbandoned
	p.tellEnd(r, &t)
	p.c.Logger.LogAttrs(r.Flow().Terms.Base, slog.LevelWarn, "job", t.attrs()...)
	return t
}

func (p *Processor) tellEnd(r *run, t *TimingRecord) {
	if p.c.Observer == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			p.observerPanicked(v)
		}
	}()
	ctx := r.Context().Observer()
	if ctx == nil {
		ctx = r.Context()
	}
	p.c.Observer.JobEnded(ctx, t)
}

func (p *Processor) observerPanicked(v any) {
	p.c.Logger.LogAttrs(context.Background(), slog.LevelError, "onceq: the Observer panicked", slog.Any("panic", v))
}

// timing is made only when somebody asks: most runs have no observer.
func (p *Processor) timing(r *run) TimingRecord {
	t := recordOf(r, p.e.Timing(r))
	t.Outcome, t.ErrClass, t.Err = Outcome(r.Outcome), r.Verdict.Class, r.Verdict.Text
	t.Result = r.Result()
	return t
}

func recordOf(r *run, t engine.Timing) TimingRecord {
	return TimingRecord{
		JobID: r.ID(), Type: r.Type(), Key: t.Key, QueueWait: t.QueueWait, Process: t.Process,
		Visibility: t.Visibility, Heartbeat: t.Heartbeat, Beats: t.Beats, Attempt: t.Attempt,
		Receives: t.Receives, Fence: t.Fence,
	}
}
