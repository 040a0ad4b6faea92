//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/steps"
)

// This file owns a worker process of the mode steps. It asks at each gap whether it may go on, and
// the test lets it, or kills it there.

// stepsVariable makes the test binary a worker of the mode steps.
const stepsVariable = "ONCEQ_CHAOS_STEPS"

// walk is what such a worker is told.
type walk struct {
	place
	Name            string
	Store, Database string
	Gate            string // the test's server
}

// The steps of each job, and the types of jobs.
var stepNames = []string{"charge", "mail", "book"}

const (
	typeRerun  = "rerun"
	typeParked = "parked"
	typeSleeps = "sleeps" // between the second step and the third
	typeFails  = "fails"  // for good, at the first time behind the second step
)

// The gaps: before a step, in its function before and behind the effect, before its save and behind
// the answer; and the same of the settlement.
const (
	gapBefore, gapIn, gapDid, gapSaving, gapSaved = "before", "in", "did", "saving", "saved"
	gapSettling, gapSettled                       = "settling", "settled"
	// No trap is in these: a call of the store begins, and a save was refused.
	gapCalls, gapRefused = "calls", "refused"
)

// The test's answers.
const (
	answerFail  = "fail"  // the job fails here
	answerArmed = "armed" // the job's trap is behind the call that begins
)

// ask waits at a gap of the handler's.
func (a *walk) ask(key, step, gap string, fence uint64, effectKey string) (answer string) {
	return a.send(url.Values{"key": {key}, "step": {step}, "gap": {gap}, "fence": {fmt.Sprint(fence)}, "effect": {effectKey}})
}

// askCall waits at a gap of a call of the store. armed is what it answered when the call began.
func (a *walk) askCall(key, step, gap string, armed bool) bool {
	q := url.Values{"key": {key}, "step": {step}, "gap": {gap}}
	if armed {
		q.Set(answerArmed, "")
	}
	return a.send(q) == answerArmed
}

func (a *walk) send(q url.Values) (answer string) {
	q.Set("worker", a.Name)
	res, err := http.Get(a.Gate + "?" + q.Encode())
	if err != nil {
		fmt.Fprintln(os.Stderr, a.Name, err)
		os.Exit(1) // the test has ended
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return string(text)
}

// gated is the store, which asks before and behind each save and each settlement. The jobs of one
// call ask at once: none waits for what befalls the worker at another's gap.
type gated struct {
	dedupe.Store
	a *walk
}

func (g *gated) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	names, armed := make([]string, len(rs)), make([]bool, len(rs))
	g.each(rs, func(i int) {
		if f, err := steps.Decode(rs[i].State); err == nil {
			names[i] = f.Last()
		}
		g.a.askCall(rs[i].Key.Key, names[i], gapSaving, false)
	})
	g.each(rs, func(i int) { armed[i] = g.a.askCall(rs[i].Key.Key, names[i], gapCalls, false) })
	as, err := g.Store.Renew(ctx, rs)
	g.each(rs, func(i int) {
		one := err
		if one == nil {
			one = as[i].Err
		}
		switch {
		case one == nil || armed[i] && !isRefusal(one) && g.isKept(ctx, &rs[i], names[i]):
			g.a.askCall(rs[i].Key.Key, names[i], gapSaved, armed[i])
		case armed[i]:
			g.a.askCall(rs[i].Key.Key, names[i], gapRefused, true)
		}
	})
	return as, err
}

// each calls f for the saves among the renewals, at once.
func (g *gated) each(rs []dedupe.Renewal, f func(i int)) {
	var all sync.WaitGroup
	for i := range rs {
		if rs[i].State != nil {
			all.Go(func() { f(i) })
		}
	}
	all.Wait()
}

// isRefusal reports whether the error says that the save has not happened, and never will.
func isRefusal(err error) bool {
	return errors.Is(err, dedupe.ErrLeaseLost) || errors.Is(err, dedupe.ErrResultSize) || errors.Is(err, dedupe.ErrBadRequest)
}

// isKept finds out what has become of a save whose answer does not tell. One that was kept does not
// happen again, so this is the only time that its job is in the gap behind it.
func (g *gated) isKept(ctx context.Context, r *dedupe.Renewal, step string) bool {
	for ; ; <-time.After(hold / 10) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*hold)
		as, err := g.Store.Renew(ctx, []dedupe.Renewal{*r})
		if err == nil {
			err = as[0].Err
		}
		var rec []*dedupe.Record
		if errors.Is(err, dedupe.ErrLeaseLost) { // nothing comes after this, and it may have come before
			rec, err = g.Store.Get(ctx, []dedupe.Key{r.Key})
		}
		cancel()
		switch {
		case isRefusal(err):
			return false
		case err != nil:
			continue
		case rec == nil:
			return true
		case rec[0] == nil:
			return false
		}
		f, err := steps.Decode(rec[0].State)
		if err != nil {
			return false
		}
		_, has, _ := f.Get(step)
		return has || rec[0].Status == dedupe.Done
	}
}

func (g *gated) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	armed := make([]bool, len(ss))
	each := func(gap string) {
		var all sync.WaitGroup
		for i, s := range ss {
			all.Go(func() { armed[i] = g.a.askCall(s.Key.Key, "", gap, armed[i]) })
		}
		all.Wait()
	}
	each(gapSettling)
	each(gapCalls)
	as, err := g.Store.Settle(ctx, ss)
	each(gapSettled)
	return as, err
}

// workSteps is a worker process.
func workSteps(ctx context.Context, a walk) error {
	books, err := openBooks(ctx, a.Store, a.Database)
	if err != nil {
		return err
	}
	defer books.close()
	queue, dead, err := a.open(ctx)
	if err != nil {
		return err
	}
	var mux onceq.Mux
	mux.OneScope()
	for _, typ := range []string{typeRerun, typeParked, typeSleeps, typeFails} {
		o := &onceq.JobOptions{MaxAttempts: -1, Backoff: func(int, error) time.Duration { return 0 }}
		if typ == typeParked {
			o.Interrupted = dedupe.Park
		}
		mux.On(typ, &stepper{&a, books}, o)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &mux, Store: &gated{books.store(), &a}, Scope: scope, Owner: a.Name, Lease: hold,
		// An error of the store is what the test brings about, and its letters say the rest.
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 2, Visibility: a.Service.visibility()})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

type stepper struct {
	a     *walk
	books books
}

var errFails = errors.New("no such customer")

// Handle lets the effects happen, whatever has become of the lease meanwhile. A step's value is the
// fence under which it ran.
func (h *stepper) Handle(ctx context.Context, j *onceq.Job) error {
	key, fence := j.Key().Key, j.Fence()
	var got []string
	for i, name := range stepNames {
		if h.a.ask(key, name, gapBefore, fence, "") == answerFail {
			return onceq.Permanent(errFails)
		}
		if i == 2 && j.Message.Meta.Type == typeSleeps {
			if err := onceq.Sleep(ctx, j, "nap", 2*hold); err != nil {
				return err
			}
		}
		v, err := onceq.Step(ctx, j, name, func(ctx context.Context) (uint64, error) {
			h.a.ask(key, name, gapIn, fence, j.EffectKey(name))
			if err := h.books.note(context.WithoutCancel(ctx), key+"/"+name, fence); err != nil {
				return 0, onceq.Unknown(err)
			}
			h.a.ask(key, name, gapDid, fence, "")
			return fence, nil
		})
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprint(v))
	}
	return j.SetResult([]byte(strings.Join(got, " ")))
}
