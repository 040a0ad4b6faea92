//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/steps"
)

// This file owns the chaos of steps: each job has one gap in which its worker's process is killed,
// stopped past its lease, or drained. path.mu guards what its workers ask and are.

// deed is what befalls a worker at a gap.
type deed string

const (
	kills  deed = "kill"
	stops  deed = "stop"
	drains deed = "drain"
	fails  deed = "fail" // the handler
)

// trap is one job, and where what befalls its worker.
type trap struct {
	typ       string
	step, gap string
	deed      deed
	sprung    bool
}

func (p *trap) key() string { return strings.Join([]string{p.typ, p.step, p.gap, string(p.deed)}, "-") }

// allTraps are all of them.
func allTraps() (all []*trap) {
	for _, typ := range []string{typeRerun, typeParked} {
		for _, step := range stepNames {
			for _, gap := range []string{gapBefore, gapIn, gapDid, gapSaving, gapSaved} {
				all = append(all, &trap{typ: typ, step: step, gap: gap, deed: kills})
			}
		}
		all = append(all, &trap{typ: typ, gap: gapSettling, deed: kills}, &trap{typ: typ, gap: gapSettled, deed: kills})
	}
	for _, gap := range []string{gapBefore, gapIn, gapDid, gapSaving, gapSaved} {
		all = append(all, &trap{typ: typeRerun, step: "mail", gap: gap, deed: stops})
	}
	return append(all,
		&trap{typ: typeRerun, step: "charge", gap: gapSaved, deed: drains},
		&trap{typ: typeSleeps, step: "nap", gap: gapSaving, deed: kills},
		&trap{typ: typeSleeps, step: "nap", gap: gapSaved, deed: kills},
		&trap{typ: typeSleeps, gap: gapSettled, deed: kills}, // it is released, and asleep
		&trap{typ: typeSleeps, step: "book", gap: gapIn, deed: drains},
		&trap{typ: typeFails, step: "book", gap: gapBefore, deed: fails},
	)
}

// path is what outlives the processes.
type path struct {
	*testing.T
	a           walk
	queue, dead broker.Broker
	depth       func(context.Context) (broker.Depth, error)
	books       books

	mu     sync.Mutex
	traps  map[string]*trap
	crew   map[string]*child.Child
	calls  map[string]int // by worker: those under way with a job's trap behind them
	holds  map[string]int // by worker: stops and drains that befall it
	lives  int
	closed bool
	fences map[string]uint64          // the highest that has asked, by key
	saved  map[string]uint64          // by key and step: under which fence the store has said that it is kept
	keys   map[string]map[string]bool // the effect keys of a step
	wrong  []string
}

// walkSteps: workers are killed in each gap between two steps and within one, stopped past their
// leases, and drained. No step that the store has said to keep runs again, each job is done in the
// end with what its steps have returned, and what is parked says how far it came, and goes on from
// there when it is replayed.
func walkSteps(t *testing.T, store string, rng *rand.Rand) {
	t.Helper()
	traps := allTraps()
	if !allSteps() {
		rng.Shuffle(len(traps), func(i, j int) { traps[i], traps[j] = traps[j], traps[i] })
		traps = traps[:len(traps)/3]
	}
	newPath(t, store, traps, rng.Uint64()).walk()
}

func allSteps() bool { return proof.Asked() || *rounds > 0 }

func newPath(t *testing.T, store string, traps []*trap, seed uint64) *path {
	t.Helper()
	p := &path{
		T: t, traps: map[string]*trap{}, crew: map[string]*child.Child{}, calls: map[string]int{}, holds: map[string]int{},
		fences: map[string]uint64{}, saved: map[string]uint64{}, keys: map[string]map[string]bool{},
	}
	gate := httptest.NewServer(http.HandlerFunc(p.asked))
	p.a = walk{Store: store, Database: database(t, store), Gate: gate.URL}
	p.a.place, p.depth, _ = onSQS.serve(t, seed)
	var err error
	if p.queue, p.dead, err = p.a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.books, err = openBooks(t.Context(), store, p.a.Database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.books.close)
	if err := p.books.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ms []broker.Outgoing
	for _, trap := range traps {
		p.traps[trap.key()] = trap
		ms = append(ms, broker.Outgoing{Body: []byte("pay"), Meta: &broker.Meta{Key: trap.key(), Type: trap.typ}})
	}
	if err := onceq.Send(t.Context(), p.queue, ms); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		crew := p.crew
		p.mu.Unlock()
		for _, c := range crew {
			c.Kill()
			<-c.Done()
		}
		gate.Close()
	})
	return p
}

// asked answers a worker at a gap, when it may go on.
func (p *path) asked(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	name, key, step, gap := q.Get("worker"), q.Get("key"), q.Get("step"), q.Get("gap")
	fence, _ := strconv.ParseUint(q.Get("fence"), 10, 64)
	p.mu.Lock()
	p.note(key, step, gap, fence, q.Get("effect"))
	if q.Has(answerArmed) {
		p.calls[name]--
	}
	trap, armed := p.traps[key], false
	if trap != nil && p.crew[name] != nil {
		armed = !trap.sprung && !p.closed && trap.step == step
	}
	behind := armed && gap == gapCalls && (trap.gap == gapSaved || trap.gap == gapSettled)
	springs := armed && gap == trap.gap
	switch {
	case behind:
		p.calls[name]++
	case springs:
		trap.sprung = trap.deed != fails // that is seen by its letter
		if trap.deed == stops || trap.deed == drains {
			p.holds[name]++
		}
	}
	seen := p.fences[key]
	p.mu.Unlock()
	switch {
	case behind:
		fmt.Fprint(w, answerArmed)
	case !springs:
	case trap.deed == kills:
		// Where there is none, another job's trap has killed it while this one was in its gap, too.
		if worker := p.quiet(name, true); worker != nil {
			worker.Kill()
			delete(p.crew, name)
			p.mu.Unlock()
			<-worker.Done()
			p.start("")
			return
		}
		p.mu.Unlock()
	case trap.deed == stops:
		if worker := p.quiet(name, false); worker != nil {
			_ = worker.Signal(syscall.SIGSTOP)
		}
		p.mu.Unlock()
		// Where it has kept all others from writing, nobody takes over.
		for end := time.Now().Add(p.books.patience() + 2*hold); time.Now().Before(end) && p.highest(key) == seen; {
			<-time.After(10 * time.Millisecond)
		}
		p.release(name)
	case trap.deed == drains:
		worker := p.quiet(name, false)
		p.mu.Unlock()
		if worker == nil {
			return // the test has ended
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := worker.Drain(ctx); err != nil && !worker.Killed() {
				p.say("%s: %v", name, err)
			}
			p.start(name)
		}()
		<-time.After(hold / 10) // the drain begins
		p.release(name)
	case trap.deed == fails:
		fmt.Fprint(w, answerFail)
	}
}

// quiet waits until nothing befalls a worker that would take another job past its trap, and answers
// with p.mu held. What a call of the store has kept is not stored again, so nobody would come to
// the gap behind it. And who is killed is neither stopped nor drained any more.
func (p *path) quiet(name string, kill bool) *child.Child {
	for {
		p.mu.Lock()
		worker := p.crew[name]
		if worker == nil || p.closed || p.calls[name] == 0 && (!kill || p.holds[name] == 0) {
			return worker
		}
		p.mu.Unlock()
		<-time.After(time.Millisecond)
	}
}

// release ends a stop or a drain's beginning. The last one lets the worker go on.
func (p *path) release(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds[name]--
	if worker := p.crew[name]; worker != nil && p.holds[name] == 0 {
		_ = worker.Signal(syscall.SIGCONT)
	}
}

// note notes what a worker says. p.mu is held.
func (p *path) note(key, step, gap string, fence uint64, effectKey string) {
	if fence > 0 {
		p.fences[key] = max(p.fences[key], fence)
	}
	name := key + "/" + step
	switch gap {
	case gapSaved:
		// Who is overtaken saves nothing, so it is the latest claim's.
		p.saved[name] = p.fences[key]
	case gapIn:
		if by, is := p.saved[name]; is && fence >= by {
			p.wrong = append(p.wrong, fmt.Sprintf("%s runs under the fence %d, and was saved under %d", name, fence, by))
		}
		if p.keys[name] == nil {
			p.keys[name] = map[string]bool{}
		}
		p.keys[name][effectKey] = true
	}
}

func (p *path) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
	}
}

func (p *path) highest(key string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fences[key]
}

// start runs a worker, in the place of one that has gone, unless another stands there already.
func (p *path) start(instead string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || instead != "" && p.crew[instead] == nil {
		return
	}
	delete(p.crew, instead)
	p.lives++
	a := p.a
	a.Name = fmt.Sprintf("worker %d", p.lives)
	c, err := child.Start(self(stepsVariable, a), func(string) {})
	if err != nil {
		p.wrong = append(p.wrong, err.Error())
		return
	}
	p.crew[a.Name] = c
}

// walk lets the workers work until all traps are sprung and all jobs done.
func (p *path) walk() {
	ctx, cancel := context.WithTimeoutCause(p.Context(), roundLimit, errors.New("the jobs take too long"))
	defer cancel()
	for range workers {
		p.start("")
	}
	letters := 0
	for tries := 0; ; tries++ {
		p.settle(ctx)
		n := p.replay(ctx)
		if letters += n; n == 0 {
			break
		}
		if tries == 20 {
			p.Fatal("jobs are parked again and again")
		}
	}
	p.mu.Lock()
	for _, trap := range p.traps {
		if !trap.sprung {
			p.Errorf("%s: nobody came to its gap", trap.key())
		}
	}
	for _, wrong := range p.wrong {
		p.Error(wrong)
	}
	for step, keys := range p.keys {
		if len(keys) != 1 {
			p.Errorf("%s has the effect keys %v", step, keys)
		}
	}
	p.mu.Unlock()
	p.audit(ctx)
	p.Logf("%d jobs, %d lives of workers, %d letters replayed", len(p.traps), p.lives, letters)
}

// settle waits until the queue is empty.
func (p *path) settle(ctx context.Context) {
	p.Helper()
	for {
		depth, err := p.depth(ctx)
		if err != nil {
			p.Fatal(err)
		}
		if depth == (broker.Depth{}) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			p.Fatalf("in the queue: %+v: %v", depth, context.Cause(ctx))
		}
	}
}

// replay looks at the letters and sends them back. What stands in a letter was saved; and a parked
// job has had each effect once at most.
func (p *path) replay(ctx context.Context) int {
	p.Helper()
	q := must.Get(dlq.New(p.dead, &dlq.Options{Wait: 10 * time.Millisecond, Visibility: 2 * time.Second}))
	depth, err := p.dead.(broker.Depther).Depth(ctx)
	if err != nil {
		p.Fatal(err)
	}
	if depth == (broker.Depth{}) {
		return 0
	}
	paid, err := p.books.paid(ctx)
	if err != nil {
		p.Fatal(err)
	}
	for e, err := range q.List(ctx, dlq.Filter{}) {
		if err != nil {
			p.Fatal(err)
		}
		p.look(ctx, e, paid)
	}
	<-time.After(100 * time.Millisecond)
	if _, err := q.Replay(ctx, dlq.ReplayOptions{To: p.queue}); err != nil && !errors.Is(err, dlq.ErrIncomplete) {
		p.Fatal(err)
	}
	return 1
}

func (p *path) look(ctx context.Context, e dlq.Entry, paid map[string][]uint64) {
	p.Helper()
	key := e.Ref().Key
	r := p.record(ctx, key)
	p.mu.Lock()
	if trap := p.traps[key]; trap != nil && trap.deed == fails {
		trap.sprung = true
	}
	p.mu.Unlock()
	f, err := steps.Decode(r.State)
	if err != nil {
		p.Fatal(err)
	}
	said := e.Message.Meta.Dead
	switch trap := p.traps[key]; {
	case trap == nil || trap.typ != typeParked && trap.typ != typeFails:
		p.Errorf("%s has a letter: %+v", key, said)
	case said.Class == onceq.ClassInterrupted && trap.typ == typeFails:
		p.Errorf("%s was parked", key)
	case r.Status != dedupe.Done && r.Fence == said.Fence && strings.HasPrefix(said.LastErr, "onceq: the worker died") && said.Saved != f.Last():
		p.Errorf("%s: the letter says that %q was saved last, and the record %q", key, said.Saved, f.Last())
	}
	for _, step := range stepNames {
		fences := paid[key+"/"+step]
		slices.Sort(fences)
		if len(slices.Compact(slices.Clone(fences))) != len(fences) {
			p.Errorf("%s/%s has two effects of one claim: %v", key, step, fences)
		}
	}
}

func (p *path) record(ctx context.Context, key string) *dedupe.Record {
	p.Helper()
	rs, err := p.books.store().Get(ctx, []dedupe.Key{{Scope: scope, Key: key}})
	if err != nil {
		p.Fatal(err)
	}
	if rs[0] == nil {
		p.Fatalf("%s is lost: there is no record", key)
	}
	return rs[0]
}

// audit asks for what must hold at the end.
func (p *path) audit(ctx context.Context) {
	p.Helper()
	paid, err := p.books.paid(ctx)
	if err != nil {
		p.Fatal(err)
	}
	for key, trap := range p.traps {
		r := p.record(ctx, key)
		var values []string
		for _, step := range stepNames {
			fences := paid[key+"/"+step]
			if len(fences) == 0 {
				p.Errorf("%s/%s has not happened", key, step)
				continue
			}
			// What counts is the effect whose value was stored, which is that of the latest claim.
			values = append(values, fmt.Sprint(slices.Max(fences)))
			if trap.deed == kills && trap.step == step && (trap.gap == gapDid || trap.gap == gapSaving) && len(fences) < 2 {
				p.Errorf("%s/%s: its worker was killed before the save, and it has not run again: %v", key, step, fences)
			}
		}
		if r.Status != dedupe.Done {
			p.Errorf("%s is %v (%s: %s)", key, r.Status, r.ErrClass, r.LastErr)
		} else if got := strings.Fields(string(r.Result)); !slices.Equal(got, values) {
			p.Errorf("%s: the result is %q, want %q", key, got, values)
		}
	}
}
