package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/steps"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns what a handler saves under its claim. The handler's goroutine waits in Save. The
// carrier of saves (batch.Queue) calls saveBatch, which stores those of many handlers in one call,
// as renewals, and repeats each until its answer is known. saved.mu makes the saves of one run
// follow each other, where the handler has goroutines of its own. It guards saved, and is held
// while the handler waits for the store.

// saved is what a run's job has saved.
type saved struct {
	mu   sync.Mutex
	form *steps.Form
	no   int    // of the last save, stored or not
	last string // the step that was saved last
	// unsure says that nobody knows whether the form is stored.
	unsure bool
	// given has the names under which this run has had a value.
	given map[string]bool
}

// save is one on its way to the store.
type save[J any] struct {
	r     *Run[J]
	state []byte
	no    int
	tries int
	gone  atomic.Bool // nobody waits for it any more
	done  chan error  // takes one answer
}

// saved makes room for what is saved. The handler may have goroutines of its own.
func (r *Run[J]) saved() *saved {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.makes()
	if m.saved == nil {
		m.saved = new(saved)
	}
	return m.saved
}

// saves is what the run's job has saved so far, with its lock held. Its error says that it cannot be
// read.
func (r *Run[J]) saves() (*saved, error) {
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
}

// Step is what the job has saved under the name. A form of which nobody knows whether it is stored
// is stored first, until ctx ends. The handler's goroutines call it.
func (r *Run[J]) Step(ctx context.Context, name string) (f Found, err error) {
	have, err := r.saves()
	if err != nil {
		return Found{}, err
	}
	defer have.mu.Unlock()
	if have.unsure {
		if err := r.put(ctx, have, have.form); err != nil {
			return Found{}, err
		}
	}
	f.Step, f.OK, err = have.form.Get(name)
	f.Any, f.Given = have.form.Len() > 0, have.given[name]
	return f, err
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

// LastSaved is the name under which the job has saved last, as far as this run has looked; "" =
// it has not. Who settles the run calls it.
func (r *Run[J]) LastSaved() string {
	if r.later == nil || r.later.saved == nil {
		return ""
	}
	s := r.later.saved
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Last is the class of the attempt before this one, and when it ended.
func (r *Run[J]) Last() (class string, at time.Time) {
	if r.known == nil {
		return "", time.Time{}
	}
	return r.known.prevClass, r.known.lastEnd
}

// IsLastTry reports whether an error now is the job's end.
func (r *Run[J]) IsLastTry() bool {
	return r.Opts.Most > 0 && r.Attempt >= r.Opts.Most && !r.f.en.HoldsBack(r)
}

// Drains reports whether the run's flow has stopped.
func (r *Run[J]) Drains() bool { return r.f.isStopped() }

// Save stores a step under the run's claim, and returns when it is stored. It repeats the call until
// its answer is known, or ctx or the handler's context has ended. Then the step may be stored or
// not. The error is [verdict.ErrTaken] where the claim is another's, and wraps
// [dedupe.ErrResultSize] where the store does not take as much.
func (r *Run[J]) Save(ctx context.Context, name string, step steps.Step) error {
	have, err := r.saves()
	if err != nil {
		return err
	}
	defer have.mu.Unlock()
	step.N, step.At = have.no+1, time.Now().UTC().Truncate(time.Millisecond)
	form, err := have.form.With(name, step)
	if err != nil {
		return err
	}
	err = r.put(ctx, have, form)
	if errors.Is(err, dedupe.ErrResultSize) || errors.Is(err, dedupe.ErrBadRequest) {
		return err // it is certain that nothing was stored
	}
	have.form, have.last = form, name
	return err
}

// put stores a form as the next of the job. have is locked.
func (r *Run[J]) put(ctx context.Context, have *saved, form *steps.Form) error {
	state, err := form.Encode()
	if err != nil {
		return err
	}
	have.no++
	s := &save[J]{r: r, state: state, no: have.no, done: make(chan error, 1)}
	r.f.en.saves.Add(s)
	unsure := false
	select {
	case err = <-s.done:
	case <-r.ctx.Done():
		err, unsure = s.abandon(r.ctx.EndedBy())
	case <-ctx.Done():
		err, unsure = s.abandon(context.Cause(ctx))
	}
	have.unsure = unsure
	return err
}

// abandon is called by who waits no longer. The answer may have come just now.
func (s *save[J]) abandon(why error) (err error, unsure bool) {
	s.gone.Store(true)
	select {
	case err := <-s.done:
		return err, false
	default:
		return why, true
	}
}

// saveBatch stores the states of a batch in one call. What nobody waits for is left out, so that a
// run has one entry at most.
func (en *Engine[J]) saveBatch(batch []*save[J]) {
	ss := make([]*save[J], 0, len(batch))
	rs := make([]*Run[J], 0, len(batch))
	for _, s := range batch {
		if !s.gone.Load() && !s.r.isOver() {
			ss, rs = append(ss, s), append(rs, s.r)
		}
	}
	if len(ss) == 0 {
		return
	}
	errs, err := en.askSaves(ss)
	switch {
	case err == nil:
	case len(ss) > 1 && !errors.Is(err, context.DeadlineExceeded) && ss[0].tries >= wholeFailures:
		errs, _ = apart(rs, err, func(i int) error {
			one, err := en.askSaves(ss[i : i+1])
			if err == nil {
				err = one[0]
			}
			return err
		})
	default:
		errs = make([]error, len(ss))
		for i := range errs {
			errs[i] = err
		}
	}
	for i, s := range ss {
		en.saveAnswered(s, errs[i])
	}
}

// askSaves makes one call of Renew.
func (en *Engine[J]) askSaves(ss []*save[J]) ([]error, error) {
	batch := make([]dedupe.Renewal, len(ss))
	for i, s := range ss {
		batch[i] = dedupe.Renewal{Key: s.r.Key, Token: s.r.Token, TTL: en.leaseFor(s.r), State: s.state, StateNo: s.no}
	}
	ctx := CallContext(context.Background(), en.o.CallTimeout)
	defer ctx.Close()
	answers, err := en.askRenewal(ctx, batch)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(ss))
	for i := range answers {
		errs[i] = answers[i].Err
	}
	return errs, nil
}

// saveAnswered tells who waits, or sends the save again.
func (en *Engine[J]) saveAnswered(s *save[J], err error) {
	switch {
	case err == nil:
	case errors.Is(err, dedupe.ErrLeaseLost):
		err = verdict.ErrTaken
		s.r.stopHandler(err)
	case errors.Is(err, dedupe.ErrResultSize), errors.Is(err, dedupe.ErrBadRequest):
	default:
		s.tries++
		time.AfterFunc(retry.Pause(s.tries), func() {
			if !s.gone.Load() {
				en.saves.Add(s)
			}
		})
		return
	}
	s.done <- err
}
