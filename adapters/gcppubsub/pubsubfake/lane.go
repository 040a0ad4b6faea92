package pubsubfake

import "math"

const noneFailed = math.MaxUint64

// This file owns the order of messages with one ordering key. The subscription calls it, under the
// server's lock.
//
// Messages of a lane are delivered in their order, as many as a pull asks for. While one of them is
// held, none other is delivered. When one fails, the later ones are delivered again after it, those
// that were acked meanwhile as well: so they stay in the lane until all earlier ones are acked.

// lane is the messages of one ordering key of one subscription.
type lane struct {
	q   *subscription
	key string
	list
	out int // how many are held
	// failed is the number of the first one that failed since somebody was given one;
	// noneFailed means none.
	failed uint64
	// listed: it is among the subscription's open lanes.
	listed      bool
	left, right *lane
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
	l.list.append(m)
}

func (l *lane) remove(m *message) {
	l.list.remove(m)
	m.lane = nil
	l.trim()
}

// trim settles those at the front that are acked already.
func (l *lane) trim() {
	for l.first != nil && l.first.state == settled {
		m := l.first
		l.list.remove(m)
		m.lane = nil
		l.q.settle(m)
	}
}

// ack takes m, which was delivered, for acked, as far as the earlier ones let it.
func (l *lane) ack(m *message) {
	switch {
	case m == l.first:
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
	for n := m.next; n != nil && n.num < l.failed; n = n.next {
		if n.state == settled {
			n.state = ready
		}
	}
	l.failed = min(l.failed, m.num)
}

// update puts the lane among the open ones, or takes it out, and forgets it when it is empty.
func (l *lane) update() {
	if l.first == nil {
		if l.listed {
			l.q.open.remove(l)
		}
		if l.q.lanes[l.key] == l {
			delete(l.q.lanes, l.key)
		}
		return
	}
	open := l.out == 0 && l.first.state == ready
	switch {
	case open && !l.listed:
		l.q.open.append(l)
		l.q.wake()
	case !open && l.listed:
		l.q.open.remove(l)
	}
}

// lanes is a list of lanes.
type lanes struct{ first, last *lane }

func (ls *lanes) append(l *lane) {
	l.left, l.right, l.listed = ls.last, nil, true
	if ls.last == nil {
		ls.first = l
	} else {
		ls.last.right = l
	}
	ls.last = l
}

func (ls *lanes) remove(l *lane) {
	if l.left == nil {
		ls.first = l.right
	} else {
		l.left.right = l.right
	}
	if l.right == nil {
		ls.last = l.left
	} else {
		l.right.left = l.left
	}
	l.left, l.right, l.listed = nil, nil, false
}
