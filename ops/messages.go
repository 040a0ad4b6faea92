package ops

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// This file owns looking at messages of a live queue, sending one, and emptying a queue. Tools call
// it; every message that it receives is given back or acked before it returns.

// Bounds of Peek and Empty.
const (
	// MaxPeek is how many messages one Peek receives at most.
	MaxPeek = 100
	// peekHold is how long a message stays hidden when the program dies while it looks.
	peekHold = 30 * time.Second
)

// PeekOptions say how many messages are looked at.
type PeekOptions struct {
	// Max is how many at most. Required; at most [MaxPeek].
	Max int
	// Force also looks at a queue that keeps the order of groups.
	Force bool
}

// Peek receives some messages and gives them back at once. Each has one receive more then, which a
// queue with a redrive policy counts. A queue that keeps the order of groups is refused without
// Force, because its groups stand still meanwhile; the error wraps [ErrRefused].
//
// A queue that is a [broker.Peeker], as one in a database, is looked at without a receive. It shows
// messages that are hidden as well, such as one that its workers keep back, and of a group the head
// alone.
func (o *Ops) Peek(ctx context.Context, queue string, po PeekOptions) ([]*broker.Message, error) {
	t, err := o.target(queue)
	if err != nil {
		return nil, err
	}
	q, err := t.queue()
	if err != nil {
		return nil, err
	}
	n := po.Max
	if n < 1 || n > MaxPeek {
		return nil, fmt.Errorf("%w: PeekOptions.Max is %d, want 1 to %d", ErrRefused, n, MaxPeek)
	}
	if p, ok := broker.As[broker.Peeker](q); ok {
		var ms []*broker.Message
		for m, err := range p.Peek(ctx, n) {
			if err != nil {
				return ms, err
			}
			ms = append(ms, o.shown(m))
		}
		return ms, nil
	}
	if q.Limits().OrderedGroups && !po.Force {
		return nil, fmt.Errorf("%w: %s keeps the order of groups, and those of the messages that are looked at would stand still", ErrRefused, t.Name)
	}
	ms, err := receive(ctx, q, n, nil)
	err = errors.Join(err, giveBack(ctx, q, ms))
	for i, m := range ms {
		ms[i] = o.shown(m)
	}
	return ms, err
}

// shown is a message as people may see it: a copy without its receipt.
func (o *Ops) shown(m *broker.Message) *broker.Message {
	c := *m
	c.Receipt, c.Deadline = "", time.Time{}
	if o.o.Redact != nil {
		c.Body, c.Attributes, c.Meta = bytes.Clone(m.Body), maps.Clone(m.Attributes), m.Meta.Clone()
		o.o.Redact(&c)
	}
	return &c
}

// receive takes up to n messages. It ends where a receive brings nothing new: one that waits has
// looked everywhere, of those that do not it makes a few.
func receive(ctx context.Context, b broker.Receiver, n int, seen map[string]bool) ([]*broker.Message, error) {
	l := b.Limits()
	hold := peekHold
	if l.MaxHold > 0 {
		hold = min(hold, l.MaxHold)
	}
	hold = max(hold, l.MinHold)
	if seen == nil {
		seen = map[string]bool{}
	}
	wait, most := min(time.Second, l.MaxWait), 1
	if wait == 0 {
		most = 3
	}
	var all []*broker.Message
	for empty := 0; len(all) < n && empty < most; {
		got, err := b.Receive(ctx, broker.ReceiveOptions{Max: min(n-len(all), max(1, l.ReceiveBatch)), Visibility: hold, Wait: wait})
		if err != nil {
			return all, err
		}
		fresh := 0
		for _, m := range got {
			if !seen[m.ID] {
				fresh++
			}
			seen[m.ID] = true
		}
		all = append(all, got...)
		if fresh == 0 {
			empty++
		}
	}
	return all, nil
}

// giveBack nacks messages, so that they are seen at once. It goes on where ctx has ended, because
// they are hidden until then.
func giveBack(ctx context.Context, b broker.Receiver, ms []*broker.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	most := max(1, b.Limits().SettleBatch)
	var errs []error
	for from := 0; from < len(ms); from += most {
		part := ms[from:min(from+most, len(ms))]
		hs := make([]broker.Hold, len(part))
		for i, m := range part {
			hs[i] = broker.Hold{Receipt: m.Receipt}
		}
		errs = append(errs, b.Nack(ctx, hs))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("some messages could not be given back, and are hidden for up to %v: %w", peekHold, err)
	}
	return nil
}

// Send sends one message, as [onceq.SendOne] does. It writes an audit record where the target has a
// store.
func (o *Ops) Send(ctx context.Context, queue string, m *broker.Outgoing, reason string) (audit string, err error) {
	t, err := o.target(queue)
	if err != nil {
		return "", err
	}
	q, err := t.queue()
	if err != nil {
		return "", err
	}
	if m == nil {
		return "", errors.New("ops: Send: the message is nil")
	}
	if t.Store == nil {
		return "", onceq.SendOne(ctx, q, m)
	}
	ms := []broker.Outgoing{*m}
	if err := onceq.Fill(ms); err != nil {
		return "", err
	}
	*m = ms[0]
	e := AuditEntry{Act: "send", Reason: cmp.Or(reason, "sent by hand"), Queue: t.known, Object: m.Meta.Key, Detail: map[string]string{"type": m.Meta.Type, "id": m.Meta.ID}}
	return o.act(ctx, t.Store, e, func(ctx context.Context) (map[string]string, error) {
		return nil, onceq.SendOne(ctx, q, m)
	})
}

// EmptyOptions bound what Empty takes away.
type EmptyOptions struct {
	// Max is how many messages to remove at most. Required.
	Max int
	// Each is called with a copy of each message before it is removed; after its error the message
	// stays, and nothing more is removed. Required: what is removed is gone, so keep it.
	Each func(*broker.Message) error
	// Reason is why. Required.
	Reason string
}

// Empty removes messages of a live queue, whose jobs then never run. It answers how many are gone,
// also beside an error. Messages that a worker holds, and delayed ones, stay.
func (o *Ops) Empty(ctx context.Context, queue string, eo EmptyOptions) (removed int, audit string, err error) {
	t, err := o.target(queue)
	if err != nil {
		return 0, "", err
	}
	q, err := t.queue()
	if err != nil {
		return 0, "", err
	}
	if eo.Max < 1 || eo.Each == nil {
		return 0, "", fmt.Errorf("%w: EmptyOptions.Max and Each are required", ErrRefused)
	}
	e := AuditEntry{Act: "purge queue", Reason: eo.Reason, Queue: t.known, Detail: map[string]string{"max": fmt.Sprint(eo.Max)}}
	audit, err = o.act(ctx, t.Store, e, func(ctx context.Context) (map[string]string, error) {
		var err error
		removed, err = empty(ctx, q, &eo)
		return map[string]string{"removed": fmt.Sprint(removed)}, err
	})
	return removed, audit, err
}

func empty(ctx context.Context, q broker.Receiver, eo *EmptyOptions) (removed int, err error) {
	most := max(1, q.Limits().SettleBatch)
	for removed < eo.Max {
		ms, err := receive(ctx, q, min(most, eo.Max-removed), nil)
		if err != nil || len(ms) == 0 {
			return removed, errors.Join(err, giveBack(ctx, q, ms))
		}
		for i, m := range ms {
			c := *m
			c.Receipt = ""
			if err := eo.Each(&c); err != nil {
				n, failed := ack(ctx, q, ms[:i])
				return removed + n, errors.Join(err, failed, giveBack(ctx, q, ms[i:]))
			}
		}
		n, err := ack(ctx, q, ms)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// ack answers how many were acked.
func ack(ctx context.Context, q broker.Receiver, ms []*broker.Message) (int, error) {
	if len(ms) == 0 {
		return 0, nil
	}
	rs := make([]broker.Receipt, len(ms))
	for i, m := range ms {
		rs[i] = m.Receipt
	}
	err := q.Ack(ctx, rs)
	n := 0
	for i := range ms {
		if broker.ErrAt(err, i) == nil {
			n++
		}
	}
	return n, err
}
