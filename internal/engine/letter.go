package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns dead letters: when one is put, how it is cut down, and when it is given up. Claim
// and settle call letter; the carrier of letters calls putBatch, and has the run then. No lock is
// held.

// letter puts the dead letter of a run whose failure is recorded, or for which no claim was won.
// The message is acked only then.
func (en *Engine[J]) letter(r *Run[J], class, text string, fence uint64, attempts int, at time.Time) {
	if text == "" && class == verdict.Interrupted {
		text = "onceq: the worker died, or went silent, after the handler had begun"
	}
	r.Verdict.Class, r.Verdict.Text = class, text
	if r.f.Terms.Letters == ToCaller {
		en.finish(r, Ack, 0, en.deadAs(r, fence))
		return
	}
	if en.HoldsBack(r) {
		en.keep(r, class, text)
		return
	}
	first, saved := "", r.LastSaved()
	if k := r.known; k != nil {
		first = k.firstErr
		if k.record != nil && fence != 0 { // otherwise its errors and steps are another message's
			first, saved = k.record.FirstErr, lastIn(k.record.State)
		}
	}
	l := r.ensureLater()
	l.dead = broker.Letter{
		Fence: fence, Class: class, FirstErr: cmp.Or(first, text), LastErr: text,
		Attempts: attempts, Saved: saved, Source: en.o.Source, At: at,
	}
	if r.Key.Key != "" {
		l.dead.Scope, l.dead.Key = r.Key.Scope, r.Key.Key
	}
	l.fit = letter.FitFor(r.Message, en.o.DeadLetter.Limits())
	l.failing = 0
	r.tries = 0
	en.letters.Add(r)
}

// putBatch puts letters, each until it is known to be stored. A letter in doubt is put again. A
// second copy of it does no harm, because its fence reopens the failure once.
func (en *Engine[J]) putBatch(rs []*Run[J]) {
	letter.InParts(len(rs), func(from, to int) bool { return en.putPart(rs[from:to]) })
}

// putPart puts letters in one call, and reports whether they were too much for one.
func (en *Engine[J]) putPart(rs []*Run[J]) (tooMuch bool) {
	if slices.ContainsFunc(rs, (*Run[J]).IsOver) {
		rs = living(slices.Clone(rs)) // what is refused is divided by its places, so rs itself must stay as it is
	}
	if len(rs) == 0 {
		return false
	}
	sent := time.Now()
	err := en.sendLetters(rs)
	switch {
	case letter.IsTooMuch(err, len(rs)):
		return true
	case err != nil && !refusedAlone(err) && dividable(rs, err, tried):
		errs, some := apart(rs, err, func(i int) error { return broker.ErrAt(en.sendLetters(rs[i:i+1]), 0) })
		for i, r := range rs {
			en.put(r, errs[i], some)
		}
	default:
		alone := refusedAlone(err) || err != nil && len(rs) == 1 && rs[0].outlived(&en.lastLetter, sent)
		for i, r := range rs {
			en.put(r, broker.ErrAt(err, i), alone)
		}
	}
	return false
}

// sendLetters makes one call of Send.
func (en *Engine[J]) sendLetters(rs []*Run[J]) error {
	out := make([]broker.Outgoing, len(rs))
	for i, r := range rs {
		out[i] = letter.Make(r.Message, letter.Key(r.Key), r.later.Load().dead, r.later.Load().fit)
		en.o.LetterKeys.Sign(&out[i])
		if out[i].Group == "" && en.o.DeadLetter.Limits().RequireGroup {
			// The key itself may be longer than a group's name.
			out[i].Group = EffectKey(r.Key, "letter")
		}
	}
	ctx := CallContext(context.Background(), en.o.CallTimeout)
	_, err := Guard(func() ([]string, error) { return en.o.DeadLetter.Send(ctx, out) })
	ctx.Close()
	return err
}

// put acts on the answer to a letter. alone reports whether it is the answer to this letter, and
// not to a whole call.
func (en *Engine[J]) put(r *Run[J], err error, alone bool) {
	switch {
	case err == nil:
		now := time.Now()
		en.lastLetter.Store(int64(now.Sub(en.epoch)))
		en.lettersPulse.Answers(now)
		en.logLettersTaken(r.f.Terms.Base)
		en.finish(r, Ack, 0, en.deadAs(r, r.later.Load().dead.Fence))
	case letter.IsUnfit(err) && r.later.Load().fit < letter.Bare:
		r.later.Load().fit++
		en.letters.Add(r)
	case letter.IsUnfit(err):
		en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: the dead-letter queue does not take a message; it stays in its queue",
			slog.String("job", r.Name()), slog.Any("error", err))
		en.finish(r, Nack, KeptFor, Kept)
	case r.IsOver():
	case !r.Repeats(en.o.SettleTimeout) && r.f.isStopped():
		// The failure is recorded: the next delivery finds it and puts the letter.
		en.finish(r, Leave, 0, Unsettled)
	case (alone || r.f.crowded()) && !time.Now().Before(r.later.Load().giveUp):
		// Here, too, the next delivery puts the letter. Letters that are not taken must not keep
		// the places of jobs that can be done.
		en.o.Logger.LogAttrs(r.f.Terms.Base, slog.LevelError, "onceq: the dead-letter queue does not take a letter; its message is given back, and it is tried again then",
			slog.String("job", r.Name()), slog.Any("error", err))
		en.finish(r, Nack, refusedFor, Kept)
	default:
		en.lettersPulse.Misses(err)
		if !alone {
			en.logLettersFailed(r, err)
		}
		r.again(retry.Pause(int(r.tries)), func() *batch.Queue[*Run[J]] { return en.letters })
	}
}

// deadAs is the outcome of a delivery that ended in a letter with that fence.
func (en *Engine[J]) deadAs(r *Run[J], fence uint64) Outcome {
	switch {
	case r.Said != dedupe.Won && fence == 0, r.Verdict.Refused: // the message itself was refused
		if r.Verdict.Class == verdict.Plain { // the one refusal whose letter has a class of runs, too
			return BadFingerprint
		}
		return Outcome(r.Verdict.Class)
	case r.Said == dedupe.AlreadyFailed:
		return AlreadyFailed
	case r.Said == dedupe.IsParked && r.known.parked:
		return Parked
	case r.Said == dedupe.IsParked:
		return AlreadyParked
	case r.Verdict.To == dedupe.Parked:
		return Parked
	}
	return Failed
}

// putAgain puts the letter of a message that finds its key failed or parked, because a worker may
// have died between the record and the letter. Another message with that key gets a letter that can
// reopen nothing. With the record's fence, its body would run in the place of the one that failed.
func (en *Engine[J]) putAgain(r *Run[J], rec *dedupe.Record) {
	if r.f.Terms.Letters == ToCaller || isOwn(rec, r.Message) { // the caller is told of the record itself
		en.letter(r, cmp.Or(rec.ErrClass, verdict.Plain), rec.LastErr, rec.Fence, rec.Attempt, rec.Finished)
		return
	}
	en.turnAway(r, &Refusal{Class: verdict.Duplicate, Err: fmt.Errorf("onceq: another message with this key is %v", rec.Status)})
}

// turnAway dead-letters a message for which no claim was won, or gives it back.
func (en *Engine[J]) turnAway(r *Run[J], no *Refusal) {
	switch {
	case no.Back != "" && no.Class != "":
		r.SetCarryOr(no)
		r.f.Host.Carry(r)
	case no.Back != "":
		en.finish(r, Nack, no.Delay, no.Back)
	default:
		en.letter(r, no.Class, verdict.Text(no.Err), 0, 0, time.Now())
	}
}
