package worlds

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
)

// This file owns the jobs: their types, and what their handlers do. Handlers run in goroutines of
// their hosts.

const (
	bulkMax = 4
	due     = "due"
)

// types are those of the jobs, in turn.
var types = []string{"tx-rerun", "tx-park", "once", "steps", "tx-bulk", "bulk-once", due}

// mux is that of one machine, so that a batch has jobs of one machine alone.
func (w *world) mux(m *Machine) *onceq.Mux {
	mux := new(onceq.Mux)
	quick := func(int, error) time.Duration { return w.draw(3 * time.Second) }
	on := func(typ string, h func(context.Context, *Machine, *onceq.Job) error, o onceq.JobOptions) {
		o.Backoff = quick
		mux.On(typ, onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			w.noteStart(m, j)
			defer w.noteEnd(m, j)
			return h(ctx, m, j)
		}), &o)
	}
	for _, park := range []dedupe.Policy{dedupe.Rerun, dedupe.Park} {
		on(fmt.Sprint("tx-", park), w.transaction, onceq.JobOptions{Interrupted: park, MaxAttempts: 8})
	}
	on("once", w.atMostOnce, onceq.JobOptions{Interrupted: dedupe.Park, Timeout: 20 * time.Second})
	on("steps", w.steps, onceq.JobOptions{MaxAttempts: 12})
	on(due, w.inTime, onceq.JobOptions{MaxAttempts: -1})
	bulk := func(typ string, f func(m *Machine, js []*onceq.Job) []error, o onceq.JobOptions) {
		o.Backoff = quick
		mux.On(typ, onceq.Bulk(onceq.BulkOptions{Max: m.slots(bulkMax), Linger: 2 * time.Second, Divide: w.divides}, func(ctx context.Context, js []*onceq.Job) []error {
			w.count("bulks")
			return w.together(ctx, m, js, f)
		}), &o)
	}
	bulk("tx-bulk", w.allCommit, onceq.JobOptions{MaxAttempts: 8})
	bulk("bulk-once", w.allOnce, onceq.JobOptions{Interrupted: dedupe.Park, MaxAttempts: 8})
	return mux
}

// noteStart notes a start, and checks that there may be one.
func (w *world) noteStart(m *Machine, j *onceq.Job) {
	k := j.Key().Key
	w.book.note(k, m.name, fmt.Sprintf(" starts it, attempt %d, fence %d", j.Attempt, j.Fence()))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts[k]++
	m.running++
	if d := w.due[k]; time.Until(d) > max(0, m.ahead) {
		w.wrongLocked(k, "starts %v before its time, by a clock that is ahead by %v", time.Until(d), m.ahead)
	}
	if again := w.begun[k] == j.Fence(); !again { // a Bulk may divide a call after its pause
		w.checkOrders(m, j)
	}
	w.begun[k] = j.Fence()
}

// noteEnd takes the jobs off the machine.
func (w *world) noteEnd(m *Machine, js ...*onceq.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.running -= len(js)
}

// work is how most handlers begin. It takes some time, and may end in any way before anything has
// happened.
func (w *world) work(ctx context.Context, m *Machine) error {
	if err := w.pass(ctx, m); err != nil {
		return err
	}
	switch w.n(12) {
	case 0:
		return rig.ErrBoom
	case 1:
		return onceq.RetryAfter(w.draw(5*time.Second), rig.ErrBoom)
	case 2:
		burst("before")
	case 3:
		if w.n(4) == 0 {
			return onceq.Permanent(rig.ErrBoom)
		}
	}
	return nil
}

// pass takes some time.
func (w *world) pass(ctx context.Context, m *Machine) error {
	if d := w.draw(20 * time.Second); w.n(4) > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	} else {
		rig.Takes(d) // deaf to its context
	}
	m.Stands()
	return nil
}

// transaction has its effect in the store's own database, with its completion.
func (w *world) transaction(ctx context.Context, m *Machine, j *onceq.Job) error {
	if err := w.work(ctx, m); err != nil {
		return err
	}
	j.Join()
	if w.n(10) == 0 {
		return nil // it was rolled back
	}
	w.commit(m, j)
	switch w.n(6) {
	case 0:
		return rig.ErrBoom
	case 1:
		return onceq.Permanent(rig.ErrBoom)
	case 2:
		burst("after")
	}
	return nil
}

// commit is the transaction: the effect and the completion are one.
func (w *world) commit(m *Machine, j *onceq.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.complete(j) {
		w.commits[j.Key().Key]++
		w.book.note(j.Key().Key, m.name, " commits its effect")
		if r := w.record(j.Key()); r != nil && r.Token != j.Lease().Token {
			w.wrongLocked(j.Key().Key, "was completed by a stale owner, with fence %d, over fence %d", j.Fence(), r.Fence)
		}
	}
}

func (w *world) complete(j *onceq.Job) bool {
	if w.completes != nil {
		return w.completes(j)
	}
	l := j.Lease()
	if r := w.record(l.Key); r == nil || r.Status != dedupe.Claimed || r.Token != l.Token {
		return false // also where this claim has committed before, which a settlement would repeat
	}
	as, err := w.st.Settle(context.Background(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done, Retain: j.Retain()}})
	return err == nil && as[0].Err == nil && as[0].Status == dedupe.Done
}

// inTime has its effect in a transaction, and does not fail for good. It may not start before its
// time.
func (w *world) inTime(ctx context.Context, m *Machine, j *onceq.Job) error {
	if err := w.pass(ctx, m); err != nil || w.n(5) == 0 {
		return rig.ErrBoom
	}
	j.Join()
	w.commit(m, j)
	return nil
}

// atMostOnce has its effect elsewhere, without a key. Its owner chose to park the job when nobody
// knows whether the effect happened.
func (w *world) atMostOnce(ctx context.Context, m *Machine, j *onceq.Job) error {
	if err := w.work(ctx, m); err != nil {
		return err
	}
	w.elsewhere(m, j)
	if w.n(8) == 0 {
		burst("after")
	}
	return nil
}

func (w *world) elsewhere(m *Machine, j *onceq.Job) {
	w.book.note(j.Key().Key, m.name, " has its effect")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outside[j.Key().Key]++
}

// together is how jobs of one batch begin. They may all fail in any way before anything has
// happened.
func (w *world) together(ctx context.Context, m *Machine, js []*onceq.Job, f func(*Machine, []*onceq.Job) []error) []error {
	for _, j := range js {
		w.noteStart(m, j)
	}
	defer w.noteEnd(m, js...)
	err := w.pass(ctx, m)
	switch w.n(10) {
	case 0:
		burst("before")
	case 1:
		err = onceq.RetryAfter(w.draw(5*time.Second), rig.ErrBoom)
	case 2, 3:
		err = rig.ErrBoom
	}
	if err == nil {
		return f(m, js)
	}
	errs := make([]error, len(js))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (w *world) allCommit(m *Machine, js []*onceq.Job) []error {
	errs := make([]error, len(js))
	for i, j := range js {
		j.Join()
		switch w.n(8) {
		case 0:
			continue // it was rolled back
		case 1:
			errs[i] = rig.ErrBoom
		case 2:
			errs[i] = onceq.Permanent(rig.ErrBoom)
		}
		w.commit(m, j)
	}
	if w.n(8) == 0 {
		burst("after")
	}
	return errs
}

// allOnce has the effects of some of the jobs; the others' errors say that nothing has happened.
func (w *world) allOnce(m *Machine, js []*onceq.Job) []error {
	errs := make([]error, len(js))
	for i, j := range js {
		if w.n(8) == 0 {
			errs[i] = rig.ErrBoom
			continue
		}
		w.elsewhere(m, j)
	}
	if w.n(8) == 0 {
		burst("after")
	}
	return errs
}

// steps has an effect in each of its steps, with a key of its own, and sleeps and postpones itself
// in between. What a step has saved once is what each later run gets, also after a crash and a
// replay.
func (w *world) steps(ctx context.Context, m *Machine, j *onceq.Job) error {
	if err := w.work(ctx, m); err != nil {
		return err
	}
	for i, name := range stepNames {
		v, err := onceq.Step(ctx, j, name, func(context.Context) (int, error) {
			if w.n(8) == 0 {
				return 0, rig.ErrBoom
			}
			w.mu.Lock()
			w.charged[j.EffectKey(name)] = true
			w.mu.Unlock()
			return w.n(1 << 30), nil
		})
		if err != nil {
			return err
		}
		w.saved(j.Key().Key, name, v)
		switch {
		case i == 0 && strings.HasSuffix(j.Key().Key, "3"):
			if err := onceq.Sleep(ctx, j, "nap", 3*time.Minute); err != nil {
				return err
			}
		case w.n(12) == 0:
			return onceq.Postpone(w.draw(90*time.Second), rig.ErrBoom)
		}
	}
	return nil
}

func (w *world) saved(k, name string, v int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := k + "/" + name
	if was, ok := w.values[at]; ok && was != v {
		w.wrongLocked(k, "has saved %s as %d, and a later run got %d", name, was, v)
	}
	w.values[at] = v
}

var stepNames = []string{"charge", "book", "mail"}

// burst is a handler that panics.
func burst(what string) {
	panic(what) // invariant: a world has drawn it
}
