package pubsubfake

import (
	"math"

	"github.com/onceq/onceq/internal/fakeserver"
)

const noneFailed = math.MaxUint64

// This file owns the order of messages with one ordering key. The subscription calls it, under the
// server's lock.
//
// Messages of a lane are delivered in their order, as many as a pull asks for. While one of them is
// held, none other is delivered. When one fails, the later ones are delivered again after it, those
// that were acked meanwhile as well: so they stay in the lane until all earlier ones are acked.

// lane is the messages of one ordering key of one subscription.
type lane struct {
	q        *subscription
	key      string
	messages fakeserver.List[*message]
	out      int // how many are held
	// failed is the number of the first one that failed since somebody was given one;
	// noneFailed means none.
	failed uint64
	open   fakeserver.Place[*lane] // among those that have a message to deliver
}

// lane is that of a key, made if need be.
func (q *subscription) lane(key string) *lane {
	l := q.lanes[key]
	if l == nil {
		l = &lane{q: q, key: key, failed: noneFailed}
		q.lanes[key] = l
	}
	return l
}

func (l *lane) append(m *message) {
	m.lane = l
	l.messages.Append(&m.inOrder, m)
}

func (l *lane) remove(m *message) {
	l.messages.Remove(&m.inOrder)
	m.lane = nil
	l.trim()
}

// trim settles those at the front that are acked already.
func (l *lane) trim() {
	for m := l.messages.First(); m != nil && m.state == settled; m = l.messages.First() {
		l.messages.Remove(&m.inOrder)
		m.lane = nil
		l.q.settle(m)
	}
}

// ack takes m, which was delivered, for acked, as far as the earlier ones let it.
func (l *lane) ack(m *message) {
	switch {
	case m == l.messages.First():
		l.q.settle(m)
	case m.state == held:
		l.q.leave(m)
		if m.num > l.failed {
			m.state = ready // an earlier one comes again, and m after it
		} else {
			m.state = settled
		}
		l.update()
	default:
		// It waits already to be delivered again, after an earlier one.
	}
}

// rewind notes that m failed: those after it that are acked come again.
func (l *lane) rewind(m *message) {
	for n := m.inOrder.Next(); n != nil && n.num < l.failed; n = n.inOrder.Next() {
		if n.state == settled {
			n.state = ready
		}
	}
	l.failed = min(l.failed, m.num)
}

// update puts the lane among the open ones, or takes it out, and forgets it when it is empty.
func (l *lane) update() {
	first := l.messages.First()
	if first == nil {
		l.q.open.Remove(&l.open)
		if l.q.lanes[l.key] == l {
			delete(l.q.lanes, l.key)
		}
		return
	}
	switch open := l.out == 0 && first.state == ready; {
	case open && !l.open.Listed():
		l.q.open.Append(&l.open, l)
		l.q.wake()
	case !open:
		l.q.open.Remove(&l.open)
	}
}
