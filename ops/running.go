package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
)

// This file owns acts in the background: who began one goes away, and the act goes on. Each act has
// a goroutine, which alone calls dlq. Running.mu guards what is told of all of them, and is held
// for no call of a queue, a store or a user's function.

// Errors of a Running.
var (
	// ErrTooMany: as many acts are under way as RunningOptions.MaxActs allows.
	ErrTooMany = errors.New("ops: too many acts are under way")
	// ErrPlanUsed: an act has begun with this plan already. Make another one.
	ErrPlanUsed = errors.New("ops: the plan has been used already: make another one")
	// ErrNoAct: no act that is remembered has this id, or it has ended.
	ErrNoAct = errors.New("ops: no such act is under way")
	// ErrNotWatched: the act watches no batch, so there is nothing to go on with.
	ErrNotWatched = errors.New("ops: the act watches no batch")
)

// RunningOptions set up a Running. The zero value, and nil, mean the defaults.
type RunningOptions struct {
	// MaxActs is how many acts may be under way at once. Default 4; 1 to 64.
	MaxActs int
	// AskFor is for how long a replay waits for somebody's word, its letters in its hands, where
	// not all jobs of a batch are done at the end of CanaryWait, and none has failed. All done, it
	// goes on by itself. At the end it ends by a [*dlq.CanaryError], as Ops.Replay does without
	// waiting. Default 15 min; < 0 = it does not wait.
	AskFor time.Duration
	// Board is the page's board of the same targets; nil = there is none. Its passes and these acts
	// keep out of each other's way: an act begins when the pass that is under way has ended, and
	// while it goes on Pass and WithLetters answer [ErrLettersBusy].
	Board *Board
	// Kept is how many acts that have ended are remembered. Default 32; 1 to 1000.
	Kept int
}

// Running does acts in the background: the request that begins one may end. An act lives as long as
// the process. Where that is killed, the act's letters come back by themselves, its audit entry has
// no end, and another plan does the rest: each job runs once. Its methods may be called from many
// goroutines.
type Running struct {
	ro   RunningOptions
	base context.Context // cuts all acts off
	cut  context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	changed chan struct{}
	acts    []*runningAct        // in the order of their beginning
	used    map[string]time.Time // plans, and when they were made
}

// RunningAct is what is known of an act in the background.
type RunningAct struct {
	// ID is the act's name in this process, which nobody can guess. Audit is that of its audit
	// entry; empty until it is written.
	ID, Audit string
	// Act is what is done, to the letters of which Queue, by which plan, by whom and why.
	Act                     dlq.Act
	Queue, Plan, By, Reason string
	// Began and Ended bound the act; Ended is zero while it is under way.
	Began, Ended time.Time
	// Letters is how many letters the plan takes. The others count what became of letters so far.
	Letters                                int
	Sent, Removed, Purged, Skipped, Failed int
	// Batches were watched to their end; the last 64. Watched is the batch that is watched, or was
	// when the act ended, as far as is known; nil = none. CanaryWait is how long it is watched.
	Batches    []dlq.Progress
	Watched    *dlq.Progress
	CanaryWait time.Duration
	// Asks says that CanaryWait is over, and that not all jobs of Watched are done. The act waits
	// for Step, for Stop, or until all are done; until AsksUntil.
	Asks      bool
	AsksUntil time.Time
	// Stopping says that Stop was called, by StoppedBy.
	Stopping  bool
	StoppedBy string
	// Report is that of an act that has ended. Of Skipped and Failed it has the first 100.
	Report dlq.Report
	// Err is why the act ended early: [dlq.ErrStopped], a [*dlq.CanaryError], a [*ConflictError],
	// [ErrNoAudit], or another one of Ops.Replay and Ops.Purge.
	Err error
}

// The bounds of what is remembered of an act.
const (
	keptBatches = 64
	keptLeft    = 100
)

// tellEvery is how often viewers are told of letters; batches and ends are told at once.
const tellEvery = 250 * time.Millisecond

// NewRunning makes a Running. It does no I/O and starts no goroutine. Close it before the queues
// and stores are closed.
func NewRunning(ro *RunningOptions) (*Running, error) {
	r := &Running{changed: make(chan struct{}), used: make(map[string]time.Time)}
	if ro != nil {
		r.ro = *ro
	}
	o := &r.ro
	o.MaxActs, o.Kept, o.AskFor = cmp.Or(o.MaxActs, 4), cmp.Or(o.Kept, 32), cmp.Or(o.AskFor, 15*time.Minute)
	switch {
	case o.MaxActs < 1 || o.MaxActs > 64:
		return nil, fmt.Errorf("ops: RunningOptions.MaxActs is %d, want 1 to 64", o.MaxActs)
	case o.Kept < 1 || o.Kept > 1000:
		return nil, fmt.Errorf("ops: RunningOptions.Kept is %d, want 1 to 1000", o.Kept)
	}
	r.base, r.cut = context.WithCancel(context.Background())
	return r, nil
}

// Replay begins a replay, as [Ops.Replay] does it, and answers its id at once. o names the person:
// see [Ops.As]. A plan is used once, in all processes that share the store. ctx bounds the checks
// alone. The plan's Spec sets neither Stop nor Watching.
//
// An error says that nothing was begun: those of [Ops.CheckReplay], [ErrTooMany], [ErrPlanUsed],
// [ErrClosed], or [control.ErrInvalid] where nobody is named, or no reason. That somebody else acts
// on the letters, or that the audit takes nothing, is told by RunningAct.Err.
func (r *Running) Replay(ctx context.Context, o *Ops, p *ReplayPlan) (id string, err error) {
	c := *p
	spec := &c.Spec
	if spec.Stop != nil || spec.Watching != nil {
		return "", fmt.Errorf("%w: ReplaySpec: Stop and Watching are set by Running itself", ErrRefused)
	}
	if err := o.CheckReplay(ctx, p); err != nil {
		return "", err
	}
	a := &runningAct{RunningAct: RunningAct{
		Act: dlq.ActReplay, Queue: spec.Queue, By: cmp.Or(spec.By, o.o.By), Reason: spec.Reason,
	}}
	if spec.Canary > 0 || spec.Ramp {
		a.CanaryWait = cmp.Or(spec.CanaryWait, dlq.DefaultCanaryWait)
	}
	if r.ro.AskFor > 0 && !spec.CanaryAny {
		a.asksFor = r.ro.AskFor
	}
	spec.Each, spec.EachBatch = a.each(spec.Each), a.eachBatch(spec.EachBatch)
	spec.Watching = a.watching
	return r.begin(o, a, p.Plan, func(ctx context.Context, o *Ops, stop <-chan struct{}) (dlq.Report, error) {
		spec.Stop = stop
		rep, _, err := o.Replay(ctx, &c)
		return rep, err
	})
}

// Purge begins a purge, as [Ops.Purge] does it. The rest is as in Replay.
func (r *Running) Purge(_ context.Context, o *Ops, p *dlq.Plan, spec PurgeSpec) (id string, err error) {
	if spec.Stop != nil {
		return "", fmt.Errorf("%w: PurgeSpec: Stop is set by Running itself", ErrRefused)
	}
	if _, _, _, err := o.purging(p, &spec); err != nil {
		return "", err
	}
	a := &runningAct{RunningAct: RunningAct{Act: dlq.ActPurge, Queue: spec.Queue, By: cmp.Or(spec.By, o.o.By), Reason: spec.Reason}}
	spec.Each = a.each(spec.Each)
	return r.begin(o, a, p, func(ctx context.Context, o *Ops, stop <-chan struct{}) (dlq.Report, error) {
		spec.Stop = stop
		rep, _, err := o.Purge(ctx, p, spec)
		return rep, err
	})
}

// begin begins an act, unless something is in its way.
func (r *Running) begin(o *Ops, a *runningAct, p *dlq.Plan, do func(ctx context.Context, o *Ops, stop <-chan struct{}) (dlq.Report, error)) (string, error) {
	switch {
	case a.By == "" || len(a.By) > maxText:
		return "", fmt.Errorf("%w: who acts has %d bytes, want 1 to %d", control.ErrInvalid, len(a.By), maxText)
	case a.Reason == "" || len(a.Reason) > maxText:
		return "", fmt.Errorf("%w: Reason has %d bytes, want 1 to %d", control.ErrInvalid, len(a.Reason), maxText)
	}
	t, err := o.target(a.Queue)
	if err != nil {
		return "", err
	}
	a.r, a.stop, a.plan = r, make(chan struct{}), p.Queue+" "+string(p.Act)+" "+p.ID+" "+strconv.FormatInt(p.Made.UnixNano(), 36)
	a.ID, a.Queue, a.Plan, a.Letters, a.Began = rand.Text(), t.Name, p.ID, p.Count(dlq.Take), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	live := 0
	for _, x := range r.acts {
		if x.Ended.IsZero() {
			live++
		}
	}
	for plan, made := range r.used {
		if time.Since(made) > 2*dlq.PlanTTL { // nobody takes it any more
			delete(r.used, plan)
		}
	}
	_, used := r.used[a.plan]
	switch {
	case r.closed:
		return "", ErrClosed
	case used:
		return "", ErrPlanUsed
	case live >= r.ro.MaxActs:
		return "", fmt.Errorf("%w: %d are", ErrTooMany, live)
	}
	r.used[a.plan] = p.Made
	r.acts = append(r.acts, a)
	r.change()
	of := *o
	of.hear = hooks{mayUse: a.mayUse, began: a.began, ended: a.ended}
	a.noAudit = o.o.NoAudit
	r.all.Go(func() {
		rep, err := a.guarded(&of, do)
		r.ended(a, &rep, err)
	})
	return a.ID, nil
}

// guarded does the act. What panics in a user's function ends the act alone.
func (a *runningAct) guarded(o *Ops, do func(context.Context, *Ops, <-chan struct{}) (dlq.Report, error)) (rep dlq.Report, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", errPanicked, v)
			if l := o.o.Logger; l != nil {
				l.Error("onceq: an act has panicked", "act", a.Act, "queue", a.Queue, "panic", v, "stack", string(debug.Stack()))
			}
		}
	}()
	leave, err := a.r.ro.Board.keepAway(a.r.base, a.Queue, a.stop)
	defer leave()
	if err != nil {
		return rep, err
	}
	return do(a.r.base, o, a.stop)
}

// ended notes the end of an act.
func (r *Running) ended(a *runningAct, rep *dlq.Report, err error) {
	for _, l := range [...]*[]dlq.Left{&rep.Skipped, &rep.Failed} {
		*l = slices.Clone((*l)[:min(len(*l), keptLeft)])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Audit == "" && !a.under { // nothing was begun
		delete(r.used, a.plan)
	}
	a.Ended, a.Report, a.Err, a.Asks = time.Now(), *rep, err, false
	n := 0
	for i := len(r.acts) - 1; i >= 0; i-- {
		if !r.acts[i].Ended.IsZero() {
			if n++; n > r.ro.Kept {
				r.acts = slices.Delete(r.acts, i, i+1)
			}
		}
	}
	r.change()
}

// change wakes all who wait. The caller holds mu.
func (r *Running) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed is closed when anything changes that Acts tells. Take it before Acts, so that no change
// is missed.
func (r *Running) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Acts are those under way, and those that ended last; of each the newest first.
func (r *Running) Acts() []RunningAct {
	r.mu.Lock()
	defer r.mu.Unlock()
	var live, ended []RunningAct
	for _, a := range slices.Backward(r.acts) {
		if a.Ended.IsZero() {
			live = append(live, a.told())
		} else {
			ended = append(ended, a.told())
		}
	}
	return append(live, ended...)
}

// Act is the act of that id; false = it is not remembered.
func (r *Running) Act(id string) (RunningAct, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.acts {
		if a.ID == id {
			return a.told(), true
		}
	}
	return RunningAct{}, false
}

// live is an act that is under way. The caller holds mu.
func (r *Running) live(id string) (*runningAct, error) {
	for _, a := range r.acts {
		if a.ID == id && a.Ended.IsZero() {
			return a, nil
		}
	}
	return nil, ErrNoAct
}

// Step is somebody's word that the batch that is watched has passed, though not all of its jobs are
// done: the act goes on with the next one. The audit has his name. The error is [ErrNoAct] or
// [ErrNotWatched].
func (r *Running) Step(id, by string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, err := r.live(id)
	switch {
	case err != nil:
		return err
	case a.Watched == nil:
		return ErrNotWatched
	case a.stepped != a.Watched.Number:
		a.stepped = a.Watched.Number
		a.steps = append(a.steps, fmt.Sprintf("batch %d by %s", a.stepped, cutTo(by, maxText/4)))
	}
	return nil
}

// Stop ends an act in order: what is being sent is sent and removed, nothing more is taken, and
// what the act holds goes back. It returns at once; the act ends with [dlq.ErrStopped] within
// seconds. The error is [ErrNoAct].
func (r *Running) Stop(id, by string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, err := r.live(id)
	if err == nil {
		a.halt(by)
	}
	return err
}

// Close stops all acts in order, and waits until they have ended, or until ctx ends: then it cuts
// them off, and their letters come back when their visibility ends. New acts are refused. The error
// is ctx's cause.
func (r *Running) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	for _, a := range r.acts {
		if a.Ended.IsZero() {
			a.halt("the end of the program")
		}
	}
	r.mu.Unlock()
	return closing(ctx, &r.all, r.cut)
}

// runningAct is an act with what only this file knows of it.
type runningAct struct {
	RunningAct
	r       *Running
	plan    string // the plan's name, so that it is used once
	stop    chan struct{}
	asksFor time.Duration
	under   bool     // its audit entry was asked for
	noAudit bool     // Options.NoAudit
	stepped int      // the batch that has passed by somebody's word
	steps   []string // such words, for the audit
	toldAt  time.Time
}

// told is a copy for callers. The caller holds mu.
func (a *runningAct) told() RunningAct {
	c := a.RunningAct
	c.Batches = slices.Clone(c.Batches)
	return c
}

// halt asks for the end. The caller holds mu.
func (a *runningAct) halt(by string) {
	if !a.Stopping {
		a.Stopping, a.StoppedBy = true, cutTo(by, maxText)
		close(a.stop)
		a.r.change()
	}
}

// each counts what became of a letter.
func (a *runningAct) each(then func(dlq.Step)) func(dlq.Step) {
	return func(s dlq.Step) {
		a.count(s.Result)
		if then != nil {
			then(s)
		}
	}
}

func (a *runningAct) count(of dlq.Result) {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	switch of {
	case dlq.Replayed:
		a.Sent++
	case dlq.Removed:
		a.Removed++
	case dlq.Purged:
		a.Purged++
	case dlq.Skipped:
		a.Skipped++
	case dlq.Failed:
		a.Failed++
	case dlq.Copied, dlq.Unchosen, dlq.Newer:
		return
	}
	if time.Since(a.toldAt) >= tellEvery {
		a.toldAt = time.Now()
		a.r.change()
	}
}

// eachBatch notes a batch that was watched to its end.
func (a *runningAct) eachBatch(then func(dlq.Progress)) func(dlq.Progress) {
	return func(b dlq.Progress) {
		a.r.mu.Lock()
		a.Watched, a.Asks = nil, false
		if len(a.Batches) == keptBatches {
			a.Batches = slices.Delete(a.Batches, 0, 1)
		}
		a.Batches = append(a.Batches, b)
		a.r.change()
		a.r.mu.Unlock()
		if then != nil {
			then(b)
		}
	}
}

// watching says whether a batch is watched any longer.
func (a *runningAct) watching(b dlq.Progress) dlq.Watch {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	defer a.r.change()
	a.Watched = &b
	switch {
	case a.stepped == b.Number:
		return dlq.GoOn
	case a.asksFor <= 0 || b.Watched >= a.CanaryWait+a.asksFor:
		return dlq.WatchToEnd
	}
	if a.Asks = b.Watched >= a.CanaryWait; a.Asks {
		a.AsksUntil = time.Now().Add(a.CanaryWait + a.asksFor - b.Watched)
	}
	return dlq.WatchOn
}

// mayUse refuses a plan that an act in any process has used. Ops calls it in its turn at the
// letters, so no other act can begin between.
func (a *runningAct) mayUse(ctx context.Context, t *target, p *dlq.Plan) error {
	if t.Store == nil {
		return nil
	}
	for e, err := range controlstore.Acts(ctx, t.Store, p.Made.Add(-time.Minute), time.Now().Add(time.Minute)) {
		switch {
		case err != nil && a.noAudit:
			return nil
		case err != nil:
			return fmt.Errorf("asking whether the plan was used: %w", err)
		case e.Object == "plan "+p.ID && e.Queue == t.known && e.Act == string(p.Act):
			return fmt.Errorf("%w (%s by %s)", ErrPlanUsed, e.ID, e.By)
		}
	}
	return nil
}

// began notes that an act begins, with the id of its audit entry.
func (a *runningAct) began(audit string) {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.Audit, a.under = audit, true
	a.r.change()
}

// ended is what the audit has of the act's end.
func (a *runningAct) ended(result map[string]string, err error) error {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if result != nil && len(a.steps) > 0 {
		result["gone on"] = cutTo(strings.Join(a.steps, ", "), maxText)
	}
	if errors.Is(err, dlq.ErrStopped) {
		err = fmt.Errorf("%w by %s", err, a.StoppedBy)
	}
	return err
}
