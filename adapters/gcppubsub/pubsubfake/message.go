package pubsubfake

// state is what may happen to a message next.
type state uint8

const (
	gone     state = iota // it has left the subscription
	ready                 // it may be delivered, when its ordering key lets it
	held                  // it was delivered, and its ack deadline has not passed
	delayed               // a retry policy keeps it back
	settled               // it is acked, and an earlier one of its ordering key is not yet
	retained              // it is acked, and kept for a Seek
)

// consumer is a streaming pull, as far as messages know it.
type consumer interface {
	hand(m *message)
	release(m *message)
	finish(err error)
}

// message is one message of one subscription.
type message struct {
	*content
	q   *subscription
	num uint64 // its place in the order of the subscription's messages
	// serial counts the deliveries; it is in each ack id.
	serial uint32
	state  state
	// attempts are the deliveries that a dead-letter policy counts, failures the ends of holds
	// without an ack.
	attempts, failures int32
	place              int32 // in the server's heap
	lane               *lane
	stream             consumer // that has it, while it is held
	prev, next         *message // in the list of ready ones, or in its lane
	earlier, later     *message // in the list of all
}

// list is a list of messages by prev and next.
type list struct{ first, last *message }

func (l *list) append(m *message) {
	m.prev, m.next = l.last, nil
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
}

func (l *list) remove(m *message) {
	if m.prev == nil {
		l.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		l.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
}

// ages is the list of all messages of a subscription, the oldest first.
type ages struct{ first, last *message }

func (l *ages) append(m *message) {
	m.earlier, m.later = l.last, nil
	if l.last == nil {
		l.first = m
	} else {
		l.last.later = m
	}
	l.last = m
}

func (l *ages) remove(m *message) {
	if m.earlier == nil {
		l.first = m.later
	} else {
		m.earlier.later = m.later
	}
	if m.later == nil {
		l.last = m.earlier
	} else {
		m.later.earlier = m.earlier
	}
	m.earlier, m.later = nil, nil
}
