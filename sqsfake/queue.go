package sqsfake

import (
	"math/rand/v2"
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
	"github.com/onceq/onceq/internal/heap"
)

// This file owns the state of one queue: each message is in one of its lists, by what may happen to
// it next. The actions and move tasks call it, always under the server's lock, which lock takes.
// The alarm's goroutine does the same in ring. fifo.go has the order of groups, receive.go those
// who wait.

// queue is one queue. Everything in it belongs to the server's lock. A stretch of work
// under the lock starts with begin and closes with end.
type queue struct {
	a    *account
	name string
	arn  string
	fifo bool
	// nonce is in every receipt handle, so that one of a deleted queue of the same name is
	// not taken for ours.
	nonce    uint64
	settings *settings
	rnd      *rand.Rand
	tags     map[string]string
	created  time.Time
	modified time.Time
	purged   time.Time // the last PurgeQueue
	deleted  bool

	messages map[uint64]*message
	last     uint64 // the number given last
	hidden   heap.Heap[*message]
	ages     heap.Heap[*message]
	ready    fakeserver.List[*message] // of a standard queue
	counts   [gone]int
	order    order // of a FIFO queue
	// scopeWas is the deduplication scope until scopeFrom, when that of the settings holds.
	scopeWas  bool
	scopeFrom int64
	waiters   fakeserver.List[*waiter]
	alarm     fakeserver.Alarm
	tasks     []*moveTask // started with this queue as the source, the oldest first
}

func newQueue(a *account, name string, fifo bool, set *settings) *queue {
	now := time.Now()
	q := &queue{
		a: a, name: name, arn: a.arn(name), fifo: fifo, nonce: a.nonces.Uint64(), settings: set, rnd: drawing(a.seed, name),
		tags: map[string]string{}, created: now, modified: now, messages: map[uint64]*message{},
	}
	q.order.reset()
	return q
}

// lock takes the server's lock for work on q.
func (q *queue) lock() (now int64) {
	q.a.mu.Lock()
	now = q.a.now()
	q.begin(now)
	return now
}

// unlock ends the work on q, and on the queues that q's messages went to.
func (q *queue) unlock(now int64) {
	q.end(now)
	q.a.settle(now)
	q.a.mu.Unlock()
}

// begin brings the queue up to now: what is too old is dropped, what was hidden long enough
// becomes visible.
func (q *queue) begin(now int64) {
	for q.ages.Len() > 0 && q.ages.First().Key+int64(q.settings.retention) <= now {
		q.drop(q.ages.First().Item)
	}
	for q.hidden.Len() > 0 && q.hidden.First().Key <= now {
		q.show(q.hidden.First().Item)
	}
	q.order.forget(now)
}

// end gives the waiting receives what there is, and sees to it that somebody looks again
// when the next message becomes visible.
func (q *queue) end(now int64) {
	q.serve(now)
	q.setAlarm(now)
}

// add puts a new message into the queue, hidden for delay.
func (q *queue) add(m *message, now, delay int64) {
	q.last++
	m.num = q.last
	m.state = gone // it has no state to leave
	q.messages[m.num] = m
	q.ages.Push(m.sent, m.num, m, &m.byAge)
	if q.fifo {
		q.order.join(m)
	}
	if delay > 0 {
		q.hide(m, delayed, now+delay)
		return
	}
	q.show(m)
}

// show makes m visible.
func (q *queue) show(m *message) {
	q.leave(m)
	q.enter(m, ready)
}

// hide takes m out of sight until due.
func (q *queue) hide(m *message, as state, due int64) {
	q.leave(m)
	m.due = due
	q.hidden.Push(due, m.num, m, &m.byDue)
	q.enter(m, as)
}

// drop takes m out of the queue for good.
func (q *queue) drop(m *message) {
	q.leave(m)
	q.ages.Remove(&m.byAge)
	delete(q.messages, m.num)
	if q.fifo {
		q.order.part(m)
	}
}

// leave takes m out of its state, enter puts it into one.
func (q *queue) leave(m *message) {
	switch m.state {
	case gone:
		return
	case ready:
		if !q.fifo {
			q.ready.Remove(&m.inOrder)
		}
	case flying, delayed:
		q.hidden.Remove(&m.byDue)
	}
	q.counts[m.state]--
	m.state = gone
}

func (q *queue) enter(m *message, as state) {
	m.state = as
	q.counts[as]++
	switch {
	case q.fifo:
		q.order.update(m.fifo)
	case as == ready:
		q.ready.Append(&m.inOrder, m)
	}
}

// clear empties the queue.
func (q *queue) clear() {
	for _, m := range q.messages {
		m.state = gone
	}
	q.messages = map[uint64]*message{}
	q.hidden, q.ages = heap.Heap[*message]{}, heap.Heap[*message]{}
	q.ready = fakeserver.List[*message]{}
	q.counts = [gone]int{}
	q.order.reset()
}

// propagation is how long AWS takes at most for a changed attribute to hold everywhere.
const propagation = int64(60 * time.Second)

// dedupPerGroup is the deduplication scope that holds now. A changed one takes its time on AWS
// (LocalStack's recording of 2025-08-19: longer than the seconds of a test).
func (q *queue) dedupPerGroup(now int64) bool {
	if now < q.scopeFrom {
		return q.scopeWas
	}
	return q.settings.dedupPerGroup
}

// changeDelay lets a changed DelaySeconds hold for the messages that wait already, as AWS
// has it for FIFO queues.
func (q *queue) changeDelay(now int64) {
	var waiting []*message
	for _, n := range q.hidden.All() {
		if n.Item.state == delayed {
			waiting = append(waiting, n.Item)
		}
	}
	for _, m := range waiting {
		if due := m.sent + int64(q.settings.delay); due > now {
			q.hide(m, delayed, due)
		} else {
			q.show(m)
		}
	}
}

// setAlarm sees to it that the alarm rings when a hidden message becomes visible while a receive
// waits. Nobody else needs it, every call looks for itself.
func (q *queue) setAlarm(now int64) {
	if q.hidden.Len() == 0 || q.waiters.First() == nil {
		q.alarm.Stop()
		return
	}
	q.alarm.Set(now, q.hidden.First().Key, q.ring)
}

func (q *queue) ring() {
	now := q.lock()
	q.alarm.Rung()
	q.unlock(now)
}
