package sqslambda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns what the queue is told of an invocation's messages: to hold them, to give them
// back, and, under FailWhole, to delete them. handler.handle calls hold and settle;
// Batches.Process calls ended, from several goroutines. invocation.mu guards the items. What ended
// has written of an item is read without it, because nobody changes that again.

const (
	// holdAfter spares the request for the many invocations that take less.
	holdAfter = time.Second
	// grace is how long a message stays hidden beyond its invocation. It is longer than the claim,
	// which ends SettleTimeout after the invocation.
	grace = 10 * time.Second
	// held is how long a message may have been hidden when its invocation ends: 15 minutes of the
	// invocation, 5 of a batching window, and some time of throttling.
	held = time.Hour
	// flight is how many calls of the queue are under way at once.
	flight = 8
	// callTimeout bounds one of these calls. It also bounds for how long a call that fails is tried
	// again, because the time is billed. A message that could not be given back comes again at its
	// timeout.
	callTimeout = onceq.DefaultCallTimeout
)

// invocation is the records of one event, and what the queue is told of them. It waits for what it
// starts.
type invocation struct {
	h       *handler
	ctx     context.Context // for the queue's calls
	done    context.CancelFunc
	t       times
	records []events.SQSMessage
	ordered bool // the groups of the records
	nacks   *batch.Queue[int]
	calls   sync.WaitGroup // holding, and nacks that are not through
	holding context.Context
	release context.CancelFunc

	mu    sync.Mutex
	items []item
}

// item is what is known of one record.
type item struct {
	mine   bool // it is of Options.Queue
	action onceq.Action
	delay  time.Duration // of a nack, from at
	at     time.Time
	held   bool          // it is held to the invocation's end, or need not or cannot be
	round  int           // of holding, in which it was last tried
	flying chan struct{} // closed when the call that holds it has ended; nil = there is none
}

func newInvocation(ctx context.Context, h *handler, rs []events.SQSMessage, t times) *invocation {
	v := &invocation{h: h, t: t, records: rs, ordered: ordered(rs), items: make([]item, len(rs))}
	v.ctx, v.done = context.WithDeadline(context.WithoutCancel(ctx), t.last)
	v.holding, v.release = context.WithCancel(v.ctx)
	if h.o.Queue == nil {
		return v
	}
	v.nacks = batch.New(batch.Options{Max: h.o.Queue.Limits().SettleBatch, Flight: flight}, v.nack)
	known, tells := broker.As[interface{ HasARN(arn string) bool }](h.o.Queue)
	for i := range rs {
		q := rs[i].EventSourceARN
		another := tells && q != "" && !known.HasARN(q)
		v.items[i].mine = rs[i].ReceiptHandle != "" && !another
		if another {
			h.strange.Do(func() {
				v.warn("a record is of another queue than Options.Queue; it is left to its own visibility timeout", slog.String("queue", q))
			})
		}
	}
	return v
}

// ended is told how a record ended.
func (v *invocation) ended(i int, d onceq.Disposition) {
	v.mu.Lock()
	it := &v.items[i]
	it.action, it.delay, it.at = d.Action, d.Delay, time.Now()
	// Where groups are ordered, what is done is held with the rest. So nothing of its group comes
	// before it if the function dies.
	it.held = it.held || !v.ordered || d.Action != onceq.Ack
	nack := it.mine && d.Action == onceq.Nack
	v.mu.Unlock()
	if nack {
		v.calls.Add(1)
		v.nacks.Add(i)
	}
}

// hold begins to hide the messages to the invocation's end, when that is not soon. Once is enough,
// because that end is known. So there is no heartbeat that a frozen function would miss.
func (v *invocation) hold() {
	if v.h.o.Queue == nil || !v.h.o.Queue.Limits().Extends {
		return
	}
	v.calls.Go(func() {
		for round, wait := 1, holdAfter; retry.Rest(v.holding, wait) && v.holdAll(round); round++ {
			wait = retry.Pause(round)
		}
	})
}

// holdAll holds what is not held yet, and reports whether something is left to try again.
func (v *invocation) holdAll(round int) (again bool) {
	room := make(chan struct{}, flight)
	var calls sync.WaitGroup
	var mu sync.Mutex
	var failed error
	expired := 0
	for v.holding.Err() == nil {
		is := v.open(round, v.h.o.Queue.Limits().SettleBatch)
		if len(is) == 0 {
			break
		}
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			gone, err := v.extend(is)
			mu.Lock()
			defer mu.Unlock()
			expired += gone
			failed = cmp.Or(err, failed)
		})
	}
	calls.Wait()
	if expired > 0 {
		v.warn("messages were delivered again, or may be, while they were worked on; the queue's visibility timeout should be six times the function's timeout",
			slog.Int("messages", expired))
	}
	if failed != nil && round == 2 {
		v.warn("messages cannot be held to the invocation's end; it is tried again", slog.Any("error", failed))
	}
	return failed != nil
}

// open takes records that are worked on, not held, and not tried in this round.
func (v *invocation) open(round, most int) (is []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var landed chan struct{}
	for i := range v.items {
		it := &v.items[i]
		if len(is) == most {
			break
		}
		if !it.mine || it.held || it.round == round {
			continue
		}
		if landed == nil {
			landed = make(chan struct{})
		}
		it.flying, it.round = landed, round
		is = append(is, i)
	}
	return is
}

// extend holds records that open has taken. Its error is one that may pass.
func (v *invocation) extend(is []int) (expired int, failed error) {
	l := v.h.o.Queue.Limits()
	left := time.Until(v.t.end)
	d := max(l.MinHold, left+min(grace, math.MaxInt64-left))
	if l.MaxHold > 0 {
		d = min(d, l.MaxHold)
	}
	holds := make([]broker.Hold, len(is))
	for n, i := range is {
		holds[n] = broker.Hold{Receipt: broker.Receipt(v.records[i].ReceiptHandle), For: d}
	}
	err := v.call(v.holding, func(ctx context.Context) error { return v.h.o.Queue.Extend(ctx, holds) })
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.items[is[0]].flying) // that of all of them
	for n, i := range is {
		it, e := &v.items[i], broker.ErrAt(err, n)
		switch {
		case e == nil:
			it.held = true
		case errors.Is(e, broker.ErrReceiptExpired):
			// Another function may get it: the claim keeps the key.
			it.held = true
			expired++
		case errors.Is(e, broker.ErrUnsupported), errors.Is(e, broker.ErrNotFound), errors.Is(e, broker.ErrClosed):
			it.held = true
			v.warn("a message cannot be held to the invocation's end", slog.String("message", v.records[i].MessageId), slog.Any("error", e))
		default:
			failed = e
		}
	}
	return expired, failed
}

// nack gives records back after their delays. It first waits until no call that holds them is under
// way, because such a call would undo the nack.
func (v *invocation) nack(is []int) {
	defer v.calls.Add(-len(is))
	for _, i := range is {
		v.mu.Lock()
		landed := v.items[i].flying
		v.mu.Unlock()
		if landed != nil {
			select {
			case <-landed:
			case <-v.ctx.Done():
			}
		}
	}
	most := longestNack(v.h.o.Queue.Limits())
	left := v.repeat(is, func(ctx context.Context, is []int) error {
		holds := make([]broker.Hold, len(is))
		for n, i := range is {
			it := &v.items[i] // written before it was given to nacks
			d := max(0, it.delay-time.Since(it.at))
			holds[n] = broker.Hold{Receipt: broker.Receipt(v.records[i].ReceiptHandle), For: min(d, most)}
		}
		return v.h.o.Queue.Nack(ctx, holds)
	})
	if left != nil {
		v.warn("messages could not be given back after their delay; they come again at the end of their timeout", slog.Any("error", left))
	}
}

// longestNack is the longest delay that the queue takes. The queue's bound on the whole hold of a
// message counts from a receive, and an event does not say when that was.
func longestNack(l broker.Limits) time.Duration {
	most := l.MaxNack
	if l.MaxTotal > 0 {
		most = min(most, max(0, l.MaxTotal-held))
	}
	return most
}

// ack deletes what is done, where the rest of the batch is to fail.
func (v *invocation) ack() {
	var done []int
	failed := false
	for i := range v.items {
		switch it := &v.items[i]; {
		case it.action != onceq.Ack:
			failed = true
		case it.mine:
			done = append(done, i)
		}
	}
	if !failed {
		return
	}
	room := make(chan struct{}, flight)
	var calls sync.WaitGroup
	for most := v.h.o.Queue.Limits().SettleBatch; len(done) > 0; {
		is := done[:min(len(done), most)]
		done = done[len(is):]
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			left := v.repeat(is, func(ctx context.Context, is []int) error {
				rs := make([]broker.Receipt, len(is))
				for n, i := range is {
					rs[n] = broker.Receipt(v.records[i].ReceiptHandle)
				}
				return v.h.o.Queue.Ack(ctx, rs)
			})
			if left != nil {
				v.warn("messages that are done could not be deleted; they come again with the failed ones", slog.Any("error", left))
			}
		})
	}
	calls.Wait()
}

// repeat makes a call for the records until it is known to be applied, or its time is over. It
// answers the error that remains.
func (v *invocation) repeat(is []int, send func(context.Context, []int) error) error {
	ctx, cancel := context.WithTimeout(v.ctx, callTimeout)
	defer cancel()
	var never error // what is in the way for good
	for n := 1; ; n++ {
		err := v.call(ctx, func(ctx context.Context) error { return send(ctx, is) })
		if err == nil {
			return never
		}
		var again []int
		var last error
		for n, i := range is {
			switch e := broker.ErrAt(err, n); {
			case e == nil, errors.Is(e, broker.ErrReceiptExpired):
			case errors.Is(e, broker.ErrClosed), errors.Is(e, broker.ErrUnsupported), errors.Is(e, broker.ErrNotFound):
				never = e
			default:
				again, last = append(again, i), e
			}
		}
		if is = again; len(is) == 0 {
			return never
		}
		if !retry.Rest(ctx, retry.Pause(n)) {
			return last
		}
	}
}

// call bounds one call of the queue. A panic of the driver must not take the response with it.
func (v *invocation) call(ctx context.Context, f func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("sqslambda: panic in a call of the queue: %v\n%s", p, debug.Stack())
		}
	}()
	return f(ctx)
}

// settle waits until the queue has been told everything, as long as there is time. A function that
// has answered is frozen. What it still had in flight would arrive at the next invocation, or
// never.
func (v *invocation) settle() {
	defer v.done()
	v.release()
	if v.h.o.Queue == nil {
		return
	}
	through := make(chan struct{})
	go func() {
		defer close(through)
		v.calls.Wait()
		if v.h.o.FailWhole {
			v.ack()
		}
	}()
	hung := time.NewTimer(2 * callTimeout)
	defer hung.Stop()
	select {
	case <-through:
	case <-v.ctx.Done():
	case <-hung.C: // a driver that ignores its context is not waited for
	}
}
