package brokertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/suite"
)

// fault is a driver that is wrong in one way.
type fault struct {
	name   string
	preset membroker.Preset
	// fails names the cases that must find it.
	fails   string
	spoil   func(*wrapped)
	harness func(*Harness)
}

// suite are the cases, on the driver that is wrong.
func (f *fault) suite() *suite.Suite[*env, QueueOptions] {
	h := harness(f.preset, f.spoil)
	if f.harness != nil {
		f.harness(&h)
	}
	return h.suite()
}

const sqs, fifo = membroker.SQSStandard, membroker.SQSFIFO

func faults() []fault {
	return slices.Concat(settleFaults(), losingFaults(), staleFaults(), batchFaults(), groupFaults(), contentFaults(), metaFaults(), otherFaults())
}

func settleFaults() []fault {
	return []fault{
		{
			name: "acks do nothing", preset: sqs, fails: "acked-is-gone batch-ack-by-position full-batches",
			spoil: func(w *wrapped) { w.ack = func(context.Context, []broker.Receipt) error { return nil } },
		},
		{
			name: "expiry comes late", preset: fifo, fails: "expiry-redelivers expired-head-comes-first",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					o.Visibility = time.Hour
					ms, err := w.Broker.Receive(ctx, o)
					for _, m := range ms {
						m.Deadline = time.Now().Add(30 * time.Second)
					}
					return ms, err
				}
			},
		},
		{
			name: "expiry comes early", preset: sqs, fails: "expiry-redelivers",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					o.Visibility = 29 * time.Second
					ms, err := w.Broker.Receive(ctx, o)
					for _, m := range ms {
						m.Deadline = time.Now().Add(30 * time.Second)
					}
					return ms, err
				}
			},
		},
		{
			name: "deadline is late", preset: sqs, fails: "deadline-is-early",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) { m.Deadline = time.Now().Add(30*time.Second + 1) })
			},
		},
		{
			name: "deadline is far too early", preset: sqs, fails: "deadline-is-early",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) { m.Deadline = time.Now().Add(20 * time.Second) })
			},
		},
		{
			name: "deadline counts a visibility that was ignored", preset: sqs, fails: "receive-chooses-visibility",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					asked := o.Visibility
					o.Visibility = 0
					ms, err := w.Broker.Receive(ctx, o)
					for _, m := range ms {
						m.Deadline = time.Now().Add(asked)
					}
					return ms, err
				}
			},
		},
		{
			name: "extensions do nothing", preset: sqs, fails: "extension-keeps-hidden longest-extension batch-extend-by-position",
			spoil: func(w *wrapped) { w.extend = func(context.Context, []broker.Hold) error { return nil } },
		},
		{name: "a late extension hides", preset: sqs, fails: "late-extension-never-hides", spoil: lateExtensionHides},
		{
			name: "what is beyond the limits is clamped", preset: sqs, fails: "hold-beyond-limits nack-beyond-limit",
			spoil: func(w *wrapped) {
				w.onHold(func(h *broker.Hold, limit int64) { h.For = max(time.Second, min(h.For, time.Duration(limit))) })
			},
		},
		{
			name: "a delay beyond the limit is clamped", preset: sqs, fails: "delay-beyond-limit",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) { o.Delay = min(o.Delay, w.Broker.Limits().MaxDelay) })
			},
		},
		{
			name: "nothing ends a hold", preset: membroker.Memory, fails: "hold-ends-at-max-total",
			spoil: func(w *wrapped) {
				w.limits = func(l broker.Limits) broker.Limits {
					l.MaxTotal, l.MaxHold = time.Hour, time.Hour
					return l
				}
				first := map[string]time.Time{}
				w.extend = func(ctx context.Context, hs []broker.Hold) error {
					for _, h := range hs {
						if first[string(h.Receipt)].IsZero() {
							first[string(h.Receipt)] = time.Now()
							continue
						}
					}
					return w.Broker.Extend(ctx, holds([]broker.Receipt{hs[0].Receipt}, 2*time.Hour))
				}
			},
		},
		{
			name: "extends though it says that it cannot", preset: sqs, fails: "extension-unsupported",
			spoil: func(w *wrapped) {
				w.limits = func(l broker.Limits) broker.Limits { l.Extends = false; return l }
			},
		},
		{
			name: "late acks claim success", preset: membroker.Memory, fails: "late-ack-tells-the-truth",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error { _ = w.Broker.Ack(ctx, rs); return nil }
			},
		},
		{
			name: "a nack brings an acked message back", preset: sqs, fails: "settled-stays-settled",
			spoil: func(w *wrapped) {
				w.nack = func(ctx context.Context, hs []broker.Hold) error {
					_, err := w.Broker.Send(ctx, []broker.Outgoing{{Body: []byte("again")}})
					return err
				}
			},
		},
		{
			name: "attempts are constant", preset: sqs, fails: "attempts-rise",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.Attempt = 1 }) },
		},
		{
			name: "nacks do nothing", preset: sqs,
			fails: "nack-zero-is-immediate nack-delay-honoured batch-nack-by-position",
			spoil: func(w *wrapped) { w.nack = func(context.Context, []broker.Hold) error { return nil } },
		},
		{
			name: "nack delays are ignored", preset: fifo, fails: "nack-delay-honoured longest-nack failed-head-holds-group",
			spoil: func(w *wrapped) {
				w.nack = func(ctx context.Context, hs []broker.Hold) error {
					hs = slices.Clone(hs)
					for i := range hs {
						hs[i].For = 0
					}
					return w.Broker.Nack(ctx, hs)
				}
			},
		},
		{
			name: "send delays are ignored", preset: sqs, fails: "delay-on-send longest-delay depth",
			spoil: func(w *wrapped) { w.onOutgoing(func(o *broker.Outgoing) { o.Delay = 0 }) },
		},
	}
}

// lateExtensionHides does what an emulator may do and the contract forbids.
func lateExtensionHides(w *wrapped) {
	var last *broker.Message
	var hidden time.Time
	w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
		if left := time.Until(hidden); left > 0 {
			if o.Wait > 0 && o.Wait < left {
				<-time.After(o.Wait)
			} else if o.Wait > 0 {
				<-time.After(left)
			}
			return nil, nil
		}
		ms, err := w.Broker.Receive(ctx, o)
		if len(ms) > 0 {
			last = ms[0]
		}
		return ms, err
	}
	w.extend = func(ctx context.Context, hs []broker.Hold) error {
		if last != nil && time.Now().After(last.Deadline) {
			hidden = time.Now().Add(hs[0].For)
		}
		return w.Broker.Extend(ctx, hs)
	}
}

// receiptsFollow lets a receipt stand for the message instead of the delivery.
func receiptsFollow(w *wrapped) {
	var mu sync.Mutex
	id, newest := map[broker.Receipt]string{}, map[string]broker.Receipt{}
	w.onMessage(func(m *broker.Message) {
		mu.Lock()
		defer mu.Unlock()
		id[m.Receipt], newest[m.ID] = m.ID, m.Receipt
	})
	follow := func(r broker.Receipt) broker.Receipt {
		mu.Lock()
		defer mu.Unlock()
		return newest[id[r]]
	}
	w.ack = func(ctx context.Context, rs []broker.Receipt) error {
		rs = slices.Clone(rs)
		for i := range rs {
			rs[i] = follow(rs[i])
		}
		return w.Broker.Ack(ctx, rs)
	}
	w.onHold(func(h *broker.Hold, _ int64) { h.Receipt = follow(h.Receipt) })
}
