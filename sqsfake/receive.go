package sqsfake

import (
	"strconv"
	"time"
)

// This file owns receives: what one may ask for, how it waits, and how it is answered. The action
// runs in the goroutine of its request. take.go has which messages it takes, under the server's
// lock, which is not held during a wait: abandon ends one under the lock.

const (
	maxReceive = 10
	maxWait    = 20 * time.Second
)

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
	if w.short && !q.fifo && q.counts[flying] >= q.a.o.MaxInFlight {
		// To a receive that waits, AWS answers nothing at the end of its wait, and no error.
		q.unlock(now)
		return nil, errOverLimit.withf("Too many messages in flight: the limit is %d.", q.a.o.MaxInFlight)
	}
	got = q.take(w, now)
	if len(got) > 0 || w.short || q.deleted || q.a.draining {
		q.unlock(now)
		return got, nil
	}
	waiting := &waiter{wish: *w, answered: make(chan struct{})}
	q.waiters.Append(&waiting.place, waiting)
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
		if c.a.o.StrandCancelled {
			// As on AWS: the poll goes on, and what it finds is hidden from everybody.
			go func() {
				select {
				case <-w.answered:
				case <-timer.C:
				case <-c.a.closing:
				}
				timer.Stop()
				c.q.abandon(w)
			}()
			return nil, nil
		}
		timer.Stop()
	case <-c.a.closing:
		timer.Stop()
	}
	c.q.abandon(w)
	return w.got, w.err
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
	put("SenderId", c.a.o.Account)
	put("SentTimestamp", c.a.timestamp(t.sent))
	put("ApproximateReceiveCount", strconv.Itoa(t.receives))
	put("ApproximateFirstReceiveTimestamp", c.a.timestamp(t.first))
	put("SequenceNumber", t.sequence)
	put("MessageDeduplicationId", t.dedupID)
	put("MessageGroupId", t.group)
	put("AWSTraceHeader", t.trace)
	put("DeadLetterQueueSourceArn", t.source)
}
