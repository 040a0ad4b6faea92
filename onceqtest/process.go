package onceqtest

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// ErrDead answers every call of a process that is dead. The call was not applied, except for the one in which it died After.
var ErrDead = fmt.Errorf("onceqtest: the process is dead: %w", broker.ErrClosed)

// Op is a call that a worker's process makes.
type Op string

// The calls. Start is the renewal that records, under Park, that the handler is about to run.
const (
	Claim   Op = "claim"
	Start   Op = "start"
	Renew   Op = "renew"
	Settle  Op = "settle"
	Receive Op = "receive"
	Extend  Op = "extend"
	Ack     Op = "ack"
	Nack    Op = "nack"
	Letter  Op = "letter"
)

// Point is a place at which a process can die.
type Point struct {
	Op    Op
	After bool // the call was applied, and its answer never seen; else it was never applied
}

// The points between the steps of a job.
var (
	BeforeClaim  = Point{Op: Claim}
	AfterClaim   = Point{Op: Claim, After: true}
	BeforeStart  = Point{Op: Start}
	AfterStart   = Point{Op: Start, After: true}
	BeforeSettle = Point{Op: Settle} // the handler has returned
	AfterSettle  = Point{Op: Settle, After: true}
	BeforeLetter = Point{Op: Letter}
	AfterLetter  = Point{Op: Letter, After: true}
	BeforeAck    = Point{Op: Ack}
	AfterAck     = Point{Op: Ack, After: true}
	BeforeNack   = Point{Op: Nack}
	AfterNack    = Point{Op: Nack, After: true}
)

// String is such as "before settle".
func (p Point) String() string {
	if p.After {
		return "after " + string(p.Op)
	}
	return "before " + string(p.Op)
}

// Process stands for a worker's process: what it wraps can die, all at once, as kill -9 lets it. From then on
// no call that it begins is applied, and none is answered. The zero Process is alive.
//
// Two things go on that no real death would let go on: a call that is under way, which is applied although its answer is never
// seen, and the handler with all that is not wrapped, first of all its own database: a transaction that it still commits goes
// through. A handler that dies before its commit returns at once, without it; or close the pool together with the process.
type Process struct {
	mu      sync.Mutex
	died    chan struct{}
	dead    bool
	where   *Point
	reached bool // it died there
	calls   map[Op]int
	claimed dedupe.Key // of its last claim
	lastErr error
}

// CrashAt lets the process die at the point, when it next comes by.
func (p *Process) CrashAt(at Point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.where, p.reached = &at, false
}

// Kill lets the process die now. A handler calls it to die in the middle of its work, and then returns at once: what
// it still does to its own database is done (see [Process]).
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Process) kill() {
	if !p.dead {
		p.dead = true
		close(p.signal())
	}
}

// Dead is closed when the process dies.
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

// Calls is how often the process made the call, those after its death not counted.
func (p *Process) Calls(op Op) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[op]
}

// call lets the process make a call: do is what it does.
func call[T any](p *Process, op Op, do func() (T, error)) (T, error) {
	var none T
	p.mu.Lock()
	if !p.dead {
		if p.calls == nil {
			p.calls = make(map[Op]int)
		}
		p.calls[op]++
	}
	p.pass(Point{Op: op})
	dead := p.dead
	p.mu.Unlock()
	if dead {
		return none, ErrDead
	}
	v, err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.lastErr = fmt.Errorf("%s: %w", op, err)
	}
	p.pass(Point{Op: op, After: true})
	if p.dead {
		return none, ErrDead
	}
	return v, err
}

// pass lets the process die if this is the point.
func (p *Process) pass(here Point) {
	if p.where != nil && *p.where == here && !p.dead {
		p.reached = true
		p.kill()
	}
}

// entry remembers the error of one entry of a call that itself has none.
func (p *Process) entry(op Op, err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = fmt.Errorf("%s: %w", op, err)
}

// claims remembers which key is claimed.
func (p *Process) claims(rs []dedupe.ClaimRequest) {
	if len(rs) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimed = rs[len(rs)-1].Key
}

// seen is what the process has gone through so far.
func (p *Process) seen() (reached bool, claimed dedupe.Key, lastErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached, p.claimed, p.lastErr
}

func try(p *Process, op Op, do func() error) error {
	_, err := call(p, op, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// Store is s as this process sees it.
func (p *Process) Store(s dedupe.Store) dedupe.Store { return &store{s, p} }

type store struct {
	dedupe.Store
	p *Process
}

func (s *store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	s.p.claims(rs)
	cs, err := call(s.p, Claim, func() ([]dedupe.Claim, error) { return s.Store.Claim(ctx, rs) })
	for i := range cs {
		s.p.entry(Claim, cs[i].Err)
	}
	return cs, err
}

func (s *store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	op := Renew
	for _, r := range rs {
		if r.Started {
			op = Start
		}
	}
	as, err := call(s.p, op, func() ([]dedupe.Renewed, error) { return s.Store.Renew(ctx, rs) })
	for i := range as {
		s.p.entry(op, as[i].Err)
	}
	return as, err
}

func (s *store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	as, err := call(s.p, Settle, func() ([]dedupe.Settled, error) { return s.Store.Settle(ctx, ss) })
	for i := range as {
		s.p.entry(Settle, as[i].Err)
	}
	return as, err
}

func (s *store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	return call(s.p, "get", func() ([]*dedupe.Record, error) { return s.Store.Get(ctx, ks) })
}

func (s *store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	records, err := call(s.p, "list", func() (iter.Seq2[*dedupe.Record, error], error) { return s.Store.List(ctx, q), nil })
	if err != nil {
		return func(yield func(*dedupe.Record, error) bool) { yield(nil, err) }
	}
	return records
}

func (s *store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return call(s.p, "forget", func() ([]error, error) { return s.Store.Forget(ctx, fs) })
}

// Receiver is r as this process sees it.
func (p *Process) Receiver(r broker.Receiver) broker.Receiver { return &receiver{r, p} }

type receiver struct {
	broker.Receiver
	p *Process
}

func (r *receiver) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	return call(r.p, Receive, func() ([]*broker.Message, error) { return r.Receiver.Receive(ctx, o) })
}

func (r *receiver) Ack(ctx context.Context, rs []broker.Receipt) error {
	return try(r.p, Ack, func() error { return r.Receiver.Ack(ctx, rs) })
}

func (r *receiver) Nack(ctx context.Context, hs []broker.Hold) error {
	return try(r.p, Nack, func() error { return r.Receiver.Nack(ctx, hs) })
}

func (r *receiver) Extend(ctx context.Context, hs []broker.Hold) error {
	return try(r.p, Extend, func() error { return r.Receiver.Extend(ctx, hs) })
}

// Sender is s as this process sees it; its calls are Letter.
func (p *Process) Sender(s broker.Sender) broker.Sender { return &sender{s, p} }

type sender struct {
	broker.Sender
	p *Process
}

func (s *sender) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	return call(s.p, Letter, func() ([]string, error) { return s.Sender.Send(ctx, ms) })
}
