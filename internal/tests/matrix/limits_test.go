package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/storecall"
	"github.com/onceq/onceq/limit"
	"github.com/onceq/onceq/onceqtest"
)

// This file owns the cells of limits: each call of a worker whose jobs are limited by all
// processes, those of the limit too, gone wrong in each way.

// The limit of each kind is one: one start in a window, which is longer than a claim holds, and one
// job at once.
const limitedWindow = 40 * time.Second

var limitKinds = map[string]func(s dedupe.Store) (onceq.Middleware, error){
	"slots": func(s dedupe.Store) (onceq.Middleware, error) { return limit.Slots(s, "db", 1) },
	"shared": func(s dedupe.Store) (onceq.Middleware, error) {
		l, err := limit.Shared(s, "api", 1, limitedWindow)
		return limit.Middleware(l, nil), err
	},
}

// repeats is how many calls in a row go wrong, so that a limit or a scheduler gives its call up.
const repeats = 12

// limitedKeys are the jobs of a cell.
var limitedKeys = []string{"order-1", "order-2", "order-3"}

// rivals are the jobs of the other process.
const rivals = 4

// turn is one run of a handler.
type turn struct {
	by         *worker
	key        string
	begun, end time.Time
}

// turns are those of a cell.
type turns struct {
	mu  sync.Mutex
	all []turn
}

// TestLimits is the crash matrix with limits. Never more begin, or run at once, than the limit
// says; no job is counted, parked or failed that no limiter has let begin, unless its worker died;
// nothing is taken for ever; and each job keeps the promise.
func TestLimits(t *testing.T) {
	for _, b := range []*backend{memory(), sqlite()} {
		for kind := range limitKinds {
			for _, m := range []mode{completeTx, rerun, park} {
				if b.missing(m) != "" || b.transactions != (m == completeTx) {
					continue
				}
				t.Run(fmt.Sprint(b.name, "/", kind, "/", m), func(t *testing.T) {
					t.Parallel()
					b.limited(t, m, kind)
				})
			}
		}
	}
}

// limited finds the calls of a worker, and lets each go wrong.
func (b *backend) limited(t *testing.T, m mode, kind string) {
	var calls []onceqtest.Call
	b.in(t, func(t *testing.T) { calls = playLimited(t, b, m, kind, nil) })
	if t.Failed() {
		return
	}
	b.cells(t, m, few, calls, func(t *testing.T, fault *onceqtest.Fault) {
		b.in(t, func(t *testing.T) { playLimited(t, b, m, kind, fault) })
	})
}

// few leaves out what is as the first ones of its kind: one idle receive is as another.
func few(c onceqtest.Call) bool {
	beats := c.Op == onceqtest.Receive || c.Op == onceqtest.Renew || c.Op == onceqtest.Extend
	return c.N <= 2 || c.N <= 4 && !beats
}

// cells lets each call that it shall play go wrong in each way that it can.
func (b *backend) cells(t *testing.T, m mode, plays func(onceqtest.Call) bool, calls []onceqtest.Call, play func(t *testing.T, fault *onceqtest.Fault)) {
	left := b.leftOut(t)
	for i, c := range calls {
		if !plays(c) || left(i) {
			continue
		}
		wrongs := b.wrongs()
		switch c.Op {
		case onceqtest.Claim, onceqtest.Get, onceqtest.Settle: // one that fails is repeated
			wrongs = append(wrongs, wrong{"fails-on", onceqtest.Fault{Kind: onceqtest.Fail, Times: repeats}},
				wrong{"loses-replies", onceqtest.Fault{Kind: onceqtest.LoseReply, Times: repeats}})
		}
		for _, w := range wrongs {
			// A batch has one entry here. SQLite shows what a process that dies leaves behind, and
			// the memory store the rest.
			crash := w.fault.Kind == onceqtest.CrashBefore || w.fault.Kind == onceqtest.CrashAfter
			if w.cannot(b, c.Op, m) != "" || len(w.fault.Entries) > 0 || b.transactions && (!crash || c.N > 3) {
				continue
			}
			t.Run(fmt.Sprintf("%s-%d/%s", c.Op, c.N, w.name), func(t *testing.T) {
				t.Parallel()
				fault := w.fault
				fault.Op, fault.N = c.Op, c.N
				play(t, &fault)
			})
		}
	}
}

// playLimited plays a cell: a worker that has the fault, and another one where it has died, or
// stands still.
func playLimited(t *testing.T, b *backend, m mode, kind string, fault *onceqtest.Fault) []onceqtest.Call {
	w := newWorld(t, b, m, scenario{name: "limits", copies: 1})
	var ran turns
	w.handler = func(ctx context.Context, k *worker, j *onceq.Job) error { return k.turn(ctx, j, &ran) }
	w.limits = kind
	for _, key := range limitedKeys[1:] {
		if err := onceq.SendOne(t.Context(), w.queue, &broker.Outgoing{Body: []byte(key), Meta: &broker.Meta{Key: key}, Group: b.group}); err != nil {
			t.Fatal(err)
		}
	}
	first := w.first(fault)
	rivalEnds := w.rival(&ran)
	took, crashed := w.untilEmpty(first, fault)
	rivalEnds()
	if fault == nil || fault.Op != onceqtest.Settle && fault.Kind != onceqtest.Late && fault.Kind != onceqtest.Stall && !crashed {
		w.checkKept()
	}
	calls := first.Trace()
	<-time.After(b.lease + b.second)
	letters := w.dead()
	if !w.isEmpty() {
		t.Errorf("the queue is not empty after %v", took)
	}
	// A window and its use for each job. A dead process holds its place, or its block's claim, for
	// 30 s, and its job for a lease and the waits of others.
	if most := (len(limitedKeys)+rivals+3)*int(limitedWindow+limitedWindow/10) + int(2*b.lease+b.stall); int(took) > most {
		t.Errorf("it took %v, more than %v", took, time.Duration(most))
	}
	w.checkRun()
	ran.check(w, fault, crashed)
	w.checkKept()
	if t.Failed() {
		t.Logf("%v under %v: %v\n%s", fault, m, ran.all, w.tell(letters))
	}
	return calls
}

// first starts the worker that has the fault.
func (w *world) first(fault *onceqtest.Fault) *worker {
	w.Helper()
	if fault == nil {
		return w.start("A")
	}
	return w.start("A", *fault)
}

// untilEmpty waits until the queue is empty, with a second worker where the first has died, or
// stands still. Then both end.
func (w *world) untilEmpty(first *worker, fault *onceqtest.Fault) (took time.Duration, crashed bool) {
	w.Helper()
	var second *worker
	for !w.isEmpty() && time.Since(w.begun) < w.b.patience {
		if second == nil && (first.isDead() || fault != nil && fault.Kind == onceqtest.Stall && first.faulted()) {
			w.timePasses(first)
			second = w.start("B")
		}
		<-time.After(w.b.grain())
	}
	took = time.Since(w.begun)
	if fault != nil { // what is late, or stands still, is yet to come
		<-time.After(fault.Delay + w.b.second)
	}
	crashed = first.isDead()
	first.end()
	if second != nil {
		second.end()
	}
	return took, crashed
}

// rival is a process with a queue of its own, whose jobs are under the same limit. It is well.
func (w *world) rival(ran *turns) (end func()) {
	w.Helper()
	conn, err := w.db.connect(new(onceqtest.Process))
	if err != nil {
		w.Fatal(err)
	}
	limited, err := limitKinds[w.limits](conn.store)
	if err != nil {
		w.Fatal(err)
	}
	queue, err := membroker.New(nil)
	if err != nil {
		w.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "rival", Store: conn.store, Control: onceq.ControlOptions{Every: -1}, Logger: slog.New(slog.DiscardHandler),
		Handler: onceq.Chain(onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			defer ran.begin(nil, j)()
			<-time.After(w.b.second)
			return nil
		}), limited),
	})
	if err != nil {
		w.Fatal(err)
	}
	if err := onceq.Send(w.Context(), queue, make([]broker.Outgoing, rivals)); err != nil {
		w.Fatal(err)
	}
	return w.beside(p, queue, onceq.KeepInQueue, conn)
}

// beside starts a worker in which nothing goes wrong, beside that of the cell. end stops it, and
// closes its connection.
func (w *world) beside(p *onceq.Processor, queue broker.Receiver, letters broker.Sender, c *conn) (end func()) {
	w.Helper()
	run, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: letters, Pollers: 1})
	if err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := run.Run(ctx); err != nil {
			w.Error(err)
		}
	})
	return func() {
		stop()
		all.Wait()
		c.close()
	}
}

// begin notes a turn, and answers what notes its end.
func (r *turns) begin(by *worker, j *onceq.Job) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.all)
	r.all = append(r.all, turn{by: by, key: j.Key().Key, begun: time.Now()})
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all[i].end = time.Now()
	}
}

// turn is a handler that works for a second, and has its effect.
func (k *worker) turn(ctx context.Context, j *onceq.Job, ran *turns) error {
	defer ran.begin(k, j)()
	select {
	case <-time.After(k.w.b.second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if k.w.mode == completeTx {
		return k.conn.complete(ctx, k.Process, j)
	}
	err := k.Call(ctx, effect, func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		k.w.bill(apiCall{key: j.EffectKey("pay"), token: j.Lease().Token})
		return nil
	})
	if err != nil && k.w.mode == park {
		return onceq.Permanent(fmt.Errorf("in doubt: %w", err))
	}
	return err
}

// check looks at the limit, and at what has become of the jobs.
func (r *turns) check(w *world, fault *onceqtest.Fault, crashed bool) {
	w.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.all, func(a, b turn) int { return a.begun.Compare(b.begun) })
	stands := fault != nil && fault.Kind == onceqtest.Stall
	for i := 1; i < len(r.all); i++ {
		last, next := r.all[i-1], r.all[i]
		switch {
		case w.limits == "shared" && next.begun.Sub(last.begun) < limitedWindow:
			w.Errorf("%s began %v after %s, in windows of %v", next.key, next.begun.Sub(last.begun), last.key, limitedWindow)
		// Who stands still past its lease may run beside another one, until it wakes. The dead have
		// ended when they died.
		case w.limits == "slots" && last.end.After(next.begun) && (last.by == nil || !last.by.isDead()) && !stands:
			w.Errorf("%s ran beside %s", next.key, last.key)
		}
	}
	for _, key := range limitedKeys {
		rs, err := w.db.store().Get(w.Context(), []dedupe.Key{{Scope: w.db.scope(), Key: key}})
		if err != nil || rs[0] == nil {
			w.Errorf("%s is lost: %v", key, err)
			continue
		}
		runs := 0
		for _, one := range r.all {
			if one.key == key {
				runs++
			}
		}
		// A worker that has died, or has lost its claim, may not have begun.
		lost := 0
		if crashed || stands || fault != nil && fault.Kind == onceqtest.Late {
			lost = 1
		}
		switch rec := rs[0]; {
		case rec.Attempt > runs+lost:
			w.Errorf("%s: attempt %d after %d runs", key, rec.Attempt, runs)
		case rec.Status != dedupe.Done && w.mode != park:
			w.Errorf("%s is %v (%s: %s), want done", key, rec.Status, rec.ErrClass, rec.LastErr)
		case rec.Status != dedupe.Done && runs+lost == 0:
			w.Errorf("%s is %v (%s: %s), and has never begun", key, rec.Status, rec.ErrClass, rec.LastErr)
		case rec.Status == dedupe.Done && runs == 0:
			w.Errorf("%s is done, and has never begun", key)
		}
	}
	if w.mode == completeTx {
		if n, err := w.db.rows(); err != nil || n != len(limitedKeys) {
			w.Errorf("%d effects of %d jobs, %v", n, len(limitedKeys), err)
		}
	}
}

// checkRun: nobody's Run ends in an error.
func (w *world) checkRun() {
	w.Helper()
	for _, k := range w.all {
		if err := k.ran(); err != nil && !k.isDead() {
			w.Errorf("worker %s: Run: %v", k.name, err)
		}
	}
}

// checkKept: nobody holds what a limit has given.
func (w *world) checkKept() {
	w.Helper()
	rs, err := w.db.store().Get(w.Context(), []dedupe.Key{{Scope: storecall.ScopeOnce, Key: "limit/db/0"}})
	if err != nil || rs[0] != nil && rs[0].Status == dedupe.Claimed && time.Now().Before(rs[0].LeaseUntil) {
		w.Errorf("the place is taken when nobody runs: %+v, %v", rs[0], err)
	}
}
