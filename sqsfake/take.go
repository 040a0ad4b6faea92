package sqsfake

import "github.com/onceq/onceq/internal/fakeserver"

// This file owns what a receive takes of a queue, and the receives that wait for more. receive.go
// calls it, and end (queue.go) calls serve after each stretch of work on a queue. All of it belongs
// to the server's lock: answer closes a channel, which ends the wait of who has asked.

// wish is what a receive asks for.
type wish struct {
	max     int
	timeout int64
	attempt string
	// short: it does not wait.
	short bool
	// repeat leaves what is taken visible: the next receive gets it too.
	repeat bool
}

// take receives up to w.max messages. Those that have had all their receives go to the
// dead-letter queue instead.
func (q *queue) take(w *wish, now int64) (got []took) {
	limit := min(w.max, q.a.o.MaxInFlight-q.counts[flying])
	if limit <= 0 {
		return nil
	}
	var again []*message
	take := func(m *message) {
		if !q.redrive(m, now) {
			got = append(got, q.deliver(m, w, now))
			if w.repeat {
				again = append(again, m)
			}
		}
	}
	switch {
	case q.fifo:
		for m := q.nextReady(); m != nil && len(got) < limit; m = q.nextReady() {
			// The rest of a run of a group: only its first message waits for the ones before.
			for m != nil && m.state == ready && len(got) < limit {
				next := m.inOrder.Next()
				take(m)
				m = next
			}
		}
	case w.short && q.a.o.ShortPolls == ShortPollsSampled:
		for _, m := range sample(q.rnd, &q.ready, limit) {
			take(m)
		}
	default:
		for m := q.nextReady(); m != nil && len(got) < limit; m = q.nextReady() {
			take(m)
		}
	}
	for _, m := range again {
		q.show(m)
	}
	if q.fifo && w.attempt != "" {
		q.order.rememberAttempt(&attempt{id: w.attempt, at: now, got: got})
	}
	return got
}

// nextReady is the message that comes next.
func (q *queue) nextReady() *message {
	if !q.fifo {
		return q.ready.First()
	}
	if g := q.order.open.First(); g != nil {
		return g.messages.First()
	}
	return nil
}

func (q *queue) deliver(m *message, w *wish, now int64) took {
	if m.receives == 0 {
		m.first = now
	}
	m.receives++
	m.serial++
	m.received = now
	q.hide(m, flying, now+w.timeout)
	return took{
		content: m.content, num: m.num, serial: m.serial, changes: m.changes,
		receives: m.receives, sent: m.sent, first: m.first,
	}
}

// retake answers a receive attempt id again: with the same messages and receipt handles,
// their timeout begun anew. ok is false when one of them was changed, deleted or received
// by somebody else since, or none was got: then the id stands for a new receive.
func (q *queue) retake(w *wish, now int64) (got []took, ok bool) {
	a := q.order.attempts[w.attempt]
	if a == nil || len(a.got) == 0 {
		return nil, false
	}
	for i := range a.got {
		t := &a.got[i]
		m := q.messages[t.num]
		if m == nil || m.state != flying || m.serial != t.serial || m.changes != t.changes {
			return nil, false
		}
	}
	for i := range a.got {
		q.hide(q.messages[a.got[i].num], flying, now+w.timeout)
	}
	return a.got, true
}

// serve gives the waiting receives what there is.
func (q *queue) serve(now int64) {
	for w := q.waiters.First(); w != nil && q.nextReady() != nil; w = q.waiters.First() {
		got := q.take(&w.wish, now)
		if len(got) == 0 {
			return
		}
		q.answer(w, got, nil)
	}
}

// waiter is a receive that waits for messages.
type waiter struct {
	wish
	answered chan struct{} // closed when got or err is there
	got      []took
	err      *apiError
	place    fakeserver.Place[*waiter]
}

// answer ends w's wait.
func (q *queue) answer(w *waiter, got []took, err *apiError) {
	q.waiters.Remove(&w.place)
	w.got, w.err = got, err
	close(w.answered)
}

// abandon ends a wait. An answer that came in the same moment stays in w.
func (q *queue) abandon(w *waiter) {
	q.a.mu.Lock()
	defer q.a.mu.Unlock()
	q.waiters.Remove(&w.place)
}
