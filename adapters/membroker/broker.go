package membroker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns the Broker: how it begins and ends, its depth, and the alarm that makes hidden
// messages visible. Users call the exported methods from many goroutines. Broker.mu guards the
// queue. begin, end, expire, reappear and setAlarm are called with it held.

// Broker is a queue in memory. Its methods may be called from many goroutines.
type Broker struct {
	name       string
	preset     Preset
	rules      preset
	visibility time.Duration
	redrive    *Redrive
	// base is when the broker was made; all its times are nanoseconds since then.
	base time.Time
	// nonce tells this broker's ids and receipts from those of another one.
	nonce   uint32
	numbers atomic.Uint64 // of the message ids

	// A call holds mu while it changes the queue; bodies are copied without it. A broker's mu is
	// taken before that of its redrive target, never after. The order has no circle, because a
	// target exists before its source does.
	mu      sync.Mutex
	closed  bool
	queue   queue
	dedup   dedup
	waiters waiters
	alarm   alarm
	taken   []*entry // scratch of deliver
}

var (
	_ broker.Broker    = (*Broker)(nil)
	_ broker.Depther   = (*Broker)(nil)
	_ broker.Redriver  = (*Broker)(nil)
	_ broker.Describer = (*Broker)(nil)
)

// New makes an empty queue; nil means the defaults. An error names the field of o and the
// limit that it does not keep. The broker needs no goroutine and no Close.
func New(o *Options) (*Broker, error) {
	if o == nil {
		o = &Options{}
	}
	c, p, err := o.complete()
	if err != nil {
		return nil, err
	}
	return &Broker{
		name: c.Name, preset: c.Preset, rules: p, visibility: c.Visibility, redrive: c.Redrive,
		base: time.Now(), nonce: rand.Uint32(),
	}, nil
}

// Close ends the queue: its messages are dropped, and waiting receives and all later calls
// are answered ErrClosed. It never fails.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.queue, b.dedup = queue{}, dedup{}
	b.alarm.stop()
	for w := b.waiters.pop(); w != nil; w = b.waiters.pop() {
		close(w.done)
	}
	return nil
}

// Limits are the preset's.
func (b *Broker) Limits() broker.Limits { return b.rules.limits }

// Describe is Options.Name. Two queues in memory may have the same.
func (b *Broker) Describe() broker.Description {
	if b == nil {
		return broker.Description{}
	}
	return broker.Description{System: "onceq_memory", Name: b.name}
}

// Depth counts the messages, exactly. Visible includes those that their group's head
// still holds. After a nack with a delay, a message counts as in flight on the presets
// where its receipt stays valid until then, and as delayed on Memory.
func (b *Broker) Depth(ctx context.Context) (broker.Depth, error) {
	if err := ctx.Err(); err != nil {
		return broker.Depth{}, b.wrap("depth", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return broker.Depth{}, b.wrap("depth", broker.ErrClosed)
	}
	b.end(b.begin())
	q := &b.queue
	return broker.Depth{Visible: int64(q.readyN), InFlight: int64(q.inFlightN), Delayed: int64(q.delayedN)}, nil
}

// Redrive answers what Options.Redrive has set; Target is the other broker's name. Retention is 0,
// because messages are kept until they are acked.
func (b *Broker) Redrive(ctx context.Context) (broker.RedrivePolicy, error) {
	if err := ctx.Err(); err != nil {
		return broker.RedrivePolicy{}, b.wrap("redrive policy", err)
	}
	if b.isClosed() {
		return broker.RedrivePolicy{}, b.wrap("redrive policy", broker.ErrClosed)
	}
	if b.redrive == nil {
		return broker.RedrivePolicy{}, nil
	}
	return broker.RedrivePolicy{MaxReceives: b.redrive.MaxReceives, Target: b.redrive.To.name}, nil
}

func (b *Broker) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func (b *Broker) wrap(what string, err error) error {
	return fmt.Errorf("membroker: %s: %s: %w", b.name, what, err)
}

// unsupported is an ErrUnsupported that says what was asked.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}

// checkBatch checks the number of a batch's entries.
func (b *Broker) checkBatch(op string, n, most int) error {
	if n > most {
		return b.wrap(op, unsupported("%d entries; a batch has at most %d", n, most))
	}
	return nil
}

// begin starts a stretch of work under the lock, with everything due by now made visible.
func (b *Broker) begin() (now int64) {
	now = b.now()
	b.expire(now)
	return now
}

// end closes a stretch of work: waiting receives get what became visible, and the alarm is
// set for what comes next. Between end and the next begin no receive waits while there is
// something that it could have.
func (b *Broker) end(now int64) {
	b.serve(now)
	b.setAlarm()
}

func (b *Broker) now() int64 { return int64(time.Since(b.base)) }

// expire makes visible what was hidden until now or earlier.
func (b *Broker) expire(now int64) {
	q := &b.queue
	for len(q.hidden) > 0 && q.hidden[0].due <= now {
		e := q.hidden[0].e
		q.unhide(e)
		b.reappear(e, now)
	}
}

// reappear puts e, which is in no state, back into the ready list, or into the redrive
// target when it has had its receives.
func (b *Broker) reappear(e *entry, now int64) {
	if r := b.redrive; r != nil && e.receives >= r.MaxReceives && r.To.adopt(b, e, now) {
		b.queue.drop(e)
		return
	}
	b.queue.show(e)
}

// alarm is the one timer that makes hidden messages visible while nobody calls.
type alarm struct {
	timer *time.Timer
	due   int64
	set   bool
}

func (a *alarm) stop() {
	if a.set {
		a.timer.Stop()
		a.set = false
	}
}

// setAlarm keeps the alarm at the earliest hidden message when somebody wants to know: a receive
// waits, or the message may have to go to the redrive target. An alarm that rings early only sets
// itself anew. That is cheaper than to move it with every ack.
func (b *Broker) setAlarm() {
	a, h := &b.alarm, b.queue.hidden
	if len(h) == 0 {
		a.stop()
		return
	}
	if b.waiters.first == nil && b.redrive == nil || a.set && a.due <= h[0].due {
		return
	}
	a.due, a.set = h[0].due, true
	d := time.Duration(a.due - b.now())
	if a.timer == nil {
		a.timer = time.AfterFunc(d, b.ring)
	} else {
		a.timer.Reset(d)
	}
}

func (b *Broker) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.alarm.set = false
	b.end(b.begin())
}
