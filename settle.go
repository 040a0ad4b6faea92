package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// settleRun records how a job ended. It goes on when the handler's context, and Run's, have ended: the
// effect has happened, and only its record keeps it from happening again.
func (p *Processor) settleRun(r *run, v verdict.Verdict, ended time.Duration) {
	if p.holdsBack(r) && v.To == dedupe.Failed {
		v.To, v.Delay, v.Backoff = dedupe.Released, keptFor, false
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: a job that cannot be done stays in the queue",
			slog.String("job", r.name()), slog.String("class", v.Class), slog.String("error", v.Text))
	}
	r.verdict = v
	r.ended, r.tries = ended, 0
	if r.later != nil {
		r.later.alone, r.later.failing = time.Time{}, 0
	}
	p.settleQueue(r).Add(r)
}

// holdsBack tells whether what would be a dead letter stays in the queue instead.
func (p *Processor) holdsBack(r *run) bool {
	to := r.f.t.letters
	return to == toNobody || to == toQueue && p.c.HoldGroup && r.grouped()
}

func (p *Processor) settleQueue(r *run) queueOfRuns {
	if r.joined.Load() {
		// It may have to wait for the user's transaction, and must not make others wait.
		return p.joins
	}
	return p.settles
}

type queueOfRuns interface{ Add(rs ...*run) }

func (p *Processor) settleBatch(rs []*run) {
	if rs = living(rs); len(rs) == 0 {
		return
	}
	sent := time.Now()
	answers, err := p.askEnds(rs)
	switch {
	case err == nil:
		for i, r := range rs {
			p.settled(r, answers[i])
		}
	case dividable(rs, err, tried):
		p.settleApart(rs, err)
	default:
		alone := len(rs) == 1 && rs[0].outlived(&p.lastEnd, sent) && !errors.Is(err, context.DeadlineExceeded)
		for _, r := range rs {
			p.unsettled(r, err, !alone)
		}
	}
}

// settleApart settles each entry of a batch alone.
func (p *Processor) settleApart(rs []*run, err error) {
	errs, some := apart(rs, err, func(i int) error {
		answers, err := p.askEnds(rs[i : i+1])
		if err == nil {
			p.settled(rs[i], answers[0])
		}
		return err
	})
	for i, r := range rs {
		if errs[i] != nil {
			p.unsettled(r, errs[i], !some)
		}
	}
}

// askEnds makes one call of Settle.
func (p *Processor) askEnds(rs []*run) ([]dedupe.Settled, error) {
	batch := make([]dedupe.Settlement, len(rs))
	for i, r := range rs {
		v, t := &r.verdict, &batch[i]
		t.Key, t.Token, t.To, t.Retain = r.key, r.token, v.To, p.c.Retention
		t.ErrClass, t.ErrText, t.Uncounted = v.Class, v.Text, v.Uncounted
		if v.Refused {
			t.ErrClass, t.ErrText = "", "" // they are the message's, not the job's
		}
		t.Joined = r.joined.Load()
		if v.To == dedupe.Released {
			t.Retain = durations.Sum(t.Retain, min(v.Delay, p.longestNack())) // the record must be there when the message comes again
		}
		if v.To == dedupe.Done {
			t.Result = r.result()
		}
	}
	ctx := callContext(context.Background(), p.settleCall(rs))
	answers, err := guard2(func() ([]dedupe.Settled, error) { return p.c.Store.Settle(ctx, batch) })
	ctx.close()
	if err == nil && len(answers) != len(rs) {
		err = fmt.Errorf("onceq: the store answered %d of %d settlements", len(answers), len(rs))
	}
	if err == nil {
		p.lastEnd.Store(int64(time.Since(p.epoch)))
	}
	return answers, err
}

// settleCall bounds one call. The first one has half of the time, so that one lost packet leaves room for a repeat; a
// joined one may have to wait for the user's transaction.
func (p *Processor) settleCall(rs []*run) time.Duration {
	for _, r := range rs {
		if r.tries > 0 && !r.inDoubt() || r.joined.Load() {
			return p.c.CallTimeout
		}
	}
	return min(p.c.CallTimeout, p.c.SettleTimeout/2)
}

// settled acts on what is now stored under the run's token, which is what decides: a transaction's done
// wins over whatever the handler returned.
func (p *Processor) settled(r *run, a dedupe.Settled) {
	switch {
	case errors.Is(a.Err, dedupe.ErrLeaseLost) && r.inDoubt(): // it was not won
		p.finish(r, Disposition{Action: Nack, Delay: r.verdict.Delay}, r.outcome)
		return
	case errors.Is(a.Err, dedupe.ErrLeaseLost):
		p.finish(r, Disposition{Action: Leave}, OutcomeLeaseLost)
		return
	case errors.Is(a.Err, dedupe.ErrResultSize) && r.verdict.To == dedupe.Done && r.f.t.keepsEvery:
		r.verdict = verdict.Verdict{To: dedupe.Failed, Class: ClassResult, Text: verdict.Text(a.Err)}
		p.settleQueue(r).Add(r)
		return
	case errors.Is(a.Err, dedupe.ErrResultSize) && r.verdict.To == dedupe.Done && r.result() != nil:
		// The effect has happened: losing its result is better than repeating it.
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: a result was too large and is not kept",
			slog.String("job", r.name()), slog.Int("bytes", len(r.result())))
		r.makes().result = nil
		p.settleQueue(r).Add(r)
		return
	case a.Err != nil:
		p.unsettled(r, a.Err, false)
		return
	}
	if r.tries > 0 {
		p.storeAgain(r.f.t.base, partEnds)
	}
	if !r.advance(settled) {
		return
	}
	if r.fence != 0 {
		r.mu.Lock()
		r.claimHeld = false
		r.mu.Unlock()
	}
	switch a.Status {
	case dedupe.Done:
		if r.verdict.Class == ClassTxNotCommitted {
			r.verdict.Class, r.verdict.Text = "", "" // it has
		}
		p.finish(r, Disposition{Action: Ack}, OutcomeDone)
	case dedupe.Released:
		if v := &r.verdict; v.Refused {
			p.letter(r, v.Class, v.Text, 0, 0, time.Now())
			return
		}
		p.finish(r, Disposition{Action: Nack, Delay: r.verdict.Delay}, releasedAs(r))
	case dedupe.Failed, dedupe.Parked:
		p.letter(r, r.verdict.Class, r.verdict.Text, r.fence, r.begun(), time.Now())
	default:
		p.finish(r, Disposition{Action: Leave}, OutcomeUnsettled)
	}
}

func releasedAs(r *run) Outcome {
	switch {
	case r.inDoubt():
		return r.outcome
	case r.verdict.Uncounted:
		return OutcomeHandedBack
	}
	return OutcomeRetried
}

// unsettled repeats a settlement whose outcome is not known. Only the repetition can tell: a read might
// see the state from before a commit in flight. A store that does not answer (away) is asked as long as nobody waits for the
// end, and at a drain until the hard end: to give up would run again every job that ended while it was away. What it
// answers to this entry alone, for SettleTimeout, is another matter: such jobs must not fill the slots.
func (p *Processor) unsettled(r *run, err error, away bool) {
	if r.isOver() {
		return
	}
	r.f.host.storeErred(r, err, true)
	away = away && !r.f.t.waits
	r.tries++
	pause, patient, since := retry.Pause(int(r.tries)), away && !r.inDoubt(), r.ended
	if lasts := r.errsAlone(!away); !away && !r.inDoubt() && !r.f.t.waits {
		since = time.Since(r.f.epoch) - lasts // before that it was away
	}
	switch stopped, at := r.f.stoppedAt(); {
	case !stopped:
	case r.inDoubt():
		since = at
	case away:
		patient, since = r.f.t.abandons, max(since, at)
		pause = min(pause, max(p.c.SettleTimeout/4, 10*time.Millisecond)) // there may be little time left
	}
	if patient {
		p.storeFails(r, partEnds, r.tries >= 5, err)
	}
	if patient || time.Since(r.f.epoch)-since+pause < p.c.SettleTimeout && !(r.inDoubt() && r.f.storeAway.Load()) {
		r.again(pause, func() queueOfRuns { return p.settleQueue(r) })
		return
	}
	if r.inDoubt() { // nothing depends on it
		p.finish(r, Disposition{Action: Nack, Delay: r.verdict.Delay}, r.outcome)
		return
	}
	p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: a job's end could not be recorded; it will be delivered again",
		slog.String("job", r.name()), slog.String("key", r.key.String()), slog.String("to", r.verdict.To.String()), slog.Any("error", err))
	p.finish(r, Disposition{Action: Leave}, OutcomeUnsettled)
}
