package pubsubfake

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceq/onceq/internal/fakeserver"
)

// This file owns the state of one subscription: each message is in one of its lists, by what may
// happen to it next. The methods call it, and expire (service.go) for each hold that ends, always
// under the server's lock, which lock takes. lane.go has the order of keys, take.go those who wait.

// subscription is one subscription. Everything in it belongs to the server's lock.
type subscription struct {
	s    *service
	name string
	// nonce is in every ack id, so that one of a deleted subscription of the same name is not
	// taken for ours.
	nonce uint64
	pb    *pubsubpb.Subscription // as the API tells it
	set   settings
	topic *topic // nil when it was deleted, or the subscription is detached

	messages map[uint64]*message
	last     uint64                    // the number given last
	all      fakeserver.List[*message] // the oldest first
	ready    fakeserver.List[*message] // without ordering keys
	lanes    map[string]*lane
	open     fakeserver.List[*lane] // that have a message to deliver
	// discardUntil: what is published before is acked at once, because somebody sought the future.
	discardUntil int64
	waiters      fakeserver.List[*waiter]
	streams      map[consumer]struct{}
	woken        bool // it is in the server's list
	delivered    tally
}

// settings are what decides over messages, read from the API's subscription.
type settings struct {
	ackDeadline time.Duration
	retention   time.Duration
	retain      bool
	ordered     bool
	once        bool
	filter      filter // nil: all
	deadLetter  string // the topic, "" for none
	maxAttempts int32
	retry       bool // there is a retry policy
	backoff     time.Duration
	maxBackoff  time.Duration
}

// add puts a new message into the subscription.
func (q *subscription) add(c *content) {
	if q.set.filter != nil && !q.set.filter(c.pb.Attributes) {
		return
	}
	if c.at < q.discardUntil && !q.set.retain {
		return
	}
	q.last++
	m := &message{content: c, q: q, num: q.last}
	q.messages[m.num] = m
	q.all.Append(&m.inAll, m)
	if c.at < q.discardUntil {
		m.state = retained
		return
	}
	q.enqueue(m)
	q.show(m)
}

// enqueue gives m its place among those of its ordering key.
func (q *subscription) enqueue(m *message) {
	if key := m.pb.OrderingKey; key != "" && q.set.ordered {
		q.lane(key).append(m)
	}
}

// show makes m ready.
func (q *subscription) show(m *message) {
	m.state = ready
	if m.lane != nil {
		m.lane.update()
	} else {
		q.ready.Append(&m.inOrder, m)
	}
	q.wake()
}

// hold takes m out of sight until due.
func (q *subscription) hold(m *message, as state, due int64) {
	q.leave(m)
	m.state = as
	q.s.deadline.Push(due, m.num, m, &m.place)
}

// leave takes m out of its state; it keeps its place in the lane and among all.
func (q *subscription) leave(m *message) {
	switch m.state {
	case ready:
		if m.lane == nil {
			q.ready.Remove(&m.inOrder)
		}
	case held:
		q.s.deadline.Remove(&m.place)
		if m.lane != nil {
			m.lane.out--
		}
		if m.stream != nil {
			m.stream.release(m)
			m.stream = nil
		}
	case delayed:
		q.s.deadline.Remove(&m.place)
	case gone, settled, retained:
	}
	m.state = gone
}

// drop takes m out of the subscription for good.
func (q *subscription) drop(m *message) {
	q.leave(m)
	if l := m.lane; l != nil {
		l.remove(m)
		l.update()
	}
	q.all.Remove(&m.inAll)
	delete(q.messages, m.num)
}

// settle ends m with an ack: it is dropped, or kept for a Seek.
func (q *subscription) settle(m *message) {
	if !q.set.retain {
		q.drop(m)
		return
	}
	q.leave(m)
	if l := m.lane; l != nil {
		l.remove(m)
		l.update()
	}
	m.state = retained
}

// fail ends a delivery of m that was not acked, at a time that may be past: m is delivered again,
// or goes to the dead-letter topic.
func (q *subscription) fail(m *message, at int64) {
	q.leave(m)
	if q.deadLetter(m) {
		return
	}
	m.failures++
	l := m.lane
	if l != nil {
		l.rewind(m)
	}
	if d := q.set.delay(m.failures); d > 0 {
		m.state = delayed
		q.s.deadline.Push(at+int64(d), m.num, m, &m.place)
	} else {
		q.show(m)
	}
	if l != nil {
		l.update()
		q.wake()
	}
}

// delay is how long a retry policy keeps a message back after so many failures.
func (set *settings) delay(failures int32) time.Duration {
	if !set.retry {
		return 0
	}
	d := set.backoff
	for range failures - 1 {
		if d *= 2; d >= set.maxBackoff {
			return set.maxBackoff
		}
	}
	return min(d, set.maxBackoff)
}

// age drops what is older than the subscription keeps.
func (q *subscription) age(now int64) {
	for m := q.all.First(); m != nil && m.at+int64(q.set.retention) <= now; m = q.all.First() {
		q.drop(m)
	}
}

// wake sees to it that the pulls that wait get what is ready, before the lock is let go.
func (q *subscription) wake() {
	if !q.woken && q.waiters.First() != nil {
		q.woken = true
		q.s.woken = append(q.s.woken, q)
	}
}

// clear empties the subscription.
func (q *subscription) clear() {
	for m := q.all.First(); m != nil; m = q.all.First() {
		q.leave(m)
		q.all.Remove(&m.inAll)
	}
	q.messages, q.lanes = map[uint64]*message{}, map[string]*lane{}
	q.open, q.ready = fakeserver.List[*lane]{}, fakeserver.List[*message]{}
}

// deadLetter moves m to the dead-letter topic when it has had its attempts.
func (q *subscription) deadLetter(m *message) bool {
	if q.set.deadLetter == "" || m.attempts < q.set.maxAttempts {
		return false
	}
	t := q.s.topics[q.set.deadLetter]
	if t == nil {
		return false
	}
	t.publish(letter(m.pb, q.name, m.attempts), q.s.now())
	q.drop(m)
	return true
}
