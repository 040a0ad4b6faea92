package brokertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
)

// shifted moves the answers of a batch by one position.
func shifted(err error) error {
	var b *broker.BatchError
	if !errors.As(err, &b) || len(b.Errs) < 2 {
		return err
	}
	return broker.JoinEntries(append(b.Errs[1:len(b.Errs):len(b.Errs)], b.Errs[0]))
}

func batchFaults() []fault {
	return []fault{
		{
			name: "limits change", preset: sqs, fails: "limits-are-sane",
			spoil: func(w *wrapped) {
				n := 10
				w.limits = func(l broker.Limits) broker.Limits { n++; l.ReceiveBatch = n; return l }
			},
		},
		{
			name: "limits contradict each other", preset: sqs, fails: "limits-are-sane",
			spoil: func(w *wrapped) {
				w.limits = func(l broker.Limits) broker.Limits { l.MinHold = l.MaxHold + 1; return l }
			},
		},
		{
			name: "ids change", preset: sqs, fails: "ids-are-stable",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.ID += string(m.Receipt) }) },
		},
		{
			name: "receipts stay", preset: sqs, fails: "ids-are-stable",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) { m.Receipt = broker.Receipt("receipt-" + m.ID) })
				w.nack = func(context.Context, []broker.Hold) error { <-time.After(30 * time.Second); return nil }
			},
		},
		{
			name: "batch answers are shifted by one", preset: fifo,
			fails: "batch-ack-by-position batch-nack-by-position batch-extend-by-position body-over-limit attributes-over-limit " +
				"letter-that-does-not-fit missing-group",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error { return shifted(w.Broker.Ack(ctx, rs)) }
				w.nack = func(ctx context.Context, hs []broker.Hold) error { return shifted(w.Broker.Nack(ctx, hs)) }
				w.extend = func(ctx context.Context, hs []broker.Hold) error { return shifted(w.Broker.Extend(ctx, hs)) }
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					ids, err := w.Broker.Send(ctx, ms)
					return ids, shifted(err)
				}
			},
		},
		{
			name: "a bad entry stops its batch", preset: fifo,
			fails: "batch-ack-by-position batch-nack-by-position batch-extend-by-position",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error { _ = w.Broker.Ack(ctx, rs[:1]); return nil }
				w.nack = func(ctx context.Context, hs []broker.Hold) error { _ = w.Broker.Nack(ctx, hs[:1]); return nil }
				w.extend = func(ctx context.Context, hs []broker.Hold) error { _ = w.Broker.Extend(ctx, hs[:1]); return nil }
			},
		},
		{
			name: "batches are smaller than their limit", preset: sqs, fails: "full-batches",
			spoil: func(w *wrapped) {
				w.limits = func(l broker.Limits) broker.Limits { l.SettleBatch++; return l }
			},
		},
		{
			name: "an empty batch is an error", preset: sqs, fails: "empty-batch",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					if len(rs) == 0 {
						return broker.ErrUnsupported
					}
					return w.Broker.Ack(ctx, rs)
				}
			},
		},
		{
			name: "oversize batches are taken in part", preset: sqs, fails: "oversize-batch",
			spoil: func(w *wrapped) {
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					if len(ms) <= 10 {
						return w.Broker.Send(ctx, ms)
					}
					_, err := w.Broker.Send(ctx, ms[:10])
					return nil, errors.Join(broker.ErrUnsupported, err)
				}
			},
		},
		{
			name: "an oversize ack is applied", preset: sqs, fails: "oversize-batch",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					if len(rs) > 10 {
						_ = w.Broker.Ack(ctx, rs[:10])
						return broker.ErrUnsupported
					}
					return w.Broker.Ack(ctx, rs)
				}
			},
		},
		{
			name: "brings one more than Max", preset: sqs, fails: "receive-max",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					o.Max = min(o.Max+1, 10)
					return w.Broker.Receive(ctx, o)
				}
			},
		},
		{
			name: "drops what is beyond Max", preset: sqs, fails: "receive-max",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					most := o.Max
					o.Max = 10
					ms, err := w.Broker.Receive(ctx, o)
					return ms[:min(most, len(ms))], err
				}
			},
		},
		{
			name: "does not wait", preset: sqs, fails: "receive-wait",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					o.Wait = 0
					return w.Broker.Receive(ctx, o)
				}
			},
		},
		{
			name: "always waits to the end", preset: sqs, fails: "receive-wait",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					if o.Wait < 0 {
						o.Wait = 20 * time.Second
					}
					retry.Rest(context.Background(), o.Wait)
					o.Wait = 0
					return w.Broker.Receive(ctx, o)
				}
			},
		},
	}
}

func groupFaults() []fault {
	return []fault{
		{
			name: "answers are in reverse", preset: fifo, fails: "groups-in-order hidden-message-blocks-later-ones-only",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					ms, err := w.Broker.Receive(ctx, o)
					slices.Reverse(ms)
					return ms, err
				}
			},
		},
		{
			name: "groups are only carried", preset: membroker.Memory,
			fails: "failed-head-holds-group expired-head-comes-first hidden-message-blocks-later-ones-only",
			spoil: func(w *wrapped) { w.onOutgoing(func(o *broker.Outgoing) { o.Group = "" }) },
		},
		{
			name: "a held message stops all groups", preset: membroker.Memory, fails: "failed-head-holds-group",
			spoil: func(w *wrapped) { w.onOutgoing(func(o *broker.Outgoing) { o.Group = "one" }) },
		},
		{
			name: "the group is not told", preset: fifo, fails: "groups-in-order redelivery-is-unchanged",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.Group = "" }) },
		},
		{
			name: "a missing group is made up", preset: fifo, fails: "missing-group",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) {
					if o.Group == "" {
						o.Group = "made-up"
					}
				})
			},
		},
		{
			name: "no deduplication where there is a window", preset: membroker.Memory, fails: "dedup-id",
			harness: func(h *Harness) { h.DedupWindow = fifoWindow },
		},
		{
			name: "deduplication where there is no window", preset: fifo, fails: "dedup-id",
			harness: func(h *Harness) { h.DedupWindow = 0 },
		},
		{
			name: "deduplication never ends", preset: fifo, fails: "dedup-id",
			harness: func(h *Harness) { h.DedupWindow = time.Minute },
		},
	}
}
