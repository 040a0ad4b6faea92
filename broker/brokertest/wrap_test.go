package brokertest

import (
	"context"
	"testing"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// wrapped is a broker with some of its calls replaced. A nil field leaves the call as it is.
type wrapped struct {
	*membroker.Broker
	limits  func(broker.Limits) broker.Limits
	receive func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error)
	ack     func(ctx context.Context, rs []broker.Receipt) error
	nack    func(ctx context.Context, hs []broker.Hold) error
	extend  func(ctx context.Context, hs []broker.Hold) error
	send    func(ctx context.Context, ms []broker.Outgoing) ([]string, error)
	depth   func(broker.Depth) broker.Depth
	// busy throttles every call but lets, with refusal as the answer.
	busy    bool
	lets    string
	refusal error
}

func (w *wrapped) Limits() broker.Limits {
	l := w.Broker.Limits()
	if w.limits != nil {
		l = w.limits(l)
	}
	return l
}

func (w *wrapped) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if w.busy && w.lets != "Receive" {
		return nil, w.refusal
	}
	if w.receive != nil {
		return w.receive(ctx, o)
	}
	return w.Broker.Receive(ctx, o)
}

func (w *wrapped) Ack(ctx context.Context, rs []broker.Receipt) error {
	if w.busy && w.lets != "Ack" {
		return w.refusal
	}
	if w.ack != nil {
		return w.ack(ctx, rs)
	}
	return w.Broker.Ack(ctx, rs)
}

func (w *wrapped) Nack(ctx context.Context, hs []broker.Hold) error {
	if w.busy && w.lets != "Nack" {
		return w.refusal
	}
	if w.nack != nil {
		return w.nack(ctx, hs)
	}
	return w.Broker.Nack(ctx, hs)
}

func (w *wrapped) Extend(ctx context.Context, hs []broker.Hold) error {
	if w.busy && w.lets != "Extend" {
		return w.refusal
	}
	if w.extend != nil {
		return w.extend(ctx, hs)
	}
	return w.Broker.Extend(ctx, hs)
}

func (w *wrapped) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if w.busy && w.lets != "Send" {
		return nil, w.refusal
	}
	if w.send != nil {
		return w.send(ctx, ms)
	}
	return w.Broker.Send(ctx, ms)
}

func (w *wrapped) Depth(ctx context.Context) (broker.Depth, error) {
	d, err := w.Broker.Depth(ctx)
	if w.depth != nil {
		d = w.depth(d)
	}
	return d, err
}

// onMessage changes every message that is received.
func (w *wrapped) onMessage(f func(*broker.Message)) {
	w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
		ms, err := w.Broker.Receive(ctx, o)
		for _, m := range ms {
			f(m)
		}
		return ms, err
	}
}

// onOutgoing changes a copy of every message that is sent.
func (w *wrapped) onOutgoing(f func(*broker.Outgoing)) {
	w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
		ms = append([]broker.Outgoing(nil), ms...)
		for i := range ms {
			ms[i].Meta = ms[i].Meta.Clone()
			f(&ms[i])
		}
		return w.Broker.Send(ctx, ms)
	}
}

// onHold changes a copy of every entry of Nack and Extend.
func (w *wrapped) onHold(f func(h *broker.Hold, limit int64)) {
	l := w.Broker.Limits()
	change := func(hs []broker.Hold, limit int64) []broker.Hold {
		hs = append([]broker.Hold(nil), hs...)
		for i := range hs {
			f(&hs[i], limit)
		}
		return hs
	}
	w.nack = func(ctx context.Context, hs []broker.Hold) error {
		return w.Broker.Nack(ctx, change(hs, int64(l.MaxNack)))
	}
	w.extend = func(ctx context.Context, hs []broker.Hold) error {
		return w.Broker.Extend(ctx, change(hs, int64(l.MaxHold)))
	}
}

// harness gives brokers of preset p, spoiled.
func harness(p membroker.Preset, spoil func(*wrapped)) Harness {
	h := Harness{
		Virtual: true,
		Open: func(t testing.TB, o QueueOptions) Queue {
			options := membroker.Options{Preset: p, Visibility: o.Visibility}
			var q Queue
			if o.MaxReceives > 0 {
				letters := open(t, options)
				options.Redrive = &membroker.Redrive{MaxReceives: o.MaxReceives, To: letters}
				q.DeadLetters = letters
			}
			w := &wrapped{Broker: open(t, options), refusal: broker.ErrThrottled}
			if spoil != nil {
				spoil(w)
			}
			q.Broker, q.Close, q.SendRaw = w, w.Close, w.SendRaw
			q.Throttle = func(on bool) { w.busy = on }
			return q
		},
		Missing: func(t testing.TB) broker.Broker {
			w := &wrapped{Broker: open(t, membroker.Options{Preset: p})}
			w.receive = func(context.Context, broker.ReceiveOptions) ([]*broker.Message, error) {
				return nil, broker.ErrNotFound
			}
			w.send = func(context.Context, []broker.Outgoing) ([]string, error) { return nil, broker.ErrNotFound }
			return w
		},
	}
	if p == membroker.SQSFIFO {
		h.DedupWindow = fifoWindow
	}
	return h.withDefaults()
}

func open(t testing.TB, o membroker.Options) *membroker.Broker {
	return must.Get(membroker.New(&o))
}
