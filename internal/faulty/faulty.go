// Package faulty lets tests decide by a function, call by call, what goes wrong with a queue or a
// store. What can go wrong is said in the words of onceqtest, whose Process does it.
package faulty

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// Faults are what goes wrong with one call, the first of them outermost. Nil = nothing.
type Faults []onceqtest.Fault

// Fail answers err; nothing is applied.
func Fail(err error) Faults { return Faults{{Kind: onceqtest.Fail, Err: err}} }

// Lose applies the call and answers err.
func Lose(err error) Faults { return Faults{{Kind: onceqtest.LoseReply, Err: err}} }

// Err is Lose where the call is to be applied, else Fail.
func Err(err error, applied bool) Faults {
	if applied {
		return Lose(err)
	}
	return Fail(err)
}

// Slow applies the call after d, unless its context ends before. 0 = at once.
func Slow(d time.Duration) Faults { return Faults{{Kind: onceqtest.Slow, Delay: d}} }

// SlowReply applies the call at once, and answers after d.
func SlowReply(d time.Duration) Faults { return Faults{{Kind: onceqtest.SlowReply, Delay: d}} }

// Hang applies nothing, and answers when the call's context ends.
func Hang() Faults { return Slow(1 << 62) }

// Panic panics in the call.
func Panic(v any) Faults { return Fail(panics{v}) }

// panics is an error that is thrown.
type panics struct{ v any }

func (panics) Error() string { return "faulty: a panic" }

// Only lets the faults befall only these entries of a batch, by position.
func (fs Faults) Only(entries ...int) Faults {
	fs = slices.Clone(fs)
	for i := range fs {
		fs[i].Entries = entries
	}
	return fs
}

// With adds inner faults.
func (fs Faults) With(inner Faults) Faults { return append(slices.Clone(fs), inner...) }

// Err is what the call is answered because of the faults; nil where they name no error.
func (fs Faults) Err() error {
	for _, f := range fs {
		if f.Err != nil {
			return f.Err
		}
	}
	return nil
}

// each calls wrap for a process of each fault, the innermost first. Each process makes one call.
func (fs Faults) each(wrap func(p *onceqtest.Process)) {
	for _, f := range slices.Backward(fs) {
		if v, ok := f.Err.(panics); ok { //nolint:errorlint // With has put it there as it is
			panic(v.v) // invariant: a test asked for it
		}
		p := new(onceqtest.Process)
		p.At(f)
		wrap(p)
	}
}

// Store is s for one call.
func (fs Faults) Store(s dedupe.Store) dedupe.Store {
	fs.each(func(p *onceqtest.Process) { s = p.Store(s) })
	return s
}

// Receiver is r for one call.
func (fs Faults) Receiver(r broker.Receiver) broker.Receiver {
	fs.each(func(p *onceqtest.Process) { r = p.Receiver(r) })
	return r
}

// Sender is s for one call.
func (fs Faults) Sender(s broker.Sender) broker.Sender {
	fs.each(func(p *onceqtest.Process) { s = p.Producer(s) })
	return s
}

// Func says what goes wrong with a call. N numbers the calls of its Op from 1, and Entries is the
// number of the batch's entries, of a receive the Max that it asked for. It is called by many
// goroutines at once, and may block to hold the call.
type Func func(ctx context.Context, c onceqtest.Call) Faults

// Broker is a memory queue whose calls can be made to fail: Receive, Ack, Nack, Extend and Send.
type Broker struct {
	*membroker.Broker
	faults atomic.Pointer[asked]
}

// asked is the function of one SetFault, with its count of calls.
type asked struct {
	f                                Func
	receive, ack, nack, extend, send atomic.Int64
}

// SetFault replaces the function; nil ends the faults. Calls are numbered from 1 again. It may be
// called at any time.
func (b *Broker) SetFault(f Func) {
	if f == nil {
		b.faults.Store(nil)
		return
	}
	b.faults.Store(&asked{f: f})
}

func (b *Broker) ask(ctx context.Context, op onceqtest.Op, entries int) Faults {
	a := b.faults.Load()
	if a == nil || ctx.Err() != nil {
		return nil // a call whose context has ended is none
	}
	n := map[onceqtest.Op]*atomic.Int64{
		onceqtest.Receive: &a.receive, onceqtest.Ack: &a.ack, onceqtest.Nack: &a.nack, onceqtest.Extend: &a.extend, onceqtest.Send: &a.send,
	}[op]
	return a.f(ctx, onceqtest.Call{Op: op, N: int(n.Add(1)), Entries: entries})
}

// Receive is [membroker.Broker.Receive] with the fault of the call.
func (b *Broker) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	return b.ask(ctx, onceqtest.Receive, o.Max).Receiver(b.Broker).Receive(ctx, o)
}

// Ack is [membroker.Broker.Ack] with the fault of the call.
func (b *Broker) Ack(ctx context.Context, rs []broker.Receipt) error {
	return b.ask(ctx, onceqtest.Ack, len(rs)).Receiver(b.Broker).Ack(ctx, rs)
}

// Nack is [membroker.Broker.Nack] with the fault of the call.
func (b *Broker) Nack(ctx context.Context, hs []broker.Hold) error {
	return b.ask(ctx, onceqtest.Nack, len(hs)).Receiver(b.Broker).Nack(ctx, hs)
}

// Extend is [membroker.Broker.Extend] with the fault of the call.
func (b *Broker) Extend(ctx context.Context, hs []broker.Hold) error {
	return b.ask(ctx, onceqtest.Extend, len(hs)).Receiver(b.Broker).Extend(ctx, hs)
}

// Send is [membroker.Broker.Send] with the fault of the call.
func (b *Broker) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	return b.ask(ctx, onceqtest.Send, len(ms)).Sender(b.Broker).Send(ctx, ms)
}
