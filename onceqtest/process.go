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
// nothing it does has any effect outside of it. The zero Process is alive.
type Process struct {
	mu    sync.Mutex
	died  chan struct{}
	dead  bool
	where *Point
	calls map[Op]int
}

// CrashAt lets the process die at the point, when it next comes by.
func (p *Process) CrashAt(at Point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.where = &at
}

// Kill lets the process die now. A handler calls it to die in the middle of its work.
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
	if p.where != nil && *p.where == (Point{Op: op}) {
		p.kill()
	}
	dead := p.dead
	p.mu.Unlock()
	if dead {
		return none, ErrDead
	}
	v, err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.where != nil && *p.where == (Point{Op: op, After: true}) {
		p.kill()
	}
	if p.dead {
		return none, ErrDead
	}
	return v, err
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
	return call(s.p, Claim, func() ([]dedupe.Claim, error) { return s.Store.Claim(ctx, rs) })
}

func (s *store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	op := Renew
	for _, r := range rs {
		if r.Started {
			op = Start
		}
	}
	return call(s.p, op, func() ([]dedupe.Renewed, error) { return s.Store.Renew(ctx, rs) })
}

func (s *store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	return call(s.p, Settle, func() ([]dedupe.Settled, error) { return s.Store.Settle(ctx, ss) })
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
