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
)

// ask waits at a gap. The answer says whether the job fails here.
func (a *walk) ask(key, step, gap string, fence uint64, effectKey string) (fails bool) {
	q := url.Values{"worker": {a.Name}, "key": {key}, "step": {step}, "gap": {gap}, "fence": {fmt.Sprint(fence)}, "effect": {effectKey}}
	res, err := http.Get(a.Gate + "?" + q.Encode())
	if err != nil {
		fmt.Fprintln(os.Stderr, a.Name, err)
		os.Exit(1) // the test has ended
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	return string(answer) == "fail"
}

// gated is the store, which asks before and behind each save and each settlement.
type gated struct {
	dedupe.Store
	a *walk
}

func (g *gated) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	g.each(rs, gapSaving, func(int) bool { return true })
	as, err := g.Store.Renew(ctx, rs)
	g.each(rs, gapSaved, func(i int) bool { return err == nil && as[i].Err == nil })
	return as, err
}

func (g *gated) each(rs []dedupe.Renewal, gap string, is func(i int) bool) {
	for i, r := range rs {
		if r.State == nil || !is(i) {
			continue
		}
		if f, err := steps.Decode(r.State); err == nil {
			g.a.ask(r.Key.Key, f.Last(), gap, 0, "")
		}
	}
}

func (g *gated) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	for _, s := range ss {
		g.a.ask(s.Key.Key, "", gapSettling, 0, "")
	}
	as, err := g.Store.Settle(ctx, ss)
	for _, s := range ss {
		g.a.ask(s.Key.Key, "", gapSettled, 0, "")
	}
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
		if h.a.ask(key, name, gapBefore, fence, "") {
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
