package sqsfake

import (
	"strconv"
	"time"
)

// This file owns receives: which messages one takes, how it waits, and how it is answered. The
// action runs in the goroutine of its request, and end (queue.go) calls serve after each stretch of
// work on a queue. The server's lock guards the waiters, and is not held during a wait: answer
// closes a channel, and abandon ends the wait under the lock.

const (
	maxReceive = 10
	maxWait    = 20 * time.Second
)

// took is one delivery, as it is answered: what of the message may change is copied.
type took struct {
	*content
	num      uint64
	serial   uint32
	changes  uint32
	receives int
	sent     int64
	first    int64
}

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
	limit := min(w.max, q.s.o.MaxInFlight-q.counts[flying])
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
				next := m.next
				take(m)
				m = next
			}
		}
	case w.short && q.s.o.ShortPolls == ShortPollsSampled:
		for _, m := range q.sample(limit) {
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
		return q.ready.first
	}
	if q.order.first == nil {
		return nil
	}
	return q.order.first.messages.first
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

func (c *call) receiveMessage() *apiError {
	in := &c.in
	w := wish{max: 1, timeout: int64(c.settings.visibility), attempt: in.attemptID, repeat: c.fault.Duplicate}
	wait := c.settings.wait
	if in.given.has(pMax) {
		if in.max < 1 || in.max > maxReceive {
			return badValue("MaxNumberOfMessages", in.max, "Must be between 1 and 10, if provided.")
		}
		w.max = int(in.max)
	}
	if in.given.has(pVisibility) {
		if in.visibility < 0 || in.visibility > int64(maxVisibility/time.Second) {
			return badValue("VisibilityTimeout", in.visibility, "Must be between 0 and 43200, if provided.")
		}
		w.timeout = in.visibility * int64(time.Second)
	}
	if in.given.has(pWait) {
		if in.wait < 0 || in.wait > int64(maxWait/time.Second) {
			return badValue("WaitTimeSeconds", in.wait, "Must be >= 0 and <= 20, if provided.")
		}
		wait = time.Duration(in.wait) * time.Second
	}
	if in.given.has(pAttemptID) {
		if !c.q.fifo {
			return badValue("ReceiveRequestAttemptId", in.attemptID, "The request include parameter that is not valid for this queue type.")
		}
		if !validFIFOID(in.attemptID) {
			return badValue("ReceiveRequestAttemptId", in.attemptID, "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
		}
	}
	for _, n := range in.names {
		if !systemNames[n] {
			return errAttributeName.withf("Unknown Attribute %s.", n)
		}
	}
	if most := c.fault.Most; most > 0 {
		w.max = min(w.max, most)
	}
	w.short = wait <= 0
	got, err := c.receive(&w, wait)
	if err != nil {
		return err
	}
	c.brought = len(got)
	c.writeReceived(got)
	return nil
}

// receive takes what is there, or waits for it.
func (c *call) receive(w *wish, wait time.Duration) ([]took, *apiError) {
	q := c.q
	now := q.lock()
	got, ok := q.retake(w, now)
	if ok {
		q.unlock(now)
		return got, nil
	}
	if w.short && !q.fifo && q.counts[flying] >= q.s.o.MaxInFlight {
		// To a receive that waits, AWS answers nothing at the end of its wait, and no error.
		q.unlock(now)
		return nil, errOverLimit.withf("Too many messages in flight: the limit is %d.", q.s.o.MaxInFlight)
	}
	got = q.take(w, now)
	if len(got) > 0 || w.short || q.deleted || q.s.draining {
		q.unlock(now)
		return got, nil
	}
	waiting := &waiter{wish: *w, answered: make(chan struct{})}
	q.waiters.push(waiting)
	q.unlock(now)
	return c.await(waiting, wait)
}

func (c *call) await(w *waiter, wait time.Duration) ([]took, *apiError) {
	timer := time.NewTimer(wait)
	select {
	case <-w.answered:
		timer.Stop()
		return w.got, w.err
	case <-timer.C:
	case <-c.ctx.Done():
		if c.s.o.StrandCancelled {
			// As on AWS: the poll goes on, and what it finds is hidden from everybody.
			go func() {
				select {
				case <-w.answered:
				case <-timer.C:
				case <-c.s.closing:
				}
				timer.Stop()
				c.q.abandon(w)
			}()
			return nil, nil
		}
		timer.Stop()
	case <-c.s.closing:
		timer.Stop()
	}
	c.q.abandon(w)
	return w.got, w.err
}

// abandon ends a wait. An answer that came in the same moment stays in w.
func (q *queue) abandon(w *waiter) {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.waiters.remove(w)
}

// waiter is a receive that waits for messages.
type waiter struct {
	wish
	answered   chan struct{} // closed when got or err is there
	got        []took
	err        *apiError
	listed     bool
	prev, next *waiter
}

// waiters are those of a queue; the one that waits longest is served first.
type waiters struct{ first, last *waiter }

func (ws *waiters) push(w *waiter) {
	w.prev, w.next, w.listed = ws.last, nil, true
	if ws.last == nil {
		ws.first = w
	} else {
		ws.last.next = w
	}
	ws.last = w
}

func (ws *waiters) remove(w *waiter) {
	if !w.listed {
		return
	}
	if w.prev == nil {
		ws.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ws.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.listed = nil, nil, false
}

// answer ends w's wait.
func (ws *waiters) answer(w *waiter, got []took, err *apiError) {
	ws.remove(w)
	w.got, w.err = got, err
	close(w.answered)
}

// serve gives the waiting receives what there is.
func (q *queue) serve(now int64) {
	for w := q.waiters.first; w != nil && q.nextReady() != nil; w = q.waiters.first {
		got := q.take(&w.wish, now)
		if len(got) == 0 {
			return
		}
		q.waiters.answer(w, got, nil)
	}
}

// systemNames are the system attributes that a receive may ask for.
var systemNames = map[string]bool{
	"All": true, "SenderId": true, "SentTimestamp": true, "ApproximateReceiveCount": true,
	"ApproximateFirstReceiveTimestamp": true, "SequenceNumber": true,
	"MessageDeduplicationId": true, "MessageGroupId": true, "AWSTraceHeader": true,
	"DeadLetterQueueSourceArn": true,
}

func (c *call) writeReceived(got []took) {
	w := &c.out
	w.open('{')
	if len(got) > 0 {
		w.key("Messages")
		w.open('[')
		for i := range got {
			c.writeMessage(w, &got[i], i)
		}
		w.close(']')
	}
	w.close('}')
}

func (c *call) writeMessage(w *writer, t *took, i int) {
	w.open('{')
	w.field("MessageId", t.id)
	w.field("ReceiptHandle", newHandle(c.q.nonce, t.num, t.serial))
	w.field("MD5OfBody", c.fault.spoilMD5(i, t.bodyMD5))
	w.field("Body", t.body)
	if len(c.in.names) > 0 {
		w.key("Attributes")
		w.open('{')
		c.writeSystem(w, t)
		w.close('}')
	}
	if as := selectAttributes(t.attributes, c.in.attributeNames); len(as) > 0 {
		sum := t.attrsMD5
		if len(as) < len(t.attributes) {
			sum = md5Attributes(as)
		}
		w.field("MD5OfMessageAttributes", sum)
		writeAttributes(w, as)
	}
	w.close('}')
}

func (c *call) writeSystem(w *writer, t *took) {
	put := func(name, value string) {
		if value == "" {
			return
		}
		for _, n := range c.in.names {
			if n == name || n == "All" {
				w.field(name, value)
				return
			}
		}
	}
	put("SenderId", c.s.o.Account)
	put("SentTimestamp", c.s.timestamp(t.sent))
	put("ApproximateReceiveCount", strconv.Itoa(t.receives))
	put("ApproximateFirstReceiveTimestamp", c.s.timestamp(t.first))
	put("SequenceNumber", t.sequence)
	put("MessageDeduplicationId", t.dedupID)
	put("MessageGroupId", t.group)
	put("AWSTraceHeader", t.trace)
	put("DeadLetterQueueSourceArn", t.source)
}
