package dynamostore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the settlement: the write for each way in which a job ends. Workers call Settle,
// many entries at once, each in a goroutine of its own. Nothing here is locked.

// Settle ends claims, each with one write, all at once. A record that a transaction holds answers
// [dedupe.ErrBusy] after some tens of milliseconds. A joined settlement waits for the end of that
// transaction until ctx ends, because only that end tells what became of the job.
func (s *Store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return answers(ctx, s, ss, func(t *dedupe.Settlement) (dedupe.Settled, error) {
		var st dedupe.Status
		err := candid(ctx, "Settle", func(ctx context.Context) (err error) {
			st, err = s.settle(ctx, t)
			return err
		})
		return dedupe.Settled{Status: st, Err: err}, err
	})
}

func (s *Store) settle(ctx context.Context, t *dedupe.Settlement) (dedupe.Status, error) {
	if err := cmp.Or(t.Validate(), records.CheckSize("Settlement.Result", t.Result, maxResult)); err != nil {
		return 0, fmt.Errorf("dynamostore: %w", err)
	}
	if t.Joined {
		return s.settleJoined(ctx, t)
	}
	return s.conclude(ctx, t)
}

// settleJoined settles what a transaction completes, or may have completed.
func (s *Store) settleJoined(ctx context.Context, t *dedupe.Settlement) (st dedupe.Status, err error) {
	by := s.written.take(t.Token)
	switch {
	case by.written:
		return dedupe.Done, nil // it wins over what the handler has returned, and does not change
	case t.To == dedupe.Done:
		st, err = s.probe(ctx, t)
	default:
		st, err = s.conclude(ctx, t)
	}
	if err != nil {
		s.written.note(t.Token, by) // for the repeat
		return 0, err
	}
	if st == by.to {
		s.redate(ctx, t.Key, t.Token, by)
	}
	return st, nil
}

// conclude writes the end of a claim.
func (s *Store) conclude(ctx context.Context, t *dedupe.Settlement) (dedupe.Status, error) {
	at, err := s.sure(ctx, t.Key, t.Token, t.Joined)
	if err != nil {
		return 0, s.explain(ctx, "Settle", err)
	}
	_, no, err := s.settlement(t, at.now, false).update(ctx, t.Key, t.Joined, types.ReturnValueNone)
	if isTooLarge(err) {
		// The saved steps, or what earlier attempts have left, leave no room for the end.
		_, no, err = s.settlement(t, at.now, true).update(ctx, t.Key, t.Joined, types.ReturnValueNone)
	}
	switch {
	case err != nil:
		return 0, s.explain(ctx, "Settle", err)
	case no == nil:
		s.redate(ctx, t.Key, t.Token, ended{to: t.To, retain: t.Retain, at: at})
		return t.To, nil
	}
	found, err := s.decode(no.item)
	if err != nil {
		return 0, foreign("Settle", err)
	}
	if found != nil && found.rec.Token == t.Token && found.rec.Updated.Equal(at.now) {
		// A try of this call has written it, and its answer was lost.
		s.redate(ctx, t.Key, t.Token, ended{to: found.rec.Status, retain: t.Retain, at: at})
	}
	if isLate(found, t) {
		return s.noteLate(ctx, t, at.now)
	}
	return present(found, t)
}

// isLate reports whether t releases a claim that was parked before.
func isLate(found *stored, t *dedupe.Settlement) bool {
	return found != nil && found.rec.Token == t.Token && found.rec.Status == dedupe.Parked && t.To == dedupe.Released && !t.Unparks
}

// noteLate is the row "late release of the parked claim": the record stays as it is, and keeps the
// error.
func (s *Store) noteLate(ctx context.Context, t *dedupe.Settlement, now time.Time) (dedupe.Status, error) {
	write := func(reason, first string) (*refusal, error) {
		w := s.write("note")
		w.set(attrUpdated, moment(now))
		w.add(attrVersion, 1)
		w.setText(attrLastErr, reason)
		if first != "" {
			w.setOnce(attrFirstErr, text(clean(first)))
		}
		w.own(t.Token, &stillParked)
		_, no, err := w.update(ctx, t.Key, t.Joined, types.ReturnValueNone)
		return no, err
	}
	no, err := write(t.LateText(), t.ErrText)
	if isTooLarge(err) {
		no, err = write((&dedupe.Settlement{ErrText: short(t.ErrText)}).LateText(), "")
	}
	switch {
	case err != nil:
		return 0, s.explain(ctx, "Settle", err)
	case no == nil:
		return dedupe.Parked, nil
	}
	found, err := s.decode(no.item)
	if err != nil {
		return 0, foreign("Settle", err)
	}
	return present(found, t)
}

// present is what the table answers to a settlement that writes nothing.
func present(found *stored, t *dedupe.Settlement) (dedupe.Status, error) {
	var r dedupe.Record
	if found != nil {
		r = found.rec
	}
	a, changed := machine.ApplySettle(&r, t, time.Time{})
	switch {
	case a.Err != nil:
		return 0, fmt.Errorf("dynamostore: Settle: %w", a.Err)
	case changed:
		return 0, fmt.Errorf("dynamostore: Settle: %w", dedupe.ErrBusy)
	}
	return a.Status, nil
}

// probe answers what is stored under the token. It does so by a write that changes nothing but the
// version, because a read may see the state from before a transaction that is being committed.
func (s *Store) probe(ctx context.Context, t *dedupe.Settlement) (dedupe.Status, error) {
	it, no, err := s.touch(t.Token).update(ctx, t.Key, true, types.ReturnValueAllNew)
	if err != nil {
		return 0, s.explain(ctx, "Settle", err)
	}
	if no != nil {
		it = no.item
	}
	found, err := s.decode(it)
	if err != nil {
		return 0, foreign("Settle", err)
	}
	return present(found, t)
}

// touch changes nothing but the version.
func (s *Store) touch(t dedupe.Token) *write {
	w := s.write("touch")
	w.add(attrVersion, 1)
	w.own(t)
	return w
}

// settlement is the write for those rows of [machine.SettleTable] that change a record: the claim
// is still the caller's, or it is parked and the caller has a late word. tight leaves out what can
// be spared.
func (s *Store) settlement(t *dedupe.Settlement, now time.Time, tight bool) *write {
	w := s.write("settle")
	w.end(t.Key, t.To, now, t.Retain)
	if t.To == dedupe.Done {
		w.done(t.Result, tight)
	} else {
		w.failed(t, tight)
	}
	switch {
	case t.To == dedupe.Parked:
		w.kind = "park"
		w.own(t.Token, &stillClaimed)
	case t.To == dedupe.Released && !t.Unparks:
		w.kind = "release"
		w.own(t.Token, &stillClaimed)
	default:
		w.own(t.Token, &notSettled)
	}
	return w
}

// ended is how a claim has ended, and by which time.
type ended struct {
	to      dedupe.Status
	retain  time.Duration
	at      reading
	written bool // false where nobody knows
}

// redateTries bound the writes for a host that stands still again and again.
const redateTries = 3

// redate puts the times right of what has ended by the time of a host that stood still, because it
// would expire too early, and its next delivery would run it again. If that fails, it has ended all
// the same.
func (s *Store) redate(ctx context.Context, k dedupe.Key, t dedupe.Token, e ended) {
	for range redateTries {
		if e.to == 0 || e.to == dedupe.Parked || !s.clock.isMisled(e.at) {
			return
		}
		var err error
		if e.at, err = s.sure(ctx, k, t, false); err != nil {
			return
		}
		w := s.write("redate")
		w.dated(e.to, e.at.now, e.retain)
		w.own(t)
		if _, no, err := w.update(ctx, k, false, types.ReturnValueNone); err != nil || no != nil {
			return
		}
	}
}

// end writes what every settlement does.
func (w *write) end(k dedupe.Key, to dedupe.Status, now time.Time, retain time.Duration) {
	w.set(attrStatus, text(to.String()))
	w.drop(attrLease)
	w.setText(attrAttention, attention(k, to))
	w.dated(to, now, retain)
}

// dated writes the times of what has ended.
func (w *write) dated(to dedupe.Status, now time.Time, retain time.Duration) {
	w.set(attrUpdated, moment(now))
	w.add(attrVersion, 1)
	if to == dedupe.Released {
		w.drop(attrFinished, attrStarted)
	} else {
		w.set(attrFinished, moment(now))
	}
	if to == dedupe.Parked {
		w.drop(w.s.ttl)
	} else {
		w.set(w.s.ttl, expiry(now.Add(cmp.Or(retain, dedupe.DefaultRetention))))
	}
}

// done keeps the result, and drops what nobody asks a done record for. tight leaves out the history
// as well.
func (w *write) done(result []byte, tight bool) {
	if result == nil {
		w.drop(attrResult)
	} else {
		w.set(attrResult, blob(result))
	}
	w.drop(attrClass, attrFirstErr, attrLastErr, attrMessage, attrState, attrStateNo)
	if tight {
		w.drop(attrPast)
	}
}

// tightErr is how many bytes of an error's class and of its text are kept if a large state leaves
// no room for more.
const tightErr = 100

func short(s string) string {
	s = clean(s) // which may make it longer
	return s[:min(len(s), tightErr)]
}

func (w *write) failed(t *dedupe.Settlement, tight bool) {
	if t.To == dedupe.Released && t.Uncounted {
		w.add(attrAttempt, -1) // a claim's attempt is 1 or more
	}
	class, reason := t.ErrClass, t.ErrText
	if tight {
		w.drop(attrPast)
		class, reason = short(class), short(reason)
	}
	if class == "" && reason == "" {
		return // leaves both as they are
	}
	w.setText(attrClass, class)
	w.setText(attrLastErr, reason)
	switch {
	case tight:
		w.setText(attrFirstErr, reason) // the one that is there may be as long as it likes
	case reason != "":
		w.setOnce(attrFirstErr, text(clean(reason)))
	}
}
