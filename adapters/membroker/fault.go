package membroker

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
)

// Op is a kind of call.
type Op uint8

// The calls that can be made to fail.
const (
	Receive Op = iota
	Ack
	Nack
	Extend
	Send
	ops // how many there are
)

// String is the call's name in lower case.
func (o Op) String() string {
	switch o {
	case Receive:
		return "receive"
	case Ack:
		return "ack"
	case Nack:
		return "nack"
	case Extend:
		return "extend"
	case Send:
		return "send"
	default:
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
}

// Call is one call, as a [FaultFunc] sees it.
type Call struct {
	Op Op
	// N numbers the calls of this Op from 1, since the function was set.
	N int
	// Entries is the number of the batch's entries; of a receive, the Max it asked for.
	Entries int
}

// FaultFunc says what shall go wrong with a call; the zero Fault means nothing. It is
// called without a lock, by many goroutines, and may block to hold the call.
type FaultFunc func(ctx context.Context, c Call) Fault

// Fault is what goes wrong with a call. Its parts combine.
type Fault struct {
	// Delay passes before the call is applied. When ctx ends first, nothing is applied.
	Delay time.Duration
	// ReplyDelay passes after the call was applied. When ctx ends first, the reply is lost
	// and the answer wraps the context's error; a receive returns what it brought.
	ReplyDelay time.Duration
	// Err answers the whole call; nothing is applied, unless Applied is set.
	Err error
	// Applied applies what Err or Entries report as failed: the reply is lost, the change
	// is made. After a receive the messages are in flight though nobody has them.
	Applied bool
	// Entries fails single entries, by position, of a batch that else goes through. A
	// receive ignores it.
	Entries map[int]error
}

type faults struct {
	ask    FaultFunc
	counts [ops]atomic.Int64
}

// SetFault replaces the fault function; nil ends the faults. Calls are numbered from 1
// again. It may be called at any time.
func (b *Broker) SetFault(f FaultFunc) {
	if f == nil {
		b.faults.Store(nil)
		return
	}
	b.faults.Store(&faults{ask: f})
}

// before gives the call's fault and lives through the part of it that comes before the
// call is applied. An error is the answer: nothing may be applied.
func (b *Broker) before(ctx context.Context, op Op, entries int) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return Fault{}, b.fail(op, err)
	}
	fs := b.faults.Load()
	if fs == nil {
		return Fault{}, nil
	}
	if b.isClosed() {
		return Fault{}, b.fail(op, broker.ErrClosed)
	}
	f := fs.ask(ctx, Call{Op: op, N: int(fs.counts[op].Add(1)), Entries: entries})
	if err := pause(ctx, f.Delay); err != nil {
		return f, b.fail(op, err)
	}
	if f.Err != nil && !f.Applied {
		return f, b.fail(op, f.Err)
	}
	return f, nil
}

// lost lives through the part of the fault that comes after the call was applied. An error
// is the answer in place of the call's own.
func (b *Broker) lost(ctx context.Context, op Op, f *Fault) error {
	if err := pause(ctx, f.ReplyDelay); err != nil {
		return b.fail(op, err)
	}
	if f.Err != nil {
		return b.fail(op, f.Err)
	}
	return nil
}

// entry is the fault's error for entry i.
func (f *Fault) entry(i int) error {
	if f.Entries == nil {
		return nil
	}
	return f.Entries[i]
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
