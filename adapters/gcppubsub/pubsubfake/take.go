package pubsubfake

import (
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

// This file owns what a pull takes of a subscription, and the pulls that wait for more. Pull and
// streaming pulls call it, and unlock (service.go) calls serve after each stretch of work that made
// messages ready. All of it belongs to the server's lock: answer closes a channel, which ends a
// wait.

// wish is what a pull asks for.
type wish struct {
	max int
	// bytes bounds what it brings, but one message fits always.
	bytes int
	hold  time.Duration
	// repeat leaves what is taken ready: the next pull gets it too.
	repeat bool
	stream consumer // nil for a single pull
}

// next is the ready message that comes next: the oldest one without a key, or the first one of the
// key that waits longest.
func (q *subscription) next() *message {
	m, l := q.ready.First(), q.open.First()
	if l == nil {
		return m
	}
	if first := l.messages.First(); m == nil || m.num >= first.num {
		return first
	}
	return m
}

// take delivers what is ready, up to w.max messages.
func (q *subscription) take(w *wish, now int64) (got []delivery) {
	q.age(now)
	bytes := 0
	var again []*message
	give := func(m *message) bool {
		if len(got) == w.max || len(got) > 0 && bytes+m.size > w.bytes {
			return false
		}
		bytes += m.size
		got = append(got, q.deliver(m, w, now))
		if w.repeat {
			again = append(again, m)
		}
		return true
	}
	for m := q.next(); m != nil; m = q.next() {
		l := m.lane
		if l == nil {
			if !give(m) {
				break
			}
			continue
		}
		before := len(got)
		for ; m != nil && m.state == ready && give(m); m = m.inOrder.Next() {
		}
		if len(got) == before {
			break
		}
		l.failed = noneFailed
		l.update()
	}
	for _, m := range again {
		q.leave(m)
		q.show(m)
	}
	return got
}

func (q *subscription) deliver(m *message, w *wish, now int64) delivery {
	m.serial++
	d := delivery{content: m.content, ackID: newAckID(q.nonce, m.num, m.serial)}
	if q.set.deadLetter != "" {
		m.attempts++
		d.attempt = m.attempts
	}
	q.hold(m, held, now+int64(w.hold))
	if m.lane != nil {
		m.lane.out++
	}
	if w.stream != nil {
		m.stream = w.stream
		w.stream.hand(m)
	}
	q.delivered.add(m.pb.MessageId, q.s.o.LogSize)
	return d
}

// abandon ends a wait. An answer that came in the same moment stays in w.
func (q *subscription) abandon(w *waiter) {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if w.place.Listed() {
		q.waiters.Remove(&w.place)
		q.s.waiting--
	}
}

// waiter is a pull that waits for messages.
type waiter struct {
	wish
	answered chan struct{} // closed when got or err is there
	got      []delivery
	err      error
	place    fakeserver.Place[*waiter]
}

// answer ends w's wait.
func (q *subscription) answer(w *waiter, got []delivery, err error) {
	q.waiters.Remove(&w.place)
	q.s.waiting--
	w.got, w.err = got, err
	close(w.answered)
}

// serve gives the waiting pulls what there is.
func (q *subscription) serve(now int64) {
	for w := q.waiters.First(); w != nil && q.next() != nil; w = q.waiters.First() {
		got := q.take(&w.wish, now)
		if len(got) == 0 {
			return
		}
		q.answer(w, got, nil)
	}
}

// refuse ends all waits with an error.
func (q *subscription) refuse(err error) {
	for w := q.waiters.First(); w != nil; w = q.waiters.First() {
		q.answer(w, nil, err)
	}
	for st := range q.streams {
		st.finish(err)
	}
}
