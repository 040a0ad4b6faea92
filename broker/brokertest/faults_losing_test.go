package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/retry"
)

// losingFaults are drivers that lose messages or repeat jobs, each by one omission.
func losingFaults() []fault {
	return []fault{
		{
			name: "an ack after an extension does nothing", preset: sqs, fails: "settles-after-extension",
			spoil: func(w *wrapped) {
				extended := noted(w)
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					return w.Broker.Ack(ctx, slices.DeleteFunc(slices.Clone(rs), extended))
				}
			},
		},
		{
			name: "a nack after an extension does nothing", preset: sqs, fails: "settles-after-extension full-batches",
			spoil: func(w *wrapped) {
				extended := noted(w)
				w.nack = func(ctx context.Context, hs []broker.Hold) error {
					return w.Broker.Nack(ctx, slices.DeleteFunc(slices.Clone(hs), func(h broker.Hold) bool { return extended(h.Receipt) }))
				}
			},
		},
		{
			name: "a cancelled receive hands out one of many", preset: sqs, fails: "cancelled-receive-strands-nothing",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					ms, err := w.Broker.Receive(ctx, o)
					if len(ms) > 1 {
						retry.Rest(context.WithoutCancel(ctx), time.Microsecond) // the answer is on its way
						if ctx.Err() != nil {
							ms = ms[:1]
						}
					}
					return ms, err
				}
			},
		},
		{
			name: "calls with an ended context succeed and do nothing", preset: sqs, fails: "ended-context",
			spoil: func(w *wrapped) {
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					if ctx.Err() != nil {
						return slices.Repeat([]string{"id"}, len(ms)), nil
					}
					return w.Broker.Send(ctx, ms)
				}
			},
		},
		{
			name: "an ack with an ended context succeeds and does nothing", preset: sqs, fails: "ended-context",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					if ctx.Err() != nil {
						return nil
					}
					return w.Broker.Ack(ctx, rs)
				}
			},
		},
		{
			name: "an extension with an ended context succeeds and does nothing", preset: sqs, fails: "ended-context",
			spoil: func(w *wrapped) {
				w.extend = func(ctx context.Context, hs []broker.Hold) error {
					if ctx.Err() != nil {
						return nil
					}
					return w.Broker.Extend(ctx, hs)
				}
			},
		},
		{
			name: "a nack with an ended context succeeds and does nothing", preset: sqs, fails: "ended-context",
			spoil: func(w *wrapped) {
				w.nack = func(ctx context.Context, hs []broker.Hold) error {
					if ctx.Err() != nil {
						return nil
					}
					return w.Broker.Nack(ctx, hs)
				}
			},
		},
		{
			name: "the cause of an ended call is hidden", preset: sqs, fails: "ended-context",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					if err := w.Broker.Ack(ctx, rs); err != nil {
						return errors.New("ack failed")
					}
					return nil
				}
			},
		},
		{
			name: "an extension of a full batch leaves one out", preset: sqs, fails: "full-extension",
			spoil: func(w *wrapped) {
				w.extend = func(ctx context.Context, hs []broker.Hold) error {
					return w.Broker.Extend(ctx, hs[:min(len(hs), 9)])
				}
			},
		},
		{
			name: "the receipt of an acked message acks another one", preset: sqs, fails: "settled-stays-settled",
			spoil: func(w *wrapped) {
				var acked []broker.Receipt
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					again := slices.ContainsFunc(rs, func(r broker.Receipt) bool { return slices.Contains(acked, r) })
					if acked = append(acked, rs...); !again {
						return w.Broker.Ack(ctx, rs)
					}
					ms, err := w.Broker.Receive(ctx, broker.ReceiveOptions{Max: 1})
					for _, m := range ms {
						err = errors.Join(err, w.Broker.Ack(ctx, []broker.Receipt{m.Receipt}))
					}
					return err
				}
			},
		},
		{
			name: "metadata is lost with a delay", preset: sqs, fails: "delay-on-send longest-delay",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) {
					if o.Delay > 0 {
						o.Meta = nil
					}
				})
			},
		},
		{
			name: "attributes of a batch are swapped", preset: sqs, fails: "batch-keeps-entries-apart",
			spoil: func(w *wrapped) {
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					ms = slices.Clone(ms)
					for i := 1; i < len(ms); i++ {
						ms[i].Attributes, ms[i-1].Attributes = ms[i-1].Attributes, ms[i].Attributes
					}
					return w.Broker.Send(ctx, ms)
				}
			},
		},
		{
			name: "equal bodies are duplicates", preset: fifo, fails: "equal-messages",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) {
					if o.DedupID == "" {
						o.DedupID = fmt.Sprintf("%.60x", o.Body)
					}
				})
			},
		},
		{
			name: "duplicates are told by group", preset: fifo, fails: "dedup-scope",
			spoil: duplicatesByGroup,
		},
		{
			name: "duplicates are told across groups", preset: fifo, fails: "dedup-scope",
			harness: func(h *Harness) { h.DedupPerGroup = true },
		},
		{name: "prefetches, and hands out what has run out", preset: sqs, fails: "receive-takes-no-more", spoil: prefetches(false)},
		{name: "prefetches, and drops what has run out", preset: sqs, fails: "receive-takes-no-more depth", spoil: prefetches(true)},
		{
			name: "a long poll passes over the visibility asked for", preset: sqs, fails: "receive-chooses-visibility",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					asked := o.Visibility
					if ms, err := w.Broker.Receive(ctx, broker.ReceiveOptions{Max: o.Max, Visibility: asked}); len(ms) > 0 || o.Wait == 0 {
						return ms, err
					}
					o.Visibility = 0
					ms, err := w.Broker.Receive(ctx, o)
					for _, m := range ms {
						if asked > 0 {
							m.Deadline = time.Now().Add(asked)
						}
					}
					return ms, err
				}
			},
		},
		{
			name: "a receipt twice in a batch fails it", preset: sqs, fails: "receipt-twice-in-a-batch",
			spoil: func(w *wrapped) {
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					if len(slices.Compact(slices.Sorted(slices.Values(rs)))) < len(rs) {
						return errors.New("BatchEntryIdsNotDistinct")
					}
					return w.Broker.Ack(ctx, rs)
				}
			},
		},
		{
			name: "attempts begin anew after a delay", preset: sqs, fails: "attempts-rise",
			spoil: func(w *wrapped) {
				of, before := map[broker.Receipt]*broker.Message{}, map[string]int{}
				w.onMessage(func(m *broker.Message) {
					seen := *m
					of[m.Receipt] = &seen
					m.Attempt -= before[m.ID]
				})
				w.nack = func(ctx context.Context, hs []broker.Hold) error {
					if m := of[hs[0].Receipt]; m != nil && hs[0].For > 0 {
						before[m.ID] = m.Attempt
					}
					return w.Broker.Nack(ctx, hs)
				}
			},
		},
	}
}

// noted notes which receipts were extended, and answers whether one was.
func noted(w *wrapped) func(broker.Receipt) bool {
	extended := map[broker.Receipt]bool{}
	w.extend = func(ctx context.Context, hs []broker.Hold) error {
		for _, h := range hs {
			extended[h.Receipt] = true
		}
		return w.Broker.Extend(ctx, hs)
	}
	return func(r broker.Receipt) bool { return extended[r] }
}

func duplicatesByGroup(w *wrapped) {
	w.onOutgoing(func(o *broker.Outgoing) {
		if o.DedupID != "" {
			o.DedupID += o.Group
		}
	})
}

// prefetches receives ten, and hands them out one by one.
func prefetches(drops bool) func(*wrapped) {
	return func(w *wrapped) {
		var mu sync.Mutex
		var held []*broker.Message
		w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
			mu.Lock()
			if drops {
				held = slices.DeleteFunc(held, func(m *broker.Message) bool { return !time.Now().Before(m.Deadline) })
			}
			if n := min(o.Max, len(held)); n > 0 {
				ms := held[:n:n]
				held = held[n:]
				mu.Unlock()
				return ms, nil
			}
			mu.Unlock()
			most := o.Max
			o.Max = 10
			ms, err := w.Broker.Receive(ctx, o)
			if len(ms) > most {
				mu.Lock()
				held = append(held, ms[most:]...)
				mu.Unlock()
				ms = ms[:most:most]
			}
			return ms, err
		}
	}
}

const staleCases = "stale-ack stale-nack stale-extension"

// staleFaults are drivers whose receipts of earlier deliveries do more than the contract allows.
func staleFaults() []fault {
	void := func(h *Harness) { h.StaleReceiptsVoid = true }
	// instead does something else to the message where its old receipt is used.
	instead := func(do func(w *wrapped, newest broker.Receipt) error) func(*wrapped) {
		return func(w *wrapped) {
			id, newest := map[broker.Receipt]string{}, map[string]broker.Receipt{}
			w.onMessage(func(m *broker.Message) { id[m.Receipt], newest[m.ID] = m.ID, m.Receipt })
			use := func(r broker.Receipt, as func() error) error {
				if n := newest[id[r]]; n != r {
					return do(w, n)
				}
				return as()
			}
			w.ack = func(ctx context.Context, rs []broker.Receipt) error {
				return use(rs[0], func() error { return w.Broker.Ack(ctx, rs) })
			}
			w.nack = func(ctx context.Context, hs []broker.Hold) error {
				return use(hs[0].Receipt, func() error { return w.Broker.Nack(ctx, hs) })
			}
			w.extend = func(ctx context.Context, hs []broker.Hold) error {
				return use(hs[0].Receipt, func() error { return w.Broker.Extend(ctx, hs) })
			}
		}
	}
	background := context.Background()
	return []fault{
		{name: "receipts follow the message where the service promises that they do not", preset: sqs, fails: staleCases, spoil: receiptsFollow, harness: void},
		{
			name: "an old receipt removes the message and is answered as expired", preset: sqs, fails: staleCases,
			spoil: instead(func(w *wrapped, newest broker.Receipt) error {
				return errors.Join(broker.ErrReceiptExpired, w.Broker.Ack(background, []broker.Receipt{newest}))
			}),
		},
		{
			name: "an old receipt removes the message, whatever the call", preset: sqs, fails: "stale-nack stale-extension",
			spoil: instead(func(w *wrapped, newest broker.Receipt) error {
				return w.Broker.Ack(background, []broker.Receipt{newest})
			}),
		},
		{
			name: "an old receipt shows the message, whatever the call", preset: sqs, fails: "stale-ack stale-extension",
			spoil: instead(func(w *wrapped, newest broker.Receipt) error {
				return w.Broker.Nack(background, []broker.Hold{{Receipt: newest}})
			}),
		},
		{
			name: "an old receipt hides the message for a while", preset: sqs, fails: "stale-ack stale-nack stale-extension",
			spoil: instead(func(w *wrapped, newest broker.Receipt) error {
				return w.Broker.Extend(background, []broker.Hold{{Receipt: newest, For: 29 * time.Second}})
			}),
		},
		{
			name: "an old receipt shows the message too late", preset: sqs, fails: "stale-nack",
			spoil: instead(func(w *wrapped, newest broker.Receipt) error {
				return w.Broker.Nack(background, []broker.Hold{{Receipt: newest, For: 20 * time.Second}})
			}),
		},
	}
}
