package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/jointctx"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns Bulk: how jobs gather in their slots, who runs the user's function, and what
// each job gets of its answer. Each job's Handle is called in the goroutine of its slot, and waits
// there. Who runs the function is the last job of a batch, its timer, or a goroutine that a change
// of a flow has started. h.mu guards the batch that still takes jobs; flows are asked under it, and
// nobody asks a batch under a flow's lock. It is let go before the function runs; closing done
// hands over the answers.

// The defaults and bounds of [BulkOptions].
const (
	defaultBatchMax    = 100
	defaultBatchLinger = 50 * time.Millisecond

	mostBatch  = 10_000
	mostLinger = time.Minute
)

// BulkOptions say when a batch of [Bulk] begins. The zero value is usable.
type BulkOptions struct {
	// Max is how many jobs a batch has at the most. Default 100; 1 to 10,000. The Concurrency of
	// each Worker must be as high, because each job of a batch has a slot. Two or three times as
	// high lets the next batch gather while one runs.
	Max int
	// Linger is how long the first job of a batch waits for others. Default 50 ms; 1 ms to 1 min.
	// A batch does not wait when it is full, when it has as many jobs as an operator's limit lets
	// run, or when its worker stops or pauses. A job with a Timeout, or with another deadline,
	// waits for half of its time at the longest.
	//
	// Of a group only one job is in a batch. So a queue with one busy group does one job each
	// Linger: keep it short there.
	Linger time.Duration
	// Divide has f called again where it has failed for all jobs of a call: where it has panicked,
	// or answered an error for each. f then gets one half of them, then the other, and so on by
	// halves, until each job that fails has failed alone. So one bad row costs the others of its
	// batch no attempt, and makes no dead letters of them. Default: f is called once.
	//
	// All that is one attempt of each job, so f must bear being called again for a job that it has
	// answered an error for, as by another attempt. One bad job among 100 costs some 14 calls more.
	// The time of a Timeout, a drain and a heartbeat goes on. f is not called again
	//
	//   - for a job under dedupe.Park, where f has panicked or its error is [Unknown]: nobody knows
	//     whether the job's effect has happened;
	//   - for a job whose error is [RetryAfter], or a context's, because f asks for time or hangs;
	//   - for a job whose context has ended;
	//   - where six calls more have failed for all of their jobs, and none has not: what f needs is
	//     away, and the jobs come again. Where one of the jobs has no attempt left, f goes on, with
	//     at most twice as many calls as there are jobs.
	Divide bool
}

func (o BulkOptions) filled() BulkOptions {
	if o.Max == 0 {
		o.Max = defaultBatchMax
	}
	if o.Linger == 0 {
		o.Linger = defaultBatchLinger
	}
	return o
}

func (o BulkOptions) check() error {
	switch {
	case o.Max < 1 || o.Max > mostBatch:
		return badConfig("BulkOptions.Max", "%d is not within 1 and %d", o.Max, mostBatch)
	case durations.IsBare(o.Linger):
		return badConfig("BulkOptions.Linger", "%s", durations.AskUnit(o.Linger))
	case o.Linger < durations.Least || o.Linger > mostLinger:
		return badConfig("BulkOptions.Linger", "%v is not within %v and %v", o.Linger, durations.Least, mostLinger)
	}
	return nil
}

// Bulk is a Handler whose f does many jobs at once, as with one statement for a hundred rows.
// Each job waits in its slot until its batch is full, or its Linger is over. Then f gets the jobs
// of the batch, in the order they came, and is called from several goroutines at a time.
//
// f answers by position: the error at i is that of js[i], with the meaning it has for every
// Handler, [Permanent], [RetryAfter] and [Unknown] included. f may sort js. A nil slice says that
// all jobs are done. Where the slice is not nil and not as long as js, or where f panics, nobody
// knows which jobs are done: each gets an error of class "panic", and is parked under dedupe.Park.
//
// ctx has the values of the first job's context. It ends when the contexts of all jobs in js have
// ended, with the last one's cause: a Timeout, or a lost lease, of one job does not cut off the
// others. When a worker drains, all of them end at the end of its DrainTimeout. A job that was cut
// off alone is still among js; what f completes of it is refused by its token where its claim was
// lost, and counts otherwise.
//
// A job is left out before f begins when its context has ended, when its claim is nearly over, or
// when its worker has stopped or paused. It is handed back, and its attempt does not count. A
// worker that stops or pauses ends the gathering at once.
//
// Under dedupe.Park the start of a job is recorded when its batch begins, in one call for all of
// them. So a job whose worker dies while it gathers is not parked. Under a middleware, of [Chain]
// or [Mux.Use], its start is recorded before the middleware, because that may have an effect, too.
// The same is true in any other wrapping.
//
// A group has one job in a batch at most, so that its order is kept. In a call of [Do] the one job
// is the batch. Workers may share a Bulk. Give it to a Processor bare, in a [Mux], or in a
// [Chain]: what is wrong with the options, and a Worker's Concurrency below Max, is a
// *[ConfigError] then. In any other wrapping, each job fails because of wrong options, and a WARN
// tells of the Concurrency. A nil f makes a nil Handler.
//
// A statement that fails for all rows because of one fails all of their jobs: see
// [BulkOptions.Divide]. Without it, leave MaxAttempts well above 1, because the jobs only part
// where their next attempts come in other batches.
func Bulk(o BulkOptions, f func(ctx context.Context, js []*Job) []error) Handler {
	if f == nil {
		return nil
	}
	o = o.filled()
	return &bulk{o: o, f: f, err: o.check()}
}

// bulk is the Handler that Bulk and Forward make.
type bulk struct {
	o     BulkOptions
	f     func(ctx context.Context, js []*Job) []error
	err   error  // what is wrong with it; NewProcessor answers it
	relay *relay // of a Forward; nil = the user's

	warned atomic.Bool // of too few slots

	mu   sync.Mutex
	open *gathering // it takes jobs; nil = the next job begins another
}

// gathering is one batch. h.mu guards it until it is taken from h.open; then who has taken it.
type gathering struct {
	h         *bulk
	jobs      []*Job
	ctxs      []context.Context // of the jobs
	flows     []*flow           // that the jobs came by
	boundless bool              // a job came by none
	timer     *time.Timer
	at        time.Time // when it fires

	done chan struct{} // closed when errs is complete
	errs []error       // by position in jobs
	cut  map[int]bool  // whose context had ended when f answered for them; nil = nobody's
}

func (h *bulk) mistake() error  { return h.err }
func (h *bulk) relayTo() *relay { return h.relay }
func (h *bulk) waits() bool     { return true }

// slots is what a full batch takes. The batches of a Forward may be smaller.
func (h *bulk) slots() int {
	if h.relay != nil {
		return 0
	}
	return h.o.Max
}

// Handle waits for the job's batch.
func (h *bulk) Handle(ctx context.Context, j *Job) error {
	if h.err != nil {
		return h.err
	}
	h.askForSlots(j)
	b, at, full := h.join(ctx, j)
	if full {
		b.begin()
	} else {
		<-b.done
	}
	return b.errs[at]
}

// join puts a job into the open batch. Where that is full then, the caller has taken it, and runs
// it.
func (h *bulk) join(ctx context.Context, j *Job) (b *gathering, at int, full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b = h.open; b == nil {
		b = &gathering{h: h, done: make(chan struct{})}
		h.open = b
	}
	b.addRoomOf(j)
	at, most := len(b.jobs), b.most()
	if b.jobs == nil {
		b.jobs, b.ctxs = make([]*Job, 0, most), make([]context.Context, 0, most)
	}
	b.jobs, b.ctxs = append(b.jobs, j), append(b.ctxs, ctx)
	if b.waitsForNobody() {
		b.takeBatch()
		return b, at, true
	}
	b.tick(ctx)
	return b, at, false
}

// addRoomOf notes by what flow a job comes. A Job that a test has made comes by nothing.
func (b *gathering) addRoomOf(j *Job) {
	if j.r == nil {
		b.boundless = true
		return
	}
	f := j.r.Flow()
	if slices.Contains(b.flows, f) {
		return
	}
	b.flows = append(b.flows, f)
	f.Watch(b)
}

// most is how many jobs the batch can have now. A batch that has them all would linger for nothing.
// An operator's limit makes it fewer, and may come, go and change while the batch gathers.
func (b *gathering) most() int {
	if b.boundless {
		return b.h.o.Max
	}
	room := 0
	for _, f := range b.flows {
		room += f.SlotsNow()
	}
	return min(b.h.o.Max, room)
}

// waitsForNobody reports whether the batch is to begin at once: nobody else can come, or a flow has
// stopped or paused, and its jobs are to be handed back.
func (b *gathering) waitsForNobody() bool {
	return len(b.jobs) >= b.most() || slices.ContainsFunc(b.flows, func(f *flow) bool { return !f.IsOpen() })
}

// takeBatch makes the batch take no more jobs. The caller begins it, and holds h.mu.
func (b *gathering) takeBatch() {
	b.h.open = nil
	if b.timer != nil {
		b.timer.Stop()
	}
}

// FlowChanged begins the batch where it waits for nobody any more. It does so in a goroutine of its
// own, because the user's function may run in it.
func (b *gathering) FlowChanged() {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if b.h.open == b && b.waitsForNobody() {
		b.takeBatch()
		go b.begin()
	}
}

// askForSlots tells of too few slots, where nobody could see the Bulk when the Worker was made.
// It is called before the job joins, so that a Logger that blocks holds up no batch.
func (h *bulk) askForSlots(j *Job) {
	if j.r == nil || h.relay != nil || h.warned.Load() {
		return
	}
	f := j.r.Flow()
	slots := f.Slots()
	if w, ok := f.Host.(*workerHost); ok && slots < h.o.Max && !h.warned.Swap(true) {
		w.log.LogAttrs(f.Terms.Base, slog.LevelWarn, "onceq: WorkerConfig.Concurrency is below the Max of a Bulk handler: no batch can be full",
			slog.Int("concurrency", slots), slog.Int("max", h.o.Max))
	}
}

// tick sets the timer for the first job, and earlier for a job that has little time.
func (b *gathering) tick(ctx context.Context) {
	wait := b.h.o.Linger
	if end, ok := ctx.Deadline(); ok {
		wait = max(1, min(wait, time.Until(end)/2))
	}
	at := time.Now().Add(wait)
	switch {
	case b.timer == nil:
		b.timer = time.AfterFunc(wait, b.lingered)
	case at.Before(b.at):
		b.timer.Reset(wait)
	default:
		return
	}
	b.at = at
}

func (b *gathering) lingered() {
	b.h.mu.Lock()
	mine := b.h.open == b
	if mine {
		b.takeBatch()
	}
	b.h.mu.Unlock()
	if mine {
		b.begin()
	}
}

// begin has the user's function called for the jobs that may still begin, and answers all.
func (b *gathering) begin() {
	defer close(b.done)
	for _, f := range b.flows {
		f.Unwatch(b)
	}
	b.errs = make([]error, len(b.jobs))
	at := b.leaveOut()
	if b.h.o.Divide {
		b.divide(at)
		return
	}
	b.callUser(at)
}

// callUser calls the user's function for the jobs at these places, or for all where at is nil, and
// answers them.
func (b *gathering) callUser(at []int) {
	js, ctxs := b.jobs, b.ctxs
	if at != nil {
		js, ctxs = make([]*Job, len(at)), make([]context.Context, len(at))
		for n, i := range at {
			js[n], ctxs[n] = b.jobs[i], b.ctxs[i]
		}
	}
	if len(js) == 0 {
		return
	}
	ctx := ctxs[0]
	if len(ctxs) > 1 {
		joint := jointctx.New(ctxs)
		defer joint.Close()
		ctx = joint
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			b.broke(at, "panic: %v\n%s", v, debug.Stack())
		} else {
			b.broke(at, "the handler ended its goroutine (runtime.Goexit)")
		}
	}()
	own := slices.Clone(js) // f may sort it
	errs := b.h.f(ctx, own)
	returned = true
	switch {
	case errs == nil:
	case len(errs) != len(js):
		b.broke(at, "onceq: the function of a Bulk handler answered %d errors for %d jobs; it must answer one for each, or a nil slice", len(errs), len(js))
	case !b.answer(at, js, own, errs):
		b.broke(at, "onceq: the function of a Bulk handler has changed js, so that nobody knows whose its errors are; it may sort js, and do no more")
	}
}

// answer gives each job its error: errs is in the order of own, which is js as f has left it. It
// reports whether each of js is still there, once.
func (b *gathering) answer(at []int, js, own []*Job, errs []error) bool {
	sorted := !slices.Equal(own, js)
	places := make(map[*Job]int)
	if sorted {
		for n, j := range js {
			places[j] = n
		}
	}
	for n, err := range errs {
		if sorted {
			place, there := places[own[n]]
			if !there {
				return false
			}
			delete(places, own[n])
			n = place
		}
		if at != nil {
			n = at[n]
		}
		b.errs[n] = err
	}
	return true
}

// leaveOut answers the jobs that must not begin any more, as the engine does before a handler. at
// are the places of the others; nil = no job is left out.
func (b *gathering) leaveOut() (at []int) {
	left := b.askWhoBegins()
	if b.confirmStarts() {
		left = b.askWhoBegins() // the confirmation may have taken long
	}
	if left == 0 {
		return nil
	}
	at = make([]int, 0, len(b.jobs)-left)
	for i, err := range b.errs {
		if err == nil {
			at = append(at, i)
		}
	}
	return at
}

// askWhoBegins answers the jobs that must not begin any more, and counts all that are answered.
func (b *gathering) askWhoBegins() (left int) {
	for i, j := range b.jobs {
		switch ctx := b.ctxs[i]; {
		case b.errs[i] != nil:
		case ctx.Err() != nil:
			b.errs[i] = &verdict.NotBegunError{Err: fmt.Errorf("onceq: its batch had not begun when its context ended: %w", context.Cause(ctx))}
		case j.r != nil && !j.r.MayBegin():
			b.errs[i] = &verdict.NotBegunError{Err: errNotBegun}
		default:
			continue
		}
		left++
	}
	return left
}

// confirmStarts has the starts recorded of the jobs under Park that are about to begin, and answers
// those whose start is not confirmed. It reports whether there were any.
func (b *gathering) confirmStarts() bool {
	var rs []*run
	var at []int
	for i, j := range b.jobs {
		if b.errs[i] == nil && j.r != nil && j.r.Opts.StartsLater && j.r.Opts.Policy == dedupe.Park {
			rs, at = append(rs, j.r), append(at, i)
		}
	}
	for n, err := range engine.ConfirmStarts(rs) {
		if err != nil {
			b.errs[at[n]] = &verdict.NotBegunError{Err: verdict.Classed(verdict.Unconfirmed, "onceq: its batch had not begun when the store was asked to record its start: %w", err)}
		}
	}
	return len(rs) > 0
}

var errNotBegun = verdict.Classed(verdict.Unconfirmed, "onceq: its batch had not begun when its worker stopped, or its claim was nearly over")

// broke answers the jobs at these places, or all where at is nil, when nobody knows what f has done
// of them.
func (b *gathering) broke(at []int, format string, args ...any) {
	err := Unknown(verdict.Classed(verdict.Panicked, format, args...))
	for i := range b.errs {
		if at == nil || slices.Contains(at, i) {
			b.errs[i] = err
		}
	}
}

// This part owns BulkOptions.Divide: how a call that failed for all of its jobs is divided. The
// goroutine that has taken the batch calls divide. Each call of the user's function has a goroutine
// of its own, because it may end that. There is no lock.

// wholeParts is how many parts may fail as a whole before one does not: both halves, and all
// quarters.
const wholeParts = 6

// divide calls the user's function for the jobs at these places, or for all where at is nil, and
// where that fails for all of them, for parts of them. It goes by levels, both halves before a
// quarter. So the parts without a bad job are done early, and an outage shows early.
func (b *gathering) divide(at []int) {
	if at == nil {
		at = make([]int, len(b.jobs))
		for i := range at {
			at[i] = i
		}
	}
	failed, some := 0, false
	for parts := [][]int{at}; len(parts) > 0; parts = parts[1:] {
		part := parts[0]
		if failed > 0 {
			part = b.repeatable(part)
		}
		if len(part) == 0 || failed > wholeParts && !some && !b.isLastTry(part) {
			continue
		}
		b.callApart(part)
		if !b.hasFailed(part) {
			some = true
			continue
		}
		failed++
		if n := len(part) / 2; n > 0 {
			parts = append(parts, part[:n], part[n:])
		}
	}
}

// callApart is callUser in a goroutine of its own.
func (b *gathering) callApart(part []int) {
	for _, i := range part {
		b.errs[i] = nil
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.callUser(part)
	}()
	<-over
	for _, i := range part {
		if b.ctxs[i].Err() != nil { // its error may be the end of its context in other words
			if b.cut == nil {
				b.cut = make(map[int]bool)
			}
			b.cut[i] = true
		}
	}
}

// hasFailed reports whether each of these jobs was answered an error.
func (b *gathering) hasFailed(part []int) bool {
	for _, i := range part {
		if b.errs[i] == nil {
			return false
		}
	}
	return true
}

// repeatable are those of the jobs, all of which have failed, for which the function may be called
// again.
func (b *gathering) repeatable(part []int) (again []int) {
	for _, i := range part {
		err, parks := b.errs[i], b.parks(i)
		var unknown *verdict.UnknownError
		var later *verdict.RetryError
		switch {
		case parks && errors.As(err, &unknown), errors.As(err, &later):
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		case b.ctxs[i].Err() == nil:
			again = append(again, i)
		case parks && !b.cut[i] && errors.Is(context.Cause(b.ctxs[i]), verdict.ErrDraining):
			// The function has said that nothing happened, and said so before the context ended.
			// Otherwise the end of the context would leave that open, and park the job.
			b.errs[i] = &verdict.NotBegunError{Err: fmt.Errorf("onceq: it failed with its whole batch, and its context ended before it was tried in a smaller one: %w", err)}
		}
	}
	return again
}

func (b *gathering) parks(i int) bool {
	r := b.jobs[i].r
	return r != nil && r.Opts.Policy == dedupe.Park && r.Fence != 0
}

// isLastTry reports whether one of the jobs has no attempt left.
func (b *gathering) isLastTry(part []int) bool {
	for _, i := range part {
		if r := b.jobs[i].r; r != nil && r.Opts.Most > 0 && r.Attempt >= r.Opts.Most {
			return true
		}
	}
	return false
}
