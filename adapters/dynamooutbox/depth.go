package dynamooutbox

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns what operators ask: how many messages there are, and which. No message is handed
// out. It uses eventually consistent reads, at half the price. What this relay has handed out it
// reads under Outbox.mu.

const (
	// maxCount is where counting stops: reading a backlog costs its size.
	maxCount = 10_000
	maxPeek  = 1000
)

// Depth counts the messages, up to about 10,000 in all, and costs half a read unit for each 4 KB of
// them. Visible are those that are due, with those that wait behind their group's head. InFlight,
// and the delays of nacks among Delayed, are those of this Outbox: what another relay has handed
// out counts as visible. Oldest is when the oldest of them that is due was made, or became due.
func (b *Outbox) Depth(ctx context.Context) (broker.Depth, error) {
	if err := b.ready(ctx, callDepth, 1, 1); err != nil {
		return broker.Depth{}, err
	}
	var d broker.Depth
	parts := b.inTurn()
	for _, p := range parts {
		if err := b.count(ctx, p, &d, maxCount/len(parts)); err != nil {
			return broker.Depth{}, b.explain(ctx, callDepth, err)
		}
	}
	return d, nil
}

// count adds what is in the partition, up to most.
func (b *Outbox) count(ctx context.Context, p *partition, d *broker.Depth, most int) error {
	for from, n, more := regionGroup, 0, true; more && n < most; {
		items, cut, err := b.query(ctx, b.rest, p.pk, from, regionEnd, most-n, false, callTimeout)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, it := range items {
			from = textOf(it[attrSK]) + "\x00"
			due := dueOf(it)
			switch held, waits := b.outAt(p, it, now); {
			case held:
				d.InFlight++
			case waits || due.After(now):
				d.Delayed++
			default:
				d.Visible++
				if d.Oldest.IsZero() || due.Before(d.Oldest) {
					d.Oldest = due
				}
			}
		}
		n += len(items)
		more = cut
	}
	return nil
}

// dueOf is when the item became, or will be, due.
func dueOf(it item) time.Time {
	ms := max(numberOf(it[attrDue]), numberOf(it[attrAt]))
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// outAt reports whether this relay has handed the item out, or it waits for its nack's delay.
func (b *Outbox) outAt(p *partition, it item, now time.Time) (held, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := p.entries[textOf(it[attrSK])]
	if e == nil {
		return false, false
	}
	return e.isLive(now), now.Before(e.until)
}

// Peek shows up to n messages, 1 to 1,000, of a group its first one alone. It hands out nothing. A
// message that waits for its Delay, or that this Outbox has handed out or given back with a delay,
// comes behind the others, with the time until when. It reads up to n items of each partition.
func (b *Outbox) Peek(ctx context.Context, n int) iter.Seq2[*broker.Message, error] {
	return func(yield func(*broker.Message, error) bool) {
		if err := b.ready(ctx, callPeek, 1, 1); err != nil {
			yield(nil, err)
			return
		}
		if n < 1 || n > maxPeek {
			yield(nil, b.wrap(callPeek, unsupported("%d messages; it shows 1 to %d", n, maxPeek)))
			return
		}
		var all []seen
		for _, p := range b.inTurn() {
			ms, err := b.see(ctx, p, n)
			if err != nil {
				yield(nil, b.explain(ctx, callPeek, err))
				return
			}
			all = append(all, ms...)
		}
		slices.SortStableFunc(all, func(a, b seen) int {
			if hidden := b.m.Deadline.IsZero(); a.m.Deadline.IsZero() != hidden {
				if hidden {
					return 1
				}
				return -1
			}
			return a.due.Compare(b.due)
		})
		for _, s := range all[:min(n, len(all))] {
			if !yield(s.m, nil) {
				return
			}
		}
	}
}

// seen is a message that is shown.
type seen struct {
	m   *broker.Message
	due time.Time
}

func (b *Outbox) see(ctx context.Context, p *partition, n int) (all []seen, err error) {
	for from, more := regionGroup, true; more && len(all) < n; {
		items, cut, err := b.query(ctx, b.rest, p.pk, from, regionEnd, n-len(all), false, callTimeout)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			sk := textOf(it[attrSK])
			if sk < from {
				continue // behind its group's first
			}
			from = sk + "\x00"
			if g := groupOf(sk); g != "" {
				from = behind(g)
			}
			all = append(all, b.seen(p, it, sk))
		}
		more = cut
	}
	return all, nil
}

func (b *Outbox) seen(p *partition, it item, sk string) seen {
	now, s := time.Now(), seen{m: message(p.n, it), due: dueOf(it)}
	if s.due.After(now) {
		s.m.Deadline = s.due
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := p.entries[sk]; e.isOut(now) {
		s.m.Attempt = e.times
		if s.m.Deadline = e.until; e.isLive(now) {
			s.m.Deadline = e.deadline
		}
		s.due = s.m.Deadline
	}
	return s
}
