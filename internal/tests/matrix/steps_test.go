package matrix

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/steps"
)

// This file owns the cells of a job that saves three steps: each call that it makes, and each save,
// gone wrong in each way, on each store.

// stepNames are the steps of the job, in their order.
var stepNames = []string{"charge", "mail", "book"}

// stepless reports whether a job that saves has no cells in the mode.
func (b *backend) stepless(m mode) bool {
	return m != effectKey && m != park || !slices.Contains([]string{"memory", "sqlite", "postgres", "dynamodb"}, b.name)
}

var leaveSteps sync.Once

// leaves reports whether a cell is left to make proof: in real time make test draws one in three.
func (b *backend) leaves(t *testing.T, cell string) bool {
	t.Helper()
	if b.virtual || os.Getenv(partVariable) == "" || proof.Asked() {
		return false
	}
	seed := proof.Seed(t)
	leaveSteps.Do(func() {
		proof.Leave(t, "internal/tests/matrix: two of three cells of steps, and of what is sent anew, on PostgreSQL and DynamoDB")
	})
	h := fnv.New64a()
	fmt.Fprint(h, seed, " ", b.name, " ", cell)
	return h.Sum64()%3 != 0
}

// handleSteps has three effects, each in a step.
func (k *worker) handleSteps(ctx context.Context, j *onceq.Job) error {
	var got []string
	for _, name := range stepNames {
		v, err := onceq.Step(ctx, j, name, func(ctx context.Context) (v string, err error) {
			err = k.Call(ctx, effect, func(ctx context.Context) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				v = k.w.bill(apiCall{j.EffectKey(name), j.Lease().Token, name})
				return nil
			})
			switch {
			case err != nil && k.w.mode == park:
				return "", onceq.Permanent(fmt.Errorf("in doubt: %w", err))
			case err != nil:
				return "", err
			}
			return v, nil
		})
		if err != nil {
			return err
		}
		got = append(got, v)
	}
	return j.SetResult([]byte(strings.Join(got, " ")))
}

// bill is a call of an API that knows its keys: it answers a key as it has done before.
func (w *world) bill(c apiCall) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
	first := slices.IndexFunc(w.calls, func(o apiCall) bool { return o.key == c.key })
	return fmt.Sprint(c.step, " ", w.calls[first].token.Hex())
}

// checkSteps: no step that is saved runs again, no claim loses what was saved before it, each step
// has one effect key, and the result is made of what the API has answered first.
func (w *world) checkSteps(rec *dedupe.Record, letters []*broker.Message) {
	w.Helper()
	w.audit.checkSaves(w)
	w.checkSaid(rec, letters)
	w.mu.Lock()
	calls := slices.Clone(w.calls)
	w.mu.Unlock()
	var want []string
	for _, name := range stepNames {
		keys, under, first := map[string]bool{}, map[dedupe.Token]int{}, ""
		for _, c := range calls {
			if c.step != name {
				continue
			}
			if first == "" {
				first = fmt.Sprint(name, " ", c.token.Hex())
			}
			keys[c.key] = true
			under[c.token]++
			if w.audit.had(w, c.token, name) {
				w.Errorf("step %q has run under a claim that came with it", name)
			}
			if under[c.token] > 1 {
				w.Errorf("step %q has run %d times under one claim", name, under[c.token])
			}
		}
		want = append(want, first)
		switch n := len(under); {
		case len(keys) > 1:
			w.Errorf("step %q has the effect keys %v", name, keys)
		case w.mode == park && n > 1:
			w.Errorf("step %q has %d effects under Park", name, n)
		case rec.Status == dedupe.Done && n == 0:
			w.Errorf("the job is done, and step %q has not happened", name)
		}
	}
	switch {
	case rec.Status == dedupe.Done && string(rec.Result) != strings.Join(want, " "):
		w.Errorf("the result is %q, want %q", rec.Result, want)
	case rec.Status == dedupe.Done && len(letters) > 0 && w.mode != park:
		w.Errorf("%d letters of a job that is done", len(letters))
	case rec.Status != dedupe.Done && w.mode != park:
		w.Errorf("the job is %v (%s: %s), want done", rec.Status, rec.ErrClass, rec.LastErr)
	case rec.Status != dedupe.Done && !w.audit.started():
		w.Errorf("the job is %v though it was never started", rec.Status)
	}
}

// checkSaid: the letter of a job that has stopped names a step that is kept. One whose worker died
// names the last of them, because its record was read. Who has waited for an answer in vain names
// what it knows.
func (w *world) checkSaid(rec *dedupe.Record, letters []*broker.Message) {
	w.Helper()
	if rec.Status == dedupe.Done {
		return
	}
	kept := append([]string{""}, names(w, rec.State)...)
	for _, m := range letters {
		switch said := m.Meta.Dead; {
		case !slices.Contains(kept, said.Saved):
			w.Errorf("the letter says that %q was saved last, and %q are kept", said.Saved, kept)
		case strings.HasPrefix(said.LastErr, "onceq: the worker died") && said.Saved != kept[len(kept)-1]:
			w.Errorf("the letter of who found the job parked says that %q was saved last, and %q are kept", said.Saved, kept)
		}
	}
}

// names are the steps of a state.
func names(w *world, state []byte) (all []string) {
	w.Helper()
	f, err := steps.Decode(state)
	if err != nil {
		w.Errorf("%q: %v", state, err)
		return nil
	}
	for _, name := range stepNames {
		if _, ok, err := f.Get(name); ok && err == nil {
			all = append(all, name)
		}
	}
	return all
}

// had reports whether the claim came with the step.
func (a *audit) had(w *world, token dedupe.Token, step string) bool {
	w.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.claims, func(c wonClaim) bool { return c.token == token })
	return i >= 0 && slices.Contains(names(w, a.claims[i].state), step)
}

// checkSaves: a claim that was asked for when a save had been answered comes with what it saved.
func (a *audit) checkSaves(w *world) {
	w.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		with := names(w, c.state)
		for _, s := range a.saves {
			for _, name := range names(w, s.state) {
				if s.given < c.asked && !slices.Contains(with, name) {
					w.Errorf("%s won fence %d without step %q, which was saved before", c.by, c.fence, name)
				}
			}
		}
	}
}
