package onceqtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns a Process: its planned faults, its trace of calls, and its death. The wrappers of
// wrap.go and the test call it, from any goroutine. p.mu guards all of its fields. What OnDeath was
// told is called without it.

// ErrDead answers every call of a process that is dead. A call that began after the death was not
// applied. One that was under way then may have been applied, and under [CrashAfter] it was.
var ErrDead = fmt.Errorf("onceqtest: the process is dead: %w", broker.ErrClosed)

// Op is a call that a worker's process makes. Users name calls of their own: see [Process.Call].
type Op string

// The calls. Start is the renewal that records, under Park, that the handler is about to run.
const (
	Claim   Op = "claim"
	Start   Op = "start"
	Renew   Op = "renew"
	Settle  Op = "settle"
	Get     Op = "get"
	List    Op = "list"
	Forget  Op = "forget"
	Receive Op = "receive"
	Extend  Op = "extend"
	Ack     Op = "ack"
	Nack    Op = "nack"
	Letter  Op = "letter"  // a send through [Process.Sender]
	Send    Op = "send"    // a send through [Process.Producer]
	Depth   Op = "depth"   // of a broker that has a [broker.Depther]
	Redrive Op = "redrive" // of a broker that is a [broker.Redriver]
)

// Process stands for a worker's process. What it wraps can fail, call by call, as a [Fault] says.
// It can also die, all at once, as after kill -9. From its death on no call that it begins is
// applied, and each answer is [ErrDead]. The zero Process is alive and well.
//
// Store, Receiver, Sender and Producer wrap what a worker calls. Call makes any other call one of
// the process's, such as the commit of the user's transaction. Three things end with the process,
// so that its death is that of a real one:
//
//   - the contexts that Context and Handler give, and so the transactions of database/sql that were
//     begun with them;
//   - the connections that Dial has made, so that a database server sees that its client is gone;
//   - what OnDeath is told to end.
//
// Two things go on that no real death would let go on:
//
//   - a call that is under way: it is applied although its answer is never seen;
//   - the handler, with all that is not named above. A handler that dies before its commit must
//     return at once, without the commit.
type Process struct {
	mu      sync.Mutex
	died    chan struct{}
	dead    bool
	hooks   []*hook
	faults  []*planned
	calls   map[Op]int
	trace   []*Call
	still   time.Time  // it stands still until then
	claimed dedupe.Key // of its last claim
	lastErr error
}

// hook is something that ends with the process.
type hook struct{ f func() }

// At lets calls go wrong, each as its Fault says. Where several faults are for one call, the one
// that was set first befalls it.
//
// At panics where a fault could change nothing: it has no Kind, or its Kind needs a Delay. Such a
// test would pass whatever the tested code does, and a Process has no test that it could fail.
func (p *Process) At(fs ...Fault) {
	for _, f := range fs {
		if err := f.check(); err != nil {
			panic(err)
		}
		p.plan(f)
	}
}

func (p *Process) plan(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.N <= 0 {
		f.N = p.calls[f.Op] + 1
		if f.Op == "" {
			f.N = len(p.trace) + 1
		}
	}
	p.faults = append(p.faults, &planned{Fault: f, until: time.Now().Add(f.For)})
}

// Missed are the faults that have befallen no call yet.
func (p *Process) Missed() (fs []Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if !f.hit {
			fs = append(fs, f.Fault)
		}
	}
	return fs
}

// Kill lets the process die now. A handler calls it to die in the middle of its work, and then
// returns at once (see [Process]).
func (p *Process) Kill() {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	hooks, died := p.hooks, p.signal()
	p.hooks = nil
	p.mu.Unlock()
	for _, h := range hooks {
		h.f()
	}
	close(died)
}

// Dead is closed when the process is dead, and what OnDeath was told is done.
func (p *Process) Dead() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signal()
}

func (p *Process) signal() chan struct{} {
	if p.died == nil {
		p.died = make(chan struct{})
	}
	return p.died
}

// OnDeath lets f be called when the process dies, or at once if it is dead. f closes what the
// system closes for a killed process, such as a connection pool. Several are called in the order of
// the OnDeath calls. The returned function takes f back.
//
// f is called in the goroutine that the process dies in, which may be a handler's. So it must not
// wait for that goroutine. If the close of a pool waits for connections in use, begin the close in
// another goroutine.
func (p *Process) OnDeath(f func()) (forget func()) {
	h := &hook{f}
	p.mu.Lock()
	dead := p.dead
	if !dead {
		p.hooks = append(p.hooks, h)
	}
	p.mu.Unlock()
	if dead {
		f()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hooks = slices.DeleteFunc(p.hooks, func(o *hook) bool { return o == h })
	}
}

// Context is ctx as this process has it: it ends with the cause [ErrDead] when the process dies.
func (p *Process) Context(ctx context.Context) context.Context {
	mine, end := context.WithCancelCause(ctx)
	forget := p.OnDeath(func() { end(ErrDead) })
	context.AfterFunc(mine, forget)
	return mine
}

// Handler is h as this process runs it: its context ends when the process dies. It is an
// [onceq.Middleware], for a Mux.
func (p *Process) Handler(h onceq.Handler) onceq.Handler {
	return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error { return h.Handle(p.Context(ctx), j) })
}

// DialFunc makes a connection, as a [net.Dialer]'s DialContext does. Clients of databases and
// services let one set it, such as an http.Transport's DialContext and the DialFunc of pgx's
// configuration.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dial is dial as this process sees it: the connections that it makes are cut when the process
// dies. nil = that of a zero [net.Dialer].
func (p *Process) Dial(dial DialFunc) DialFunc {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &connection{Conn: c, forget: p.OnDeath(func() { _ = c.Close() })}, nil
	}
}

// connection is one that ends with the process.
type connection struct {
	net.Conn
	forget func()
}

func (c *connection) Close() error {
	c.forget()
	return c.Conn.Close()
}

// Call makes do a call of this process, under a name of its own: faults befall it, and it does not
// happen in a dead process.
//
//	err := p.Call(ctx, "commit", tx.Commit)
func (p *Process) Call(ctx context.Context, op Op, do func(context.Context) error) error {
	r := request[struct{}]{p: p, op: op, do: func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) }}
	_, err := r.run(ctx)
	return err
}

// Calls is how often the process made the call, those after its death not counted.
func (p *Process) Calls(op Op) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[op]
}

// Trace is what the process has called, in the order in which the calls began.
func (p *Process) Trace() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	cs := make([]Call, len(p.trace))
	for i, c := range p.trace {
		cs[i] = *c
	}
	return cs
}

// begin counts a call and finds what is to go wrong with it. The call is nil where the process is
// dead.
func (p *Process) begin(op Op, entries int) (*Call, Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, Fault{}
	}
	if p.calls == nil {
		p.calls = make(map[Op]int)
	}
	p.calls[op]++
	c := &Call{Op: op, N: p.calls[op], Entries: entries, Begun: time.Now()}
	p.trace = append(p.trace, c)
	for _, f := range p.faults {
		if !f.befalls(op, c.N, len(p.trace)) {
			continue
		}
		f.hit, c.Fault = true, f.Kind
		if f.Kind == Stall {
			p.still = c.Begun.Add(f.Delay)
		}
		found := f.Fault
		found.Op, found.N = op, c.N // so that an error names this call
		return c, found
	}
	return c, Fault{}
}

// wait returns when the process does not stand still any more. It reports false when it is dead.
func (p *Process) wait() bool {
	for {
		p.mu.Lock()
		left, dead, died := time.Until(p.still), p.dead, p.signal()
		if p.still.IsZero() {
			left = 0
		}
		p.mu.Unlock()
		if dead || left <= 0 {
			return !dead
		}
		select {
		case <-time.After(left):
		case <-died:
		}
	}
}

// pause waits for d. Its error says that the context or the process has ended meanwhile.
func (p *Process) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.Dead():
		return ErrDead
	}
}

// end is told a call's answer. It reports false where the process has died meanwhile.
func (p *Process) end(c *Call, entries int, answer error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer != nil {
		p.lastErr = fmt.Errorf("%s: %w", c.Op, answer)
	}
	c.Took = time.Since(c.Begun)
	if p.dead {
		return false
	}
	c.Ended, c.Entries, c.Err = true, entries, answer
	return true
}

// noteClaims remembers which key is claimed.
func (p *Process) noteClaims(rs []dedupe.ClaimRequest) {
	if len(rs) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimed = rs[len(rs)-1].Key
}

// seen is the key of the last claim, and the last error.
func (p *Process) seen() (claimed dedupe.Key, lastErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimed, p.lastErr
}

// joined is the errors among those of entries; nil = there is none.
func joined[A any](as []A, err func(A) error) error {
	var errs []error
	for _, a := range as {
		errs = append(errs, err(a))
	}
	return errors.Join(errs...)
}
