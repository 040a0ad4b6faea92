package membroker

import (
	"github.com/onceq/onceq/broker"
)

// This file owns the messages and where they stand: slots, groups, the ready list and the hidden
// ones. The Broker's calls use it with Broker.mu held.

// state is where an entry is in its life.
type state uint8

const (
	free     state = iota
	ready          // visible; a follower in a group may still be held by its head
	inFlight       // delivered, hidden until due
	delayed        // hidden until due by a send's or a nack's delay
)

// entry is one message in the queue. Body, attributes and meta are never changed once they
// are stored, so that a receive can copy them without the lock.
type entry struct {
	id         string
	body       []byte
	attributes map[string]string
	meta       *broker.Meta
	group      *group
	groupName  string
	published  int64

	// born and serial come from one counter: born when the message entered this slot, serial
	// in each delivery. A receipt older than born belonged to a message that is gone.
	born, serial uint64
	received     int64 // when the last delivery began
	receives     int
	slot         uint32
	state        state
	at           int  // index in the deadline heap, while in flight or delayed
	link         link // in its group; without a group, in the ready list while ready
}

// group is the messages of one message group, in the order in which they were sent.
type group struct {
	name    string
	entries list
	queued  bool // it stands in the ready list
	link    link // in the ready list
}

func (g *group) head() *entry {
	if g.entries.front == nil {
		return nil
	}
	return g.entries.front.entry
}

// link makes entries and groups members of a list without an allocation.
type link struct {
	prev, next *link
	entry      *entry // nil in a group's link
	group      *group // nil in an entry's link
}

type list struct{ front, back *link }

func (l *list) pushBack(k *link) {
	k.prev, k.next = l.back, nil
	if l.back == nil {
		l.front = k
	} else {
		l.back.next = k
	}
	l.back = k
}

func (l *list) remove(k *link) {
	if k.prev == nil {
		l.front = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		l.back = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
}

const (
	// chunk is how many slots are allocated at once; entries never move.
	chunk = 256
	// keepSlots is how many slots an empty queue keeps.
	keepSlots = 64 * chunk
	// keepGroups is how many unused groups are kept.
	keepGroups = 1024
)

// queue is the messages and where they stand. It knows no time but what it is told. Its owner holds
// the lock.
//
// ready holds what the next receive brings, in order: entries without a group, and groups
// whose head is ready. hidden holds what is in flight or delayed, the earliest first.
type queue struct {
	chunks     []*[chunk]entry
	unused     *link // free slots, linked by next
	ready      list
	hidden     deadlines
	groups     map[string]*group
	freeGroups []*group
	serial     uint64

	readyN, inFlightN, delayedN int
}

func (q *queue) nextSerial() uint64 {
	q.serial++
	return q.serial
}

// add takes a slot for a new message of the group; the caller fills in the rest and calls
// show or hide.
func (q *queue) add(groupName string, ordered bool) *entry {
	if q.unused == nil {
		c := new([chunk]entry)
		base := uint32(len(q.chunks) * chunk)
		q.chunks = append(q.chunks, c)
		for i := chunk - 1; i >= 0; i-- {
			e := &c[i]
			e.slot = base + uint32(i)
			e.link.entry = e
			e.link.next, q.unused = q.unused, &e.link
		}
	}
	e := q.unused.entry
	q.unused = e.link.next
	e.link.next = nil
	e.born = q.nextSerial()
	e.groupName = groupName
	if groupName != "" && ordered {
		e.group = q.groupOf(groupName)
		e.group.entries.pushBack(&e.link)
	}
	return e
}

func (q *queue) groupOf(name string) *group {
	if g := q.groups[name]; g != nil {
		return g
	}
	var g *group
	if n := len(q.freeGroups); n > 0 {
		g = q.freeGroups[n-1]
		q.freeGroups = q.freeGroups[:n-1]
	} else {
		g = new(group)
		g.link.group = g
	}
	g.name = name
	if q.groups == nil {
		q.groups = make(map[string]*group)
	}
	q.groups[name] = g
	return g
}

// show makes e visible, last in the ready list. e is new, or was just taken out of hidden.
func (q *queue) show(e *entry) {
	e.state = ready
	q.readyN++
	if e.group == nil {
		q.ready.pushBack(&e.link)
		return
	}
	q.requeue(e.group)
}

// hide puts e, which is new or was ready, or was taken out of hidden, among the hidden.
func (q *queue) hide(e *entry, s state, due int64) {
	e.state = s
	if s == inFlight {
		q.inFlightN++
	} else {
		q.delayedN++
	}
	q.hidden.push(due, e)
}

// unhide takes e out of hidden; it is in no state until the caller gives it one.
func (q *queue) unhide(e *entry) {
	if e.state == inFlight {
		q.inFlightN--
	} else {
		q.delayedN--
	}
	q.hidden.remove(e.at)
}

// requeue sets right whether g stands in the ready list, after a change at its head.
func (q *queue) requeue(g *group) {
	h := g.head()
	due := h != nil && h.state == ready
	switch {
	case due && !g.queued:
		q.ready.pushBack(&g.link)
	case !due && g.queued:
		q.ready.remove(&g.link)
	}
	g.queued = due
	if h != nil {
		return
	}
	delete(q.groups, g.name)
	g.name = ""
	if len(q.freeGroups) < keepGroups {
		q.freeGroups = append(q.freeGroups, g)
	}
}

// remove takes e out of the queue for good and frees its slot.
func (q *queue) remove(e *entry) {
	switch e.state {
	case ready:
		q.readyN--
		if e.group == nil {
			q.ready.remove(&e.link)
		}
	case inFlight, delayed:
		q.unhide(e)
	case free: // it is in no list
	}
	q.drop(e)
}

// drop frees the slot of e, which is neither in the ready list nor hidden.
func (q *queue) drop(e *entry) {
	g := e.group
	if g != nil {
		g.entries.remove(&e.link)
	}
	*e = entry{slot: e.slot}
	e.link.entry = e
	e.link.next, q.unused = q.unused, &e.link
	if g != nil {
		q.requeue(g)
	}
	// A burst must not hold its memory for ever. Serials go on, so no old receipt matches.
	if q.readyN+q.inFlightN+q.delayedN == 0 && len(q.chunks)*chunk > keepSlots {
		q.chunks, q.unused, q.groups, q.hidden = nil, nil, nil, nil
	}
}

// next takes up to n messages from the front of the ready list, appending them to es. They
// are in no state until the caller hides them.
func (q *queue) next(es []*entry, n int) []*entry {
	for n > 0 && q.ready.front != nil {
		k := q.ready.front
		q.ready.remove(k)
		if k.entry != nil {
			es = append(es, k.entry)
			q.readyN--
			n--
			continue
		}
		k.group.queued = false
		for f := k.group.entries.front; f != nil && f.entry.state == ready && n > 0; f = f.next {
			es = append(es, f.entry)
			q.readyN--
			n--
		}
	}
	return es
}

// at is the entry of a slot; nil when there is no such slot.
func (q *queue) at(slot uint32) *entry {
	c := int(slot / chunk)
	if c >= len(q.chunks) {
		return nil
	}
	return &q.chunks[c][slot%chunk]
}
