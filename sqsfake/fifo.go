package sqsfake

import (
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

// This file owns what a FIFO queue has besides: the order of its groups, and what it remembers of
// deduplication ids and receive attempt ids. queue.go, receive.go and send.go call it. All of it
// belongs to the server's lock.

// dedupWindow is how long a deduplication id is remembered, and a receive attempt id is valid.
const dedupWindow = int64(5 * time.Minute)

// group is a message group: all its messages in order, hidden ones too. It can be received
// from when its first message is visible, up to the first one that is not: a message in
// flight holds back those that come after it, not those before.
type group struct {
	id       string
	messages fakeserver.List[*message]
	open     fakeserver.Place[*group] // among those that can be received from
}

// order is what a FIFO queue has besides.
type order struct {
	groups map[string]*group
	open   fakeserver.List[*group] // the groups that can be received from
	// sent remembers deduplication ids by scope, old forgets them in time.
	sent map[dedupKey]*sending
	old  ring[*sending]
	// attempts remembers what a receive attempt id brought.
	attempts    map[string]*attempt
	oldAttempts ring[*attempt]
}

// dedupKey is a deduplication id within its scope: the queue, or a group.
type dedupKey struct{ group, id string }

// sending is an accepted message, for the duplicates that are to be answered like it. It
// outlives the message: a duplicate of a deleted message is one, too.
type sending struct {
	key dedupKey
	at  int64
	*content
}

// attempt is what one receive with an attempt id was answered.
type attempt struct {
	id  string
	at  int64
	got []took
}

// reset forgets all, as a purge does: the deduplication ids too (LocalStack's recording of AWS,
// test_purge_queue_clears_fifo_deduplication_cache).
func (o *order) reset() {
	*o = order{groups: map[string]*group{}, sent: map[dedupKey]*sending{}, attempts: map[string]*attempt{}}
}

// join appends m to its group.
func (o *order) join(m *message) {
	g := o.groups[m.group]
	if g == nil {
		g = &group{id: m.group}
		o.groups[m.group] = g
	}
	m.fifo = g
	g.messages.Append(&m.inOrder, m)
}

// part takes m out of its group; the last one takes the group along.
func (o *order) part(m *message) {
	g := m.fifo
	g.messages.Remove(&m.inOrder)
	o.update(g)
	if g.messages.First() == nil {
		delete(o.groups, g.id)
	}
}

// update lists g with the groups that can be received from, or no longer.
func (o *order) update(g *group) {
	first := g.messages.First()
	switch open := first != nil && first.state == ready; {
	case open == g.open.Listed():
	case open:
		o.open.Append(&g.open, g)
	default:
		o.open.Remove(&g.open)
	}
}

// remember keeps c for the duplicates of the next five minutes.
func (o *order) remember(key dedupKey, c *content, now int64) {
	s := &sending{key: key, at: now, content: c}
	o.sent[key] = s
	o.old.push(s)
}

func (o *order) rememberAttempt(a *attempt) {
	o.attempts[a.id] = a
	o.oldAttempts.push(a)
}

// forget drops what is older than five minutes.
func (o *order) forget(now int64) {
	for s, ok := o.old.first(); ok && s.at+dedupWindow <= now; s, ok = o.old.first() {
		o.old.pop()
		if o.sent[s.key] == s {
			delete(o.sent, s.key)
		}
	}
	for a, ok := o.oldAttempts.first(); ok && a.at+dedupWindow <= now; a, ok = o.oldAttempts.first() {
		o.oldAttempts.pop()
		if o.attempts[a.id] == a {
			delete(o.attempts, a.id)
		}
	}
}

// ring is a queue of values on a slice.
type ring[T any] struct {
	items []T
	head  int
}

func (r *ring[T]) push(v T) { r.items = append(r.items, v) }

func (r *ring[T]) first() (v T, ok bool) {
	if r.head == len(r.items) {
		return v, false
	}
	return r.items[r.head], true
}

func (r *ring[T]) pop() {
	var zero T
	r.items[r.head] = zero
	r.head++
	if r.head*2 >= len(r.items) {
		n := copy(r.items, r.items[r.head:])
		clear(r.items[n:])
		r.items, r.head = r.items[:n], 0
	}
}
