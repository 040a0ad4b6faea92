package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/steps"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what a handler saves under its claim. The handler's goroutine waits in Save. The
// carrier of saves (batch.Queue) calls saveBatch, which stores those of many handlers in one call,
// as renewals, and repeats each until its answer is known. Where the handler has goroutines of its
// own, saved.saving makes the saves of one run follow each other. saved.mu guards saved, and is
// held for a moment, so that reads never wait for the store.

// saved makes room for what is saved. The handler may have goroutines of its own.
func (r *Run[J]) saved() *saved {
	l := r.ensureLater()
	if s := l.saved.Load(); s != nil {
		return s
	}
	l.saved.CompareAndSwap(nil, &saved{saving: make(chan struct{}, 1)})
	return l.saved.Load()
}

// lockSaved is what the run's job has saved so far, with its lock held. Its error says that it
// cannot be read.
func (r *Run[J]) lockSaved() (*saved, error) {
	s := r.saved()
	s.mu.Lock()
	if s.form != nil {
		return s, nil
	}
	var state []byte
	if k := r.known; k != nil {
		state, s.no = k.state, k.stateNo
	}
	f, err := steps.Decode(state)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.form, s.last = f, f.Last()
	return s, nil
}

// A Found is what Step answers.
type Found struct {
	steps.Step
	OK    bool // there is such a step
	Any   bool // the job has saved anything at all
	Given bool // this run has had a value under the name already
	Runs  bool // a step of that name runs at present
}

// Step is what the job has saved under the name. A form of which nobody knows whether it is stored
// is stored first, until ctx ends. The handler's goroutines call it. While one of them saves, the
// others get what was stored before.
func (r *Run[J]) Step(ctx context.Context, name string) (f Found, err error) {
	have, err := r.lockSaved()
	if err != nil {
		return Found{}, err
	}
	for have.unsure != "" {
		have.mu.Unlock()
		if r.Joined.Load() {
			return Found{}, errLocked
		}
		if err := r.makeSure(ctx, have); err != nil {
			return Found{}, err
		}
		have.mu.Lock()
	}
	defer have.mu.Unlock()
	f.Step, f.OK, err = have.form.Get(name)
	given, begun := have.given[name]
	f.Any, f.Given, f.Runs = have.form.Len() > 0, given, begun && !given
	return f, err
}

// errLocked is the answer to a look-up that would have to store what is in doubt, and whose row the
// job's own transaction has locked: it would wait until the lease ends.
var errLocked = errors.New("an earlier save may not be stored, and the job's transaction has its record locked; look before CompleteTx")

// makeSure stores the form again, unless another goroutine has done so meanwhile.
func (r *Run[J]) makeSure(ctx context.Context, have *saved) error {
	if err := r.beginSave(ctx, have); err != nil {
		return err
	}
	defer have.endSave()
	if have.unsure == "" {
		return nil
	}
	return r.keepForm(ctx, have, have.form, have.unsure)
}

// beginSave waits until no other goroutine of the handler saves. Who gets nil calls endSave.
func (r *Run[J]) beginSave(ctx context.Context, have *saved) error {
	select {
	case have.saving <- struct{}{}:
		return nil
	case <-r.ctx.Done():
		return r.whyEnded()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *saved) endSave() { <-s.saving }

// whyEnded is why the handler's context has ended. That of a handler which has returned ends
// without a cause.
func (r *Run[J]) whyEnded() error { return cmp.Or(r.ctx.EndedBy(), context.Canceled) }

// BeginStep notes that a step of the name runs, and reports whether none did. EndStep takes the
// note back, where no value was given.
func (r *Run[J]) BeginStep(name string) bool {
	s := r.saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, begun := s.given[name]; begun {
		return false
	}
	if s.given == nil {
		s.given = map[string]bool{}
	}
	s.given[name] = false
	return true
}

// EndStep is called by who has got true from BeginStep.
func (r *Run[J]) EndStep(name string) {
	s := r.saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.given[name] {
		delete(s.given, name)
	}
}

// Give notes that this run has had a value under the name.
func (r *Run[J]) Give(name string) {
	s := r.saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given == nil {
		s.given = map[string]bool{}
	}
	s.given[name] = true
}

// Last is the class of the attempt before this one, and when it ended.
func (r *Run[J]) Last() (class string, at time.Time) {
	switch k := r.known; {
	case k == nil:
		return "", time.Time{}
	case k.from != "": // the store's class is that of the last failure, which came before
		return verdict.Interrupted, k.lastEnd
	default:
		return k.prevClass, k.lastEnd
	}
}

// IsLastTry reports whether an error now is the job's end. One that a drain has cut off is not.
func (r *Run[J]) IsLastTry() bool {
	return r.Opts.Most > 0 && r.Attempt >= r.Opts.Most && !r.f.en.HoldsBack(r) && !errors.Is(r.ctx.EndedBy(), verdict.ErrDraining)
}

// Drains reports whether the run's flow has stopped.
func (r *Run[J]) Drains() bool { return r.f.isStopped() }

var errReturned = errors.New("the handler has returned, and nothing more is saved under its claim")

// Save stores a step under the run's claim, and returns when it is stored. It repeats the call
// until its answer is known, or ctx or the handler's context has ended. Then the step may be stored
// or not. The error is [verdict.ErrTaken] where the claim is another's, and wraps
// [dedupe.ErrResultSize] where the store does not take as much.
func (r *Run[J]) Save(ctx context.Context, name string, step steps.Step) error {
	if r.at() >= settling {
		return errReturned
	}
	have, err := r.lockSaved()
	if err != nil {
		return err
	}
	have.mu.Unlock()
	if err := r.beginSave(ctx, have); err != nil {
		return err
	}
	defer have.endSave()
	step.N, step.At = have.no+1, time.Now().UTC().Truncate(time.Millisecond)
	form, err := have.form.With(name, step)
	if err != nil {
		return err
	}
	return r.keepForm(ctx, have, form, name)
}

// keepForm stores a form as the next of the job, where name was saved last. The caller is the one
// who saves.
func (r *Run[J]) keepForm(ctx context.Context, have *saved, form *steps.Form, name string) error {
	state, err := form.Encode()
	if err != nil {
		return err
	}
	have.no++
	ask := &asked{state: state, no: have.no, done: make(chan error, 1)}
	have.asks.Store(ask)
	defer have.asks.Store(nil)
	r.f.en.saves.Add(r)
	answered := false
	select {
	case err = <-ask.done:
		answered = true
	case <-r.ctx.Done():
		err = r.whyEnded()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if why := ask.why.Load(); !answered && why != nil {
		err = fmt.Errorf("%w; the store said last: %s", err, *why)
	}
	have.mu.Lock()
	defer have.mu.Unlock()
	switch {
	case err == nil:
		have.form, have.last, have.unsure = form, name, ""
	case answered && (errors.Is(err, dedupe.ErrResultSize) || errors.Is(err, dedupe.ErrBadRequest)):
		// it is certain that nothing was stored
	default: // after a takeover, too: whoever asks for a step then gets an error, and no value
		have.form, have.unsure = form, name
	}
	return err
}

// saveBatch stores the states of a batch in one call, each run's once. What nobody waits for any
// more is left out.
func (en *Engine[J]) saveBatch(batch []*Run[J]) {
	rs := make([]*Run[J], 0, len(batch))
	asks := make([]*asked, 0, len(batch))
	for _, r := range batch {
		ask := r.saved().asks.Load()
		if ask != nil && !r.IsOver() && !slices.Contains(asks, ask) {
			rs, asks = append(rs, r), append(asks, ask)
		}
	}
	if len(rs) == 0 {
		return
	}
	errs, err := en.askSaves(rs, asks)
	switch {
	case err == nil:
	case dividable(rs, err, func(*Run[J]) int { return asks[0].tries }):
		errs, _ = apart(rs, err, func(i int) error {
			one, err := en.askSaves(rs[i:i+1], asks[i:i+1])
			if err == nil {
				err = one[0]
			}
			return err
		})
	default:
		errs = slices.Repeat([]error{err}, len(rs))
	}
	for i, r := range rs {
		en.saveAnswered(r, asks[i], errs[i])
	}
}

// askSaves makes one call of Renew.
func (en *Engine[J]) askSaves(rs []*Run[J], asks []*asked) ([]error, error) {
	batch := make([]dedupe.Renewal, len(rs))
	for i, r := range rs {
		batch[i] = dedupe.Renewal{Key: r.Key, Token: r.Token, TTL: en.leaseFor(r), State: asks[i].state, StateNo: asks[i].no}
	}
	ctx := CallContext(context.Background(), en.o.CallTimeout)
	defer ctx.Close()
	answers, err := en.askRenewal(ctx, batch)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(rs))
	for i := range answers {
		errs[i] = answers[i].Err
	}
	return errs, nil
}

// saveAnswered tells who waits, or sends the state again.
func (en *Engine[J]) saveAnswered(r *Run[J], ask *asked, err error) {
	switch {
	case err == nil:
	case errors.Is(err, dedupe.ErrLeaseLost):
		err = verdict.ErrTaken
		r.stopHandler(err)
	case errors.Is(err, dedupe.ErrResultSize), errors.Is(err, dedupe.ErrBadRequest):
	default:
		ask.tries++
		ask.why.Store(new(verdict.Text(err)))
		time.AfterFunc(retry.Pause(ask.tries), func() {
			if r.saved().asks.Load() == ask {
				en.saves.Add(r)
			}
		})
		return
	}
	select {
	case ask.done <- err:
	default: // an earlier call has answered, where the run stood in the queue twice
	}
}
