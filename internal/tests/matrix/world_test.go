package matrix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// The calls that a handler makes, beside the worker's.
const (
	effect   onceqtest.Op = "effect"   // a row in the user's table, or a call of an API
	complete onceqtest.Op = "complete" // CompleteTx
	commit   onceqtest.Op = "commit"   // the user's COMMIT
)

const scope = "matrix"

// mode is where the effect happens and what the owner has chosen: a row of the promise's table.
type mode string

const (
	completeTx mode = "complete-tx"
	effectKey  mode = "effect-key"
	rerun      mode = "rerun"
	park       mode = "park"
)

var modes = []mode{completeTx, effectKey, rerun, park}

// scenario is what there is to do.
type scenario struct {
	name string
	// Messages with the one key; the second comes while the first is worked on, or, where time is
	// dear, after it.
	copies    int
	long      bool
	retried   bool // the first run ends in an error
	permanent bool
	// held: the worker keeps in the queue what cannot be done. One attempt is all there is, and the
	// first two runs end in an error.
	held     bool
	careless bool // the handler returns nil whatever its commit said: only a transaction forgives that
	steps    bool // the handler saves three steps, each with an effect of its own
	carried  bool // the job sleeps before its effect, and its message may come once
}

// saves is how often the handler saves.
func (s scenario) saves() int {
	switch {
	case s.steps:
		return len(stepNames)
	case s.carried:
		return 1
	}
	return 0
}

var scenarios = []scenario{
	{name: "success", copies: 1},
	{name: "retry", copies: 1, retried: true},
	{name: "permanent", copies: 1, permanent: true},
	{name: "duplicate", copies: 2},
	{name: "long", copies: 1, long: true},
	{name: "held", copies: 1, retried: true, held: true},
	{name: "careless", copies: 1, careless: true},
	{name: "steps", copies: 1, steps: true},
	{name: "carried", copies: 1, carried: true},
}

// world is what outlives the processes: the queues, the database, the API.
type world struct {
	testing.TB
	b        *backend
	mode     mode
	scenario scenario

	queues queues
	ends   // nobody's
	db     database
	audit  audit

	begun time.Time
	sent  int

	// handler replaces the scenarios' own.
	handler func(ctx context.Context, k *worker, j *onceq.Job) error
	// limits is what bounds the workers' jobs: see limitKinds. "" = nothing.
	limits string

	mu       sync.Mutex
	runs     int
	calls    []apiCall
	all      []*worker
	receipts []broker.Receipt

	// put are the letters that putBack has met, and moved counts what it has sent again.
	put   []*broker.Message
	moved int
}

// apiCall is one effect at an API.
type apiCall struct {
	key   string // its idempotency key
	token dedupe.Token
	step  string // of whose it is, where the job has steps
}

// newWorld opens the database and puts the messages into the queue.
func newWorld(t testing.TB, b *backend, m mode, s scenario) *world {
	t.Helper()
	w := &world{TB: t, b: b, mode: m, scenario: s, begun: time.Now()}
	open := b.queues
	if s.carried {
		open = oneReceive
	}
	w.queues = open(t, b)
	var err error
	if w.ends, err = w.queues.connect(nil); err != nil {
		t.Fatal(err)
	}
	w.db = b.open(t)
	w.send(0)
	if b.virtual && s.copies > 1 && !b.plain {
		w.send(b.second / 4)
	}
	return w
}

// send puts a message into the queue: a copy, if it is not the first.
func (w *world) send(delay time.Duration) {
	w.Helper()
	m := broker.Outgoing{Body: []byte("order 1"), Meta: &broker.Meta{Key: "order-1"}, Group: w.b.group, Delay: delay}
	if err := onceq.SendOne(w.Context(), w.queue, &m); err != nil {
		w.Fatal(err)
	}
	w.sent++
}

func (w *world) key() dedupe.Key { return dedupe.Key{Scope: w.db.scope(), Key: "order-1"} }

// worker is one process with its pool and its onceq.Worker.
type worker struct {
	*onceqtest.Process
	name string
	w    *world
	conn *conn
	cut  chan struct{} // closed: its receives under way bring nothing more
	open sync.RWMutex  // read-locked by its receives under way
	stop context.CancelFunc
	done chan struct{}
	err  error // of Run, when done

	ended sync.Once
}

// start lets a new process work.
func (w *world) start(name string, faults ...onceqtest.Fault) *worker {
	w.Helper()
	k := &worker{Process: new(onceqtest.Process), name: name, w: w, cut: make(chan struct{}), done: make(chan struct{})}
	k.At(faults...)
	var err error
	if k.conn, err = w.db.connect(k.Process); err != nil {
		w.Fatalf("worker %s: %v", name, err)
	}
	own, err := w.queues.connect(k.Process)
	if err != nil {
		w.Fatalf("worker %s: %v", name, err)
	}
	attempts, letters := 6, k.Sender(own.letters)
	if w.scenario.held {
		attempts, letters = 1, onceq.KeepInQueue
		own.queue = hasty{own.queue}
	}
	policy := dedupe.Rerun
	if w.mode == park {
		policy = dedupe.Park
	}
	store := k.Store(w.audit.store(k.conn.store, name))
	var handler onceq.Handler = onceq.HandlerFunc(k.handle)
	if w.limits != "" {
		limited, err := limitKinds[w.limits](store)
		if err != nil {
			w.Fatal(err)
		}
		handler = onceq.Chain(handler, limited)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: k.Handler(handler), Scope: w.db.scope(), Owner: name, Store: store,
		Defaults: onceq.JobOptions{
			MaxAttempts: attempts, Interrupted: policy, Backoff: func(int, error) time.Duration { return w.b.backoff },
		},
		Lease: w.b.lease, CallTimeout: w.b.call, SettleTimeout: w.b.settle,
		Control: onceq.ControlOptions{Every: w.b.steered},
		// Ten thousand cells would tell of each fault. A cell that fails prints its calls.
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.Fatalf("worker %s: %v", name, err)
	}
	c := onceq.WorkerConfig{
		DeadLetter:  letters,
		Concurrency: 4, Pollers: 1, Visibility: w.b.visibility, DrainTimeout: -1,
	}
	if w.scenario.carried {
		c.Carry = k.Producer(own.queue)
	}
	run, err := p.Worker(k.Receiver(&watched{own.queue, k}), c)
	if err != nil {
		w.Fatalf("worker %s: %v", name, err)
	}
	ctx, stop := context.WithCancel(k.Context(context.WithoutCancel(w.Context())))
	k.stop = stop
	go func() {
		defer close(k.done)
		k.err = run.Run(ctx)
	}()
	w.Cleanup(k.end) // where the test gives up
	w.mu.Lock()
	w.all = append(w.all, k)
	w.mu.Unlock()
	return k
}

// end stops the worker, dead or alive, waits for it and closes what it has open. Where time is real
// nobody waits for the dead, who go on in vain for a while.
func (k *worker) end() { k.ended.Do(k.finish) }

func (k *worker) finish() {
	k.stop()
	end := func() {
		<-k.done
		k.conn.close()
	}
	if k.isDead() && !k.w.b.virtual {
		k.w.b.zombies.Go(end)
		return
	}
	end()
}

// ran is what Run answered; nil = it has not.
func (k *worker) ran() error {
	select {
	case <-k.done:
		return k.err
	default:
		return nil
	}
}

func (k *worker) isDead() bool { return isClosed(k.Dead()) }

// faulted tells whether a fault has befallen a call.
func (k *worker) faulted() bool { return len(k.Missed()) == 0 }

// errCommit: the transaction was not committed, or nobody knows.
var errCommit = errors.New("commit")

var errNotYet = errors.New("not yet")

// handle is the user's: it works a while, and has its effect.
func (k *worker) handle(ctx context.Context, j *onceq.Job) error {
	w := k.w
	if w.handler != nil {
		return w.handler(ctx, k, j)
	}
	w.mu.Lock()
	w.runs++
	first := w.runs == 1 || w.scenario.held && w.runs == 2
	w.mu.Unlock()
	if d := w.workTime(); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// On a slow machine beats come late, and the job is long only if they have come.
	for end := time.Now().Add(w.b.patience / 2); w.scenario.long && !w.b.virtual && !k.hasBeaten() && time.Now().Before(end); {
		select {
		case <-time.After(w.b.grain()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if w.scenario.carried {
		if err := w.sleep(ctx, j); err != nil {
			return err
		}
	}
	switch {
	case w.scenario.steps:
		return k.handleSteps(ctx, j)
	case w.scenario.permanent:
		return onceq.Permanent(errors.New("no such customer"))
	case w.scenario.retried && first:
		return errNotYet
	case w.mode == completeTx:
		err := k.conn.complete(ctx, k.Process, j)
		if w.scenario.careless && errors.Is(err, errCommit) {
			return nil
		}
		return err
	}
	err := k.Call(ctx, effect, func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, apiCall{key: j.EffectKey("pay"), token: j.Lease().Token})
		return nil
	})
	if err != nil && w.mode == park {
		// A plain error would be the handler's word that nothing has happened.
		return onceq.Permanent(fmt.Errorf("in doubt: %w", err))
	}
	return err
}

// hasBeaten tells whether two beats have gone out.
func (k *worker) hasBeaten() bool {
	return k.Calls(onceqtest.Renew) >= 2 && k.Calls(onceqtest.Extend) >= 2
}

// workTime is how long the job's work is.
func (w *world) workTime() time.Duration {
	switch {
	case w.scenario.long:
		return w.b.long
	case w.scenario.copies > 1 && w.b.virtual:
		return w.b.second / 2
	}
	return 0
}

// isEmpty tells whether nothing is left in the queue.
func (w *world) isEmpty() bool {
	d, err := w.queue.Depth(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return d == broker.Depth{}
}

// timePasses is for a worker that has gone, or stands still. It is what a bubble does by itself:
// the leases run out, of its claims and of its deliveries.
func (w *world) timePasses(k *worker) {
	close(k.cut) // or its receive would take from the other one what it can do nothing with
	if w.b.virtual {
		return
	}
	k.open.Lock() // when its receive has noticed
	defer k.open.Unlock()
	if err := w.db.age(k.isDead()); err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.receipts {
		_ = w.queue.Nack(w.Context(), []broker.Hold{{Receipt: r}}) // those that are acked are gone
	}
}

// hasty is a queue that takes short delays alone, so that what is kept in it comes again soon.
type hasty struct{ end }

func (q hasty) Limits() broker.Limits {
	l := q.end.Limits()
	l.MaxNack = 2 * time.Second
	return l
}

// watched is the queue, which remembers what it has handed out.
type watched struct {
	end
	k *worker
}

func (q *watched) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	q.k.open.RLock()
	defer q.k.open.RUnlock()
	if cut := q.k.cut; !isClosed(cut) {
		go func() {
			select {
			case <-cut:
				cancel()
			case <-over:
			}
		}()
	}
	ms, err := q.end.Receive(ctx, o)
	q.k.w.mu.Lock()
	defer q.k.w.mu.Unlock()
	for _, m := range ms {
		q.k.w.receipts = append(q.k.w.receipts, m.Receipt)
	}
	return ms, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// record is the job's; nil = there is none.
func (w *world) record() *dedupe.Record {
	rs, err := w.db.store().Get(w.Context(), []dedupe.Key{w.key()})
	if err != nil {
		w.Fatal(err)
	}
	return rs[0]
}

// dead takes the letters out of their queue.
func (w *world) dead() (ms []*broker.Message) {
	o := broker.ReceiveOptions{Max: w.letters.Limits().ReceiveBatch}
	if w.b.plain {
		o.Wait = time.Second // SQS may bring a part, or nothing, to a receive that does not wait
	}
	for {
		got, err := w.letters.Receive(w.Context(), o)
		if err != nil {
			w.Fatal(err)
		}
		if len(got) == 0 {
			return ms
		}
		ms = append(ms, got...)
	}
}

// tell is what has happened, for whoever must understand a failure.
func (w *world) tell(letters []*broker.Message) string {
	var s strings.Builder
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.all {
		fmt.Fprintf(&s, "worker %s (Run: %v):\n", k.name, k.ran())
		for _, c := range k.Trace() {
			fmt.Fprintf(&s, "  %9v %v, took %v\n", c.Begun.Sub(w.begun).Round(time.Millisecond), c, c.Took.Round(time.Millisecond))
		}
	}
	fmt.Fprintf(&s, "%d runs, %d effects at the API: %v\n", w.runs, len(w.calls), w.calls)
	for _, m := range letters {
		if m.Meta == nil || m.Meta.Dead == nil {
			fmt.Fprintf(&s, "letter without its reason: %q\n", m.Body)
			continue
		}
		fmt.Fprintf(&s, "letter %+v\n", *m.Meta.Dead)
	}
	fmt.Fprintf(&s, "record %+v\n", w.record())
	return s.String() + w.audit.tell(w.begun)
}
