package onceq

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
)

// KeepInQueue stands for ProcessorConfig.DeadLetter: what would be a dead letter is released, given
// back for an hour, or the broker's longest delay if that is shorter, and logged, so that the queue's own redrive takes it in the end:
// before the end of its retention, if that is longer than an hour for each receive. It is never acked.
var KeepInQueue broker.Sender = keepInQueue{}

type keepInQueue struct{}

func (keepInQueue) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, broker.ErrUnsupported
}
func (keepInQueue) Limits() broker.Limits { return broker.Limits{SendBatch: 1} }

// keptFor is how long a message that stays in its queue is given back for. It is short enough that the queue's own redrive
// comes before the end of its retention, and that a group which it holds goes on soon after the cause is mended; and long
// enough that MaxAttempts last until somebody has looked.
const keptFor = time.Hour

// letter puts the dead letter of a run whose failure is recorded, or for which no claim was won, and
// acks the message only then.
func (p *Processor) letter(r *run, class, text string, fence uint64, attempts int, at time.Time) {
	r.verdict.Class, r.verdict.Text = class, text
	if r.f.t.letters == toCaller {
		p.finish(r, Disposition{Action: Ack}, p.deadAs(r))
		return
	}
	if p.holdsBack(r) {
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: a message that cannot be done stays in the queue",
			slog.String("job", r.name()), slog.String("class", class), slog.String("error", text))
		p.finish(r, Disposition{Action: Nack, Delay: keptFor}, OutcomeKept)
		return
	}
	if text == "" && class == ClassInterrupted {
		text = "onceq: the worker died, or went silent, after the handler had begun"
	}
	first := ""
	if k := r.known; k != nil {
		first = k.firstErr
		if k.record != nil && fence != 0 { // else its errors are another message's
			first = k.record.FirstErr
		}
	}
	l := r.makes()
	l.dead = broker.Dead{
		Fence: fence, Class: class, FirstErr: cmp.Or(first, text), LastErr: text,
		Attempts: attempts, Source: p.c.Scope, At: at,
	}
	l.fit = letter.FitFor(r.message, p.c.DeadLetter.Limits())
	l.failing = 0
	r.tries = 0
	p.letters.Add(r)
}

// putBatch puts letters, each until it is known to be stored. A letter in doubt is put again. A second
// copy of it does no harm, because its fence reopens the failure once.
func (p *Processor) putBatch(rs []*run) {
	letter.InParts(len(rs), func(from, to int) bool { return p.putPart(rs[from:to]) })
}

// putPart puts letters in one call, and reports whether they were too much for one.
func (p *Processor) putPart(rs []*run) (tooMuch bool) {
	if slices.ContainsFunc(rs, (*run).isOver) {
		rs = living(slices.Clone(rs)) // what is refused is divided by its places
	}
	if len(rs) == 0 {
		return false
	}
	sent := time.Now()
	err := p.sendLetters(rs)
	switch {
	case letter.IsTooMuch(err, len(rs)):
		return true
	case err != nil && !refusedAlone(err) && dividable(rs, err, tried):
		errs, some := apart(rs, err, func(i int) error { return broker.ErrAt(p.sendLetters(rs[i:i+1]), 0) })
		for i, r := range rs {
			p.put(r, errs[i], some)
		}
	default:
		alone := refusedAlone(err) || err != nil && len(rs) == 1 && rs[0].outlived(&p.lastLetter, sent)
		for i, r := range rs {
			p.put(r, broker.ErrAt(err, i), alone)
		}
	}
	return false
}

// sendLetters makes one call of Send.
func (p *Processor) sendLetters(rs []*run) error {
	out := make([]broker.Outgoing, len(rs))
	for i, r := range rs {
		out[i] = letter.Make(r.message, letter.Key(r.key), r.later.dead, r.later.fit)
		p.c.LetterKeys.Sign(&out[i])
		if out[i].Group == "" && p.c.DeadLetter.Limits().RequireGroup {
			// The key itself may be longer than a group's name.
			out[i].Group = EffectKey(r.key, "letter")
		}
	}
	ctx := callContext(context.Background(), p.c.CallTimeout)
	_, err := guard2(func() ([]string, error) { return p.c.DeadLetter.Send(ctx, out) })
	ctx.close()
	return err
}

// put acts on the answer to a letter; alone tells that it is the answer to this one, and not to a whole call.
func (p *Processor) put(r *run, err error, alone bool) {
	switch {
	case err == nil:
		p.lastLetter.Store(int64(time.Since(p.epoch)))
		p.lettersAgain(r.f.t.base)
		p.finish(r, Disposition{Action: Ack}, p.deadAs(r))
	case letter.IsUnfit(err) && r.later.fit < letter.Bare:
		r.later.fit++
		p.letters.Add(r)
	case letter.IsUnfit(err):
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: the dead-letter queue does not take a message; it stays in its queue",
			slog.String("job", r.name()), slog.Any("error", err))
		p.finish(r, Disposition{Action: Nack, Delay: keptFor}, OutcomeKept)
	case r.isOver():
	case !r.repeats(p.c.SettleTimeout) && r.f.isStopped():
		// The failure is recorded: the next delivery finds it and puts the letter.
		p.finish(r, Disposition{Action: Leave}, OutcomeUnsettled)
	case (alone || r.f.crowded()) && !time.Now().Before(r.later.giveUp):
		// The same; letters that are not taken must not keep the places of jobs that can be done.
		p.c.Logger.LogAttrs(r.f.t.base, slog.LevelError, "onceq: the dead-letter queue does not take a letter; its message is given back, and it is tried again then",
			slog.String("job", r.name()), slog.Any("error", err))
		p.finish(r, Disposition{Action: Nack, Delay: refusedFor}, OutcomeKept)
	default:
		if !alone {
			p.lettersFail(r, err)
		}
		r.again(retry.Pause(int(r.tries)), func() queueOfRuns { return p.letters })
	}
}

// deadAs is the outcome of a delivery that ended in a letter.
func (p *Processor) deadAs(r *run) Outcome {
	switch {
	case r.said == dedupe.AlreadyFailed:
		return OutcomeAlreadyFailed
	case r.said == dedupe.IsParked:
		return OutcomeAlreadyParked
	case r.said != dedupe.Won, r.verdict.Refused:
		return Outcome(r.verdict.Class)
	case r.verdict.To == dedupe.Parked:
		return OutcomeParked
	}
	return OutcomeFailed
}
