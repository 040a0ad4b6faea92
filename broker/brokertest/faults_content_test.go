package brokertest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

func contentFaults() []fault {
	return []fault{
		{
			name: "says that it carries more than it does", preset: sqs, fails: "body-at-limit attributes-at-limit",
			spoil: func(w *wrapped) {
				w.limits = func(l broker.Limits) broker.Limits { l.MaxBody++; l.MaxAttributes++; return l }
			},
		},
		{
			name: "takes more than it says", preset: sqs, fails: "body-over-limit attributes-over-limit",
			spoil: func(w *wrapped) {
				w.limits = func(l broker.Limits) broker.Limits { l.MaxBody -= 10; l.MaxAttributes -= 2; return l }
			},
		},
		{
			name: "cuts error texts that do not fit", preset: sqs, fails: "letter-that-does-not-fit",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) {
					if o.Meta != nil && o.Meta.Dead != nil {
						o.Body = o.Body[:min(len(o.Body), 1<<19)]
						o.Meta.Dead.FirstErr, o.Meta.Dead.LastErr = "cut", "cut"
					}
				})
			},
		},
		{
			name: "drops a letter that does not fit", preset: sqs, fails: "letter-that-does-not-fit body-over-limit",
			spoil: func(w *wrapped) {
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					ids, err := w.Broker.Send(ctx, ms)
					for i := range ids {
						if errors.Is(broker.ErrAt(err, i), broker.ErrTooLarge) {
							ids[i] = "dropped"
							err = nil
						}
					}
					return ids, err
				}
			},
		},
		{
			name: "an empty body is filled", preset: sqs, fails: "empty-body",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) {
					if len(o.Body) == 0 {
						o.Body = []byte(" ")
					}
				})
			},
		},
		{
			name: "bodies are made UTF-8", preset: sqs, fails: "any-bytes-in-bodies",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) { o.Body = bytes.ToValidUTF8(o.Body, []byte("\uFFFD")) })
			},
		},
		{
			name: "bodies are trimmed", preset: sqs, fails: "any-bytes-in-bodies",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.Body = bytes.TrimSpace(m.Body) }) },
		},
		{
			name: "control characters are lost in attributes", preset: sqs, fails: "any-text-in-attributes",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) {
					for name, v := range m.Attributes {
						m.Attributes[name] = strings.ReplaceAll(v, "\x00", "")
					}
				})
			},
		},
		{
			name: "empty attributes are lost", preset: sqs, fails: "any-text-in-attributes",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) {
					maps.DeleteFunc(m.Attributes, func(_, v string) bool { return v == "" })
				})
			},
		},
		{
			name: "attributes are lost", preset: sqs,
			fails: "strange-attribute-names redelivery-is-unchanged foreign-message attributes-at-limit sender-keeps-message",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) {
					for name := range m.Attributes {
						delete(m.Attributes, name)
						break
					}
				})
			},
		},
		{
			name: "attribute names lose their case", preset: sqs, fails: "strange-attribute-names",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) {
					for name, v := range maps.Clone(m.Attributes) {
						delete(m.Attributes, name)
						m.Attributes[strings.ToLower(name)] = v
					}
				})
			},
		},
		{
			name: "publishing time is that of the delivery", preset: sqs, fails: "redelivery-is-unchanged",
			spoil: func(w *wrapped) {
				n := time.Duration(0)
				w.onMessage(func(m *broker.Message) { n++; m.Published = m.Published.Add(n) })
			},
		},
		{
			name: "deliveries share memory", preset: sqs, fails: "receiver-owns-message",
			spoil: func(w *wrapped) {
				first := map[string]*broker.Message{}
				w.onMessage(func(m *broker.Message) {
					if f := first[m.ID]; f != nil {
						m.Body, m.Attributes, m.Meta = f.Body, f.Attributes, f.Meta
					}
					first[m.ID] = m
				})
			},
		},
		{
			name: "the sender's memory is kept", preset: sqs, fails: "sender-keeps-message",
			spoil: func(w *wrapped) {
				kept := map[string]broker.Outgoing{}
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					ids, err := w.Broker.Send(ctx, ms)
					for i, id := range ids {
						kept[id] = ms[i]
					}
					return ids, err
				}
				w.onMessage(func(m *broker.Message) { m.Meta = kept[m.ID].Meta })
			},
		},
		{
			name: "Send changes what it is given", preset: sqs, fails: "sender-keeps-message",
			spoil: func(w *wrapped) {
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					for _, m := range ms {
						m.Meta.BodyEncoding = "base64"
					}
					return w.Broker.Send(ctx, ms)
				}
				w.onMessage(func(m *broker.Message) { m.Meta.BodyEncoding = "" })
			},
		},
	}
}

func metaFaults() []fault {
	return []fault{
		{
			name: "metadata is made up", preset: sqs, fails: "no-metadata foreign-message",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) {
					if m.Meta == nil {
						m.Meta = &broker.Meta{ID: m.ID}
					}
				})
			},
		},
		{
			name: "times lose their milliseconds", preset: sqs, fails: "metadata-round-trip",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) {
					if m.Meta != nil {
						m.Meta.Created = m.Meta.Created.Truncate(time.Hour)
					}
				})
			},
		},
		{
			name: "a letter's fence is lost", preset: sqs, fails: "metadata-round-trip native-redrive",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) {
					if m.Meta != nil && m.Meta.Dead != nil {
						m.Meta.Dead.Fence = 0
					}
				})
			},
		},
		{
			name: "unknown members are lost", preset: sqs, fails: "metadata-round-trip newer-metadata-kept",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) {
					if o.Meta != nil {
						o.Meta.Extra = ""
					}
				})
			},
		},
		{
			name: "the version is lost", preset: sqs, fails: "newer-metadata-kept",
			spoil: func(w *wrapped) {
				w.onOutgoing(func(o *broker.Outgoing) {
					if o.Meta != nil {
						o.Meta.Version = 0
					}
				})
			},
		},
		{
			name: "the body's encoding is left set", preset: sqs, fails: "encoded-body",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) { m.Meta.BodyEncoding = "base64" })
			},
		},
		{
			name: "bad metadata passes for none", preset: sqs, fails: "bad-metadata",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.MetaErr = nil }) },
		},
		{
			name: "bad metadata is dropped", preset: sqs, fails: "bad-metadata",
			spoil: func(w *wrapped) {
				w.onMessage(func(m *broker.Message) { delete(m.Attributes, broker.MetaAttribute) })
			},
		},
	}
}

func otherFaults() []fault {
	return []fault{
		{
			name: "throttling is an expired receipt", preset: sqs, fails: "throttled",
			spoil: func(w *wrapped) { w.refusal = broker.ErrReceiptExpired },
		},
		{
			name: "throttling is both, and an expired receipt", preset: sqs, fails: "throttled",
			spoil: func(w *wrapped) { w.refusal = errors.Join(broker.ErrThrottled, broker.ErrReceiptExpired) },
		},
		{
			name: "throttling is an error without a name", preset: fifo, fails: "throttled",
			spoil: func(w *wrapped) { w.refusal = errors.New("slow down") },
		},
		{
			name: "a throttled ack is applied", preset: sqs, fails: "throttled",
			spoil: func(w *wrapped) {
				w.lets = "Ack"
				w.ack = func(ctx context.Context, rs []broker.Receipt) error {
					err := w.Broker.Ack(ctx, rs)
					if w.busy {
						return w.refusal
					}
					return err
				}
			},
		},
		{
			name: "a throttled nack is applied", preset: sqs, fails: "throttled",
			spoil: func(w *wrapped) {
				w.lets = "Nack"
				w.nack = func(ctx context.Context, hs []broker.Hold) error {
					err := w.Broker.Nack(ctx, hs)
					if w.busy {
						return w.refusal
					}
					return err
				}
			},
		},
		{
			name: "a throttled send is sent", preset: sqs, fails: "throttled",
			spoil: func(w *wrapped) {
				w.lets = "Send"
				w.send = func(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
					ids, err := w.Broker.Send(ctx, ms)
					if w.busy {
						return nil, w.refusal
					}
					return ids, err
				}
			},
		},
		{
			name: "nobody says when it was published", preset: sqs, fails: "published-is-the-send",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.Published = time.Time{} }) },
		},
		{
			name: "the time of publishing is an hour late", preset: fifo, fails: "published-is-the-send",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.Published = m.Published.Add(time.Hour) }) },
		},
		{
			name: "the time of publishing is that of the receive", preset: sqs, fails: "published-is-the-send",
			spoil: func(w *wrapped) { w.onMessage(func(m *broker.Message) { m.Published = time.Now() }) },
		},
		{
			name: "a cancelled receive drops what it brought", preset: sqs, fails: "cancelled-receive-strands-nothing",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					ms, err := w.Broker.Receive(ctx, o)
					if ctx.Err() != nil {
						return nil, ctx.Err()
					}
					return ms, err
				}
			},
		},
		{
			name: "a cancelled receive waits to its end", preset: sqs, fails: "cancelled-receive-strands-nothing",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					ms, err := w.Broker.Receive(context.WithoutCancel(ctx), o)
					if len(ms) == 0 && err == nil {
						err = ctx.Err()
					}
					return ms, err
				}
			},
		},
		{
			name: "a cancelled receive hides its cause", preset: sqs, fails: "cancelled-receive-strands-nothing",
			spoil: func(w *wrapped) {
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					ms, err := w.Broker.Receive(ctx, o)
					if err != nil {
						err = errors.New("poll failed")
					}
					return ms, err
				}
			},
		},
		{
			name: "a message goes to two receivers", preset: sqs, fails: "concurrent-use",
			spoil: func(w *wrapped) {
				var mu sync.Mutex
				var copied []*broker.Message
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					mu.Lock()
					ms := copied
					copied = nil
					mu.Unlock()
					if len(ms) > 0 {
						return ms, nil
					}
					ms, err := w.Broker.Receive(ctx, o)
					mu.Lock()
					defer mu.Unlock()
					copied = ms[:min(1, len(ms))]
					return ms, err
				}
			},
		},
		{
			name: "a message is lost", preset: sqs, fails: "concurrent-use",
			spoil: func(w *wrapped) {
				var mu sync.Mutex
				n := 0
				w.receive = func(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
					ms, err := w.Broker.Receive(ctx, o)
					mu.Lock()
					defer mu.Unlock()
					if n++; n == 5 && len(ms) > 0 {
						_ = w.Broker.Ack(ctx, []broker.Receipt{ms[0].Receipt})
						ms = ms[1:]
					}
					return ms, err
				}
			},
		},
		{
			name: "Close does nothing", preset: sqs, fails: "closed",
			harness: func(h *Harness) {
				inner := h.Open
				h.Open = func(t testing.TB, o QueueOptions) Queue {
					q := inner(t, o)
					q.Close = func() error { return nil }
					return q
				}
			},
		},
		{
			name: "a missing queue is empty", preset: sqs, fails: "missing-queue",
			harness: func(h *Harness) {
				h.Missing = func(t testing.TB) broker.Broker { return open(t, membroker.Options{}) }
			},
		},
		{
			name: "redrive comes a receive late", preset: sqs, fails: "native-redrive",
			harness: func(h *Harness) {
				inner := h.Open
				h.Open = func(t testing.TB, o QueueOptions) Queue {
					if o.MaxReceives > 0 {
						o.MaxReceives++
					}
					return inner(t, o)
				}
			},
		},
		{
			name: "depth counts held messages as visible", preset: sqs, fails: "depth",
			spoil: func(w *wrapped) {
				w.depth = func(d broker.Depth) broker.Depth {
					return broker.Depth{Visible: d.Visible + d.InFlight, Delayed: d.Delayed}
				}
			},
		},
	}
}
