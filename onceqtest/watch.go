package onceqtest

import (
	"context"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// watch is a queue that holds one message, and sees what becomes of it.
type watch struct {
	broker.Receiver
	ended   chan onceq.JobReport
	overdue *time.Timer

	mu     sync.Mutex
	next   *broker.Message
	action onceq.Action
	delay  time.Duration
}

func (w *watch) Unwrap() any { return w.Receiver }

func (w *watch) Receive(ctx context.Context, _ broker.ReceiveOptions) ([]*broker.Message, error) {
	w.mu.Lock()
	m := w.next
	w.next = nil
	w.mu.Unlock()
	if m != nil {
		return []*broker.Message{m}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (w *watch) Ack(ctx context.Context, rs []broker.Receipt) error {
	w.see(onceq.Ack, 0)
	return w.Receiver.Ack(ctx, rs)
}

func (w *watch) Nack(ctx context.Context, hs []broker.Hold) error {
	w.see(onceq.Nack, hs[0].For)
	return w.Receiver.Nack(ctx, hs)
}

func (w *watch) see(a onceq.Action, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.action, w.delay = a, d
}

func (w *watch) disposed() (onceq.Action, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.action, w.delay
}

// observer passes calls on to the user's observer. It also tells the rig that the handler starts,
// and that the delivery has ended. It makes the handler's context end with the process.
type observer struct {
	user onceq.Observer
	w    *watch
	p    *Process
}

func (o *observer) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	o.w.overdue.Reset(patience)
	ctx = o.p.Context(ctx)
	if o.user != nil {
		return o.user.JobStarted(ctx, j)
	}
	return ctx
}

func (o *observer) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if o.user != nil {
		o.user.JobEnded(ctx, r)
	}
	select {
	case o.w.ended <- *r:
	default:
	}
}
