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
	old  fakeserver.List[*sending]
	// attempts remembers what a receive attempt id brought.
	attempts    map[string]*attempt
	oldAttempts fakeserver.List[*attempt]
}

// dedupKey is a deduplication id within its scope: the queue, or a group.
type dedupKey struct{ group, id string }

// sending is an accepted message, for the duplicates that are to be answered like it. It
// outlives the message: a duplicate of a deleted message is one, too.
type sending struct {
	key dedupKey
	at  int64
	*content
	place fakeserver.Place[*sending]
}

// attempt is what one receive with an attempt id was answered.
type attempt struct {
	id  string
	at  int64
	got []took

	place fakeserver.Place[*attempt]
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
	o.old.Append(&s.place, s)
}

func (o *order) rememberAttempt(a *attempt) {
	o.attempts[a.id] = a
	o.oldAttempts.Append(&a.place, a)
}

// forget drops what is older than five minutes.
func (o *order) forget(now int64) {
	for s := o.old.First(); s != nil && s.at+dedupWindow <= now; s = o.old.First() {
		o.old.Remove(&s.place)
		if o.sent[s.key] == s {
			delete(o.sent, s.key)
		}
	}
	for a := o.oldAttempts.First(); a != nil && a.at+dedupWindow <= now; a = o.oldAttempts.First() {
		o.oldAttempts.Remove(&a.place)
		if o.attempts[a.id] == a {
			delete(o.attempts, a.id)
		}
	}
}
