package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns the recording of ends. Work and claim hand over runs in phase settling; the
// carriers of settlements call settleBatch and act on what is stored under the token. They repeat a
// settlement until its answer is known. r.mu is taken only to end the renewals.

// settleRun records how a job ended. It goes on when the handler's context, and Run's, have ended,
// because the effect has happened and only its record keeps it from happening again.
func (en *Engine[J]) settleRun(r *Run[J], v verdict.Verdict, ended time.Duration) {
	if v.To == dedupe.Failed && v.Class != verdict.Cancelled && en.HoldsBack(r) {
		v = en.kept(r, v)
	}
	r.Verdict = v
	r.ended, r.tries = ended, 0
	if r.later.Load() != nil {
		r.later.Load().alone, r.later.Load().failing = time.Time{}, 0
	}
	if en.isAlone(r) && !r.Joined.Load() {
		one := [1]*Run[J]{r}
		en.settleBatch(one[:])
		return
	}
	en.settleQueue(r).Add(r)
}

func (en *Engine[J]) settleQueue(r *Run[J]) *batch.Queue[*Run[J]] {
	if r.Joined.Load() {
		// It may have to wait for the user's transaction, and must not make others wait.
		return en.joins
	}
	return en.settles
}

func (en *Engine[J]) settleBatch(rs []*Run[J]) {
	if rs = living(rs); len(rs) == 0 {
		return
	}
	sent := time.Now()
	answers, err := en.askEnds(rs, sent)
	switch {
	case err == nil:
		for i, r := range rs {
			en.settled(r, answers[i], sent)
		}
	case dividable(rs, err, tried):
		en.settleApart(rs, err)
	default:
		alone := len(rs) == 1 && !errors.Is(err, context.DeadlineExceeded) && en.endsOthers(rs[0], sent)
		for _, r := range rs {
			en.unsettled(r, err, !alone)
		}
	}
}

// settleApart settles each entry of a batch alone.
func (en *Engine[J]) settleApart(rs []*Run[J], err error) {
	errs, some := apart(rs, err, func(i int) error {
		sent := time.Now()
		answers, err := en.askEnds(rs[i:i+1], sent)
		if err == nil {
			en.settled(rs[i], answers[0], sent)
		}
		return err
	})
	for i, r := range rs {
		if errs[i] != nil {
			en.unsettled(r, errs[i], !some)
		}
	}
}

// askEnds makes one call of Settle, now.
func (en *Engine[J]) askEnds(rs []*Run[J], sent time.Time) ([]dedupe.Settled, error) {
	batch := make([]dedupe.Settlement, len(rs))
	for i, r := range rs {
		v, t := &r.Verdict, &batch[i]
		t.Key, t.Token, t.To, t.Retain = r.Key, r.Token, v.To, en.o.Retention
		t.ErrClass, t.ErrText, t.Uncounted = v.Class, v.Text, v.Uncounted
		if v.Refused {
			t.ErrClass, t.ErrText = "", "" // they are the message's, not the job's
		}
		t.Joined = r.Joined.Load()
		if v.To == dedupe.Released {
			// Where the queue keeps what cannot be done, it still has the message of a parked job.
			// A call of Do has no message and no letter: its caller brings it again.
			t.Unparks = en.HoldsBack(r) || r.f.Terms.Letters == ToCaller
			// The record must be there when the message comes again.
			// A postponed job's may come again as a copy, after any time.
			delay := v.Delay
			if v.Class != verdict.Postponed {
				delay = min(delay, en.LongestNack())
			}
			t.Retain = durations.Sum(t.Retain, delay)
		}
		if v.To == dedupe.Done {
			t.Result = r.Result()
		}
	}
	ctx := context.Background()
	if !en.instant {
		call := callContextAt(sent, en.settleCall(rs))
		defer call.Close()
		ctx = call
	}
	answers, err := Guard(func() ([]dedupe.Settled, error) { return en.o.Store.Settle(ctx, batch) })
	if err == nil && len(answers) != len(rs) {
		err = fmt.Errorf("onceq: the store answered %d of %d settlements", len(answers), len(rs))
	}
	switch {
	case err != nil:
		en.o.Pulse.ends.Misses(err)
	case slices.ContainsFunc(answers, isSound):
		now := time.Now()
		en.lastEnd.Store(int64(now.Sub(en.epoch)))
		en.o.Pulse.ends.Answers(now)
	case !errors.Is(answers[0].Err, dedupe.ErrBusy) || !rs[0].Joined.Load(): // which is locked by its own transaction
		en.o.Pulse.ends.Misses(answers[0].Err)
	}
	return answers, err
}

// isSound reports whether the store has decided over an entry, so that it is at work.
func isSound(a dedupe.Settled) bool {
	return a.Err == nil || errors.Is(a.Err, dedupe.ErrLeaseLost) || errors.Is(a.Err, dedupe.ErrResultSize)
}

// settleCall bounds one call. The first try has at most half of SettleTimeout, so that one lost
// packet leaves room for a repeat. A joined settlement has CallTimeout, because it may have to wait
// for the user's transaction.
func (en *Engine[J]) settleCall(rs []*Run[J]) time.Duration {
	for _, r := range rs {
		if r.tries > 0 && !r.inDoubt() || r.Joined.Load() {
			return en.o.CallTimeout
		}
	}
	return min(en.o.CallTimeout, en.o.SettleTimeout/2)
}

// settled acts on what is now stored under the run's token. What is stored decides: a transaction's
// done wins over whatever the handler returned. sent is when the call began.
func (en *Engine[J]) settled(r *Run[J], a dedupe.Settled, sent time.Time) {
	if a.Err == nil && a.Status == dedupe.Failed && r.Verdict.To != dedupe.Failed {
		// An operator has ended the claim. The message's next delivery is told of it.
		a.Err = dedupe.ErrLeaseLost
	}
	switch {
	case errors.Is(a.Err, dedupe.ErrLeaseLost) && r.inDoubt(): // the claim was not won
		en.finish(r, Nack, r.Verdict.Delay, r.Outcome)
		return
	case errors.Is(a.Err, dedupe.ErrLeaseLost):
		en.finish(r, Leave, 0, LeaseLost)
		return
	case errors.Is(a.Err, dedupe.ErrResultSize) && r.Verdict.To == dedupe.Done && r.f.Terms.KeepsEvery:
		r.Verdict = verdict.Verdict{To: dedupe.Failed, Class: verdict.Result, Text: verdict.Text(a.Err)}
		en.settleQueue(r).Add(r)
		return
	case errors.Is(a.Err, dedupe.ErrResultSize) && r.Verdict.To == dedupe.Done && r.Result() != nil:
		// The effect has happened: losing its result is better than repeating it.
		en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: a result was too large and is not kept",
			slog.String("job", r.Name()), slog.Int("bytes", len(r.Result())))
		r.ensureLater().result = nil
		en.settleQueue(r).Add(r)
		return
	case a.Err != nil:
		en.unsettled(r, a.Err, !en.erredAlone(r, a.Err, sent))
		return
	}
	if r.tries > 0 {
		en.storeAgain(r.f.Terms.Base, partEnds)
	}
	if !r.advance(settled) {
		return
	}
	if r.Fence != 0 {
		r.mu.Lock()
		r.claimHeld = false
		r.mu.Unlock()
	}
	switch a.Status {
	case dedupe.Done:
		if r.Verdict.Class == verdict.NotCommitted {
			r.Verdict.Class, r.Verdict.Text = "", "" // it has committed
		}
		en.finish(r, Ack, 0, Done)
	case dedupe.Released:
		if v := &r.Verdict; v.Refused {
			en.letter(r, v.Class, v.Text, 0, 0, time.Now())
			return
		}
		en.finish(r, Nack, r.Verdict.Delay, releasedAs(r))
	case dedupe.Failed, dedupe.Parked:
		if r.Verdict.Class == verdict.Cancelled {
			en.finish(r, Ack, 0, Cancelled)
			return
		}
		if v := &r.Verdict; a.Status == dedupe.Parked && v.To == dedupe.Released {
			// Another delivery found the claim dead, and has parked it. Its letter is put once
			// more, with what is known now.
			v.To, v.Class = dedupe.Parked, verdict.Interrupted
			v.Text = (&dedupe.Settlement{ErrText: v.Text}).LateText()
		}
		en.letter(r, r.Verdict.Class, r.Verdict.Text, r.Fence, r.begun(), time.Now())
	default:
		en.finish(r, Leave, 0, Unsettled)
	}
}

// erredAlone reports whether an entry's own error says something of the entry. A store may answer
// an outage entry by entry, as one that is locked does. So another end must have been answered
// since this one first failed. A joined end waits for its own transaction's lock.
func (en *Engine[J]) erredAlone(r *Run[J], err error, sent time.Time) bool {
	if errors.Is(err, dedupe.ErrFull) || errors.Is(err, dedupe.ErrBusy) {
		return r.Joined.Load() && errors.Is(err, dedupe.ErrBusy)
	}
	return en.endsOthers(r, sent)
}

// endsOthers reports whether the store has answered another end since this one first failed. Where
// such ends take all slots, as with one handler, no other can come. Then it asks for one (probe).
func (en *Engine[J]) endsOthers(r *Run[J], sent time.Time) bool {
	if r.outlived(&en.lastEnd, sent) {
		return true
	}
	if !r.f.Terms.Waits && r.f.isFull() {
		en.probe(r.Key.Scope)
	}
	return false
}

func releasedAs[J any](r *Run[J]) Outcome {
	switch {
	case r.inDoubt():
		return r.Outcome
	case r.Verdict.Kept:
		return Kept
	case r.Verdict.Uncounted && r.Verdict.Class == verdict.Postponed:
		return Postponed
	case r.Verdict.Uncounted:
		return HandedBack
	}
	return Retried
}

// unsettled repeats a settlement whose outcome is not known. Only the repetition can find it out,
// because a read might see the state from before a commit in flight. For how long it repeats
// depends on what failed:
//
//   - The store does not answer (away). It is asked as long as nobody waits for the end, and at a
//     drain until the hard end. To give up would run again every job that ended while the store was
//     away.
//   - The store errs on this entry, and has answered another one since (erredAlone). It is asked
//     for SettleTimeout only, because such jobs must not fill the slots.
func (en *Engine[J]) unsettled(r *Run[J], err error, away bool) {
	if r.IsOver() {
		return
	}
	r.f.Host.StoreErred(r, err, true)
	away = away && !r.f.Terms.Waits
	r.tries++
	pause, patient, since := retry.Pause(int(r.tries)), away && !r.inDoubt(), r.ended
	if lasts := r.erringAlone(!away); !away && !r.inDoubt() && !r.f.Terms.Waits {
		since = time.Since(r.f.epoch) - lasts // before that the store was away
	}
	switch stopped, at := r.f.stoppedAt(); {
	case !stopped:
	case r.inDoubt():
		since = at
	case away:
		patient, since = r.f.Terms.Abandons, max(since, at)
		pause = min(pause, max(en.o.SettleTimeout/4, 10*time.Millisecond)) // there may be little time left
	}
	if patient {
		en.storeFails(r, partEnds, r.tries >= 5, err)
	}
	if patient || time.Since(r.f.epoch)-since+pause < en.o.SettleTimeout && !(r.inDoubt() && r.f.storeAway.Load()) {
		r.again(pause, func() *batch.Queue[*Run[J]] { return en.settleQueue(r) })
		return
	}
	if r.inDoubt() { // nothing depends on it
		en.finish(r, Nack, r.Verdict.Delay, r.Outcome)
		return
	}
	en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: a job's end could not be recorded; it will be delivered again",
		slog.String("job", r.Name()), slog.String("key", r.Key.String()), slog.String("to", r.Verdict.To.String()), slog.Any("error", err))
	en.finish(r, Leave, 0, Unsettled)
}
