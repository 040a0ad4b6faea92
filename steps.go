package onceq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/steps"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns steps: what a handler saves on its way, and how it gives its job back for a time.
// The handler's goroutine runs all of it. internal/engine/save.go stores what is saved.

// Step runs f once for the job, and keeps what it returns. A later attempt of the job, and a replay
// of its letter, get the kept value, and do not run f. So a job that charges, then mails, and
// crashes between the two goes on with the mail.
//
// What f returned is stored before Step returns, under the job's claim. So:
//
//   - A step whose value was stored never runs again for this job, as long as its record is kept.
//   - A crash in f, or after f and before its value is stored, runs f again. Give what f does
//     elsewhere the key j.EffectKey(name).
//   - A worker that has lost its claim stores nothing: the error is [ErrLeaseLost].
//
// An error of f is returned, and nothing is stored. Return it, and the job is tried again as after
// any error. When the worker drains, and the job has saved a step before, Step does not start f. It
// answers an error that gives the job back, see [Postpone]: another worker goes on.
//
// name has 1 to 128 bytes of UTF-8, and is used once in a run: a Step, Sleep or Save of the same
// name within f is refused. A step that is renamed runs again. The value is kept as JSON, so fields
// that are not exported are lost. All that a job keeps, with its names, has at most
// [dedupe.Limits].MaxResult bytes. More is an error that is permanent and names the step, and so is
// a kept value that does not decode into a T. Without a store the error is [ErrNoStore], and f does
// not run. Each step costs one write of all that the job has saved.
//
// After the Join of a CompleteTx there are no more steps, because the store's row is locked by the
// user's transaction.
func Step[T any](ctx context.Context, j *Job, name string, f func(context.Context) (T, error)) (v T, err error) {
	have, err := j.step(ctx, "Step", name)
	if err != nil {
		return v, err
	}
	switch {
	case have.Given:
		return v, misused("Step %q: this run has had a step of that name already", name)
	case have.OK:
		if v, err = valueOf[T](name, &have); err == nil {
			j.r.Give(name)
		}
		return v, err
	case have.Any && j.r.Drains() && !j.r.IsLastTry():
		return v, Postpone(0, ErrDraining)
	}
	if !j.r.BeginStep(name) {
		return v, misused("Step %q: a step of that name runs already", name)
	}
	defer j.r.EndStep(name)
	if v, err = f(ctx); err != nil {
		return v, err
	}
	if err = j.save(ctx, "Step", name, v); err == nil {
		j.r.Give(name)
	}
	return v, err
}

// Save keeps v under the name, in place of what was kept there: a cursor, for example, that a job
// over a million rows moves on. It returns when v is stored, and fails as [Step] does.
func Save(ctx context.Context, j *Job, name string, v any) error {
	have, err := j.step(ctx, "Save", name)
	switch {
	case err != nil:
		return err
	case have.Runs: // a later attempt would take it for what the step has returned
		return misused("Save %q: a step of that name runs, and what it returns is kept under it", name)
	}
	return j.save(ctx, "Save", name, v)
}

// Saved is what [Save] or [Step] kept under the name, in this run or an earlier one. ok is false
// where nothing was kept. After the Join of a CompleteTx it answers an error where an earlier save
// was given up, because only a store that is not locked could tell what it kept.
func Saved[T any](j *Job, name string) (v T, ok bool, err error) {
	have, err := j.step(context.Background(), "Saved", name)
	if err != nil || !have.OK {
		return v, false, err
	}
	v, err = valueOf[T](name, &have)
	return v, err == nil, err
}

// Sleep answers nil when d has passed since the job's first call of Sleep with this name. Until
// then it answers an error: return it, and the job is given back for the rest of the time, see
// [Postpone]. No slot is held, and a deploy does no harm. The time is counted by the workers'
// clocks. A name that is a step's, and one that this run has slept under, are refused.
func Sleep(ctx context.Context, j *Job, name string, d time.Duration) error {
	if durations.IsBare(d) {
		return misused("Sleep %q: %s", name, durations.AskUnit(d))
	}
	have, err := j.step(ctx, "Sleep", name)
	switch {
	case err != nil:
		return err
	case have.Given:
		return misused("Sleep %q: this run has had a step of that name already", name)
	case have.Runs:
		return misused("Sleep %q: a step of that name runs", name)
	case have.OK && have.Until.IsZero():
		return misused("Sleep %q: the name is that of a saved value", name)
	}
	until := have.Until
	if !have.OK {
		until = time.Now().Add(max(0, d)).UTC()
		if err := j.store(ctx, "Sleep", name, steps.Step{Until: until}); err != nil {
			return err
		}
	}
	if left := time.Until(until); left > 0 {
		return Postpone(left, fmt.Errorf("onceq: asleep in %q", name))
	}
	j.r.Give(name)
	return nil
}

// Postpone makes an error that gives the job back for d: an API says 429, or what the job needs is
// not there yet. It is no attempt, and no failure: the record gets the class "postponed", and no
// text. The message comes again after d, or sooner where its queue cannot delay it for as long. A
// negative d means 0. why is for [errors.Is], and may be nil.
//
// Under [dedupe.Park] it is the handler's word that nothing is half done. One that was cut off
// before it returned has its job parked all the same. In [Do] it is an error like any other: there
// is no message that could come again. A job that always postpones itself goes on until its message
// expires; see Meta.Expires.
func Postpone(d time.Duration, why error) error {
	return &verdict.PostponeError{Err: cmp.Or(why, errPostponed), After: max(0, d)}
}

var errPostponed = errors.New("onceq: postponed")

// Last is the class of the attempt before this one, and when that attempt ended, by the store's
// clock. The class is "" where no attempt before has failed, "postponed" after a [Postpone], and
// "interrupted" after one whose worker died: nobody knows how far that came. The time is zero for a
// first attempt.
func (j *Job) Last() (class string, at time.Time) {
	if j.r == nil {
		return "", time.Time{}
	}
	return j.r.Last()
}

// LastAttempt reports whether an error now is the job's end, because MaxAttempts is reached: the
// time to undo what its steps have done. A [Postpone] is not the end: return it, and undo nothing.
// A crash of the last attempt is the end, too, and nobody undoes anything: the dead letter's class
// is [ClassAttempts], and a replay of it goes on after the saved steps.
func (j *Job) LastAttempt() bool { return j.r != nil && j.r.IsLastTry() }

// step looks a name up, for the function fn.
func (j *Job) step(ctx context.Context, fn, name string) (f engine.Found, err error) {
	if err := steps.CheckName(name); err != nil {
		return f, misused("%s: %w", fn, err)
	}
	if j.r == nil || j.r.Fence == 0 {
		return f, fmt.Errorf("onceq: %s %q: nothing could keep it: %w", fn, name, ErrNoStore)
	}
	f, err = j.r.Step(ctx, name)
	switch {
	case errors.Is(err, steps.ErrUnreadable):
		return f, verdict.Classed(ClassConfig, "onceq: %s %q: %w", fn, name, err)
	case err != nil:
		return f, fmt.Errorf("onceq: %s %q: %w", fn, name, err)
	}
	return f, nil
}

func (j *Job) save(ctx context.Context, fn, name string, v any) error {
	b, err := engine.Guard(func() ([]byte, error) { return json.Marshal(v) })
	if err != nil {
		return Permanent(verdict.Classed(ClassResult, "onceq: %s %q: the value does not encode: %w", fn, name, err))
	}
	return j.store(ctx, fn, name, steps.Step{Value: b})
}

func (j *Job) store(ctx context.Context, fn, name string, s steps.Step) error {
	if j.r.Joined.Load() {
		return misused("%s %q: the job's transaction has its record locked; save before CompleteTx", fn, name)
	}
	switch err := j.r.Save(ctx, name, s); {
	case errors.Is(err, dedupe.ErrResultSize):
		return Permanent(verdict.Classed(ClassResult, "onceq: %s %q: %w", fn, name, err))
	case err != nil:
		return fmt.Errorf("onceq: %s %q: %w", fn, name, err)
	}
	return nil
}

func valueOf[T any](name string, f *engine.Found) (v T, err error) {
	if !f.Until.IsZero() {
		return v, misused("step %q: the name is that of a Sleep", name)
	}
	if err := json.Unmarshal(f.Value, &v); err != nil {
		return v, Permanent(verdict.Classed(ClassDecode, "onceq: step %q: its value does not decode into %T: %w", name, v, unquoted(err)))
	}
	return v, nil
}

// misused is an error of the handler's code. Repeating the job would not mend it.
func misused(format string, args ...any) error {
	return Permanent(verdict.Classed(ClassConfig, "onceq: "+format, args...))
}
