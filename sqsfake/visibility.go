package sqsfake

import "time"

// maxVisibility is the longest visibility timeout, and the longest hold in total: from the
// receive on, however often it is extended.
const maxVisibility = 12 * time.Hour

const (
	// notAvailable is without a full stop in the answer to a batch alone (gocloud.dev's
	// recordings).
	notAvailable  = "Message does not exist or is not available for visibility timeout change"
	handleExpired = "The receipt handle has expired."
)

// changeVisibility gives a message in flight another timeout.
//
// After the timeout AWS answers OK and does nothing: the message stays visible, and the
// caller believes that it holds it. So does this server; Options.ReportLostLeases makes it
// an error. Once somebody else has the message, an old handle may change that one's hold.
func (q *queue) changeVisibility(e *entry, now int64) *apiError {
	if e.visibility < 0 || e.visibility > int64(maxVisibility/time.Second) {
		return badValue("VisibilityTimeout", e.visibility, "Must be between 0 and 43200, if provided.")
	}
	m, current, err := q.find(e)
	if err != nil {
		return err
	}
	if m == nil {
		err := lostReceipt(e.receipt, notAvailable+".")
		err.lost = notAvailable
		return err
	}
	if !current && q.fifo {
		return lostReceipt(e.receipt, handleExpired)
	}
	report := q.a.o.ReportLostLeases
	if m.state != flying || !current && (report || !q.staleWorks(e)) {
		if report {
			return errNotInflight.withf("The message is no longer in flight for this receipt handle.")
		}
		return nil
	}
	timeout := e.visibility * int64(time.Second)
	if now+timeout > m.received+int64(maxVisibility) {
		return badValue("VisibilityTimeout", e.visibility, "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
	}
	m.changes++
	if timeout == 0 {
		q.show(m)
		return nil
	}
	q.hide(m, flying, now+timeout)
	return nil
}

// remove deletes a message. On a standard queue that works after the timeout too. Once somebody
// else has received the message it succeeds, and may delete nothing. A FIFO queue wants a handle
// that still holds.
func (q *queue) remove(e *entry) *apiError {
	m, current, err := q.find(e)
	if err != nil || m == nil {
		return err // deleting what is deleted succeeds
	}
	if q.fifo && (!current || m.state != flying) {
		return lostReceipt(e.receipt, handleExpired)
	}
	if current || q.staleWorks(e) {
		q.drop(m)
	}
	return nil
}

func (c *call) changeMessageVisibility() *apiError {
	now := c.q.lock()
	defer c.q.unlock(now)
	return c.q.changeVisibility(&c.in.entry, now)
}

func (c *call) deleteMessage() *apiError {
	now := c.q.lock()
	defer c.q.unlock(now)
	return c.q.remove(&c.in.entry)
}

func (c *call) changeMessageVisibilityBatch() *apiError {
	now := c.q.lock()
	defer c.q.unlock(now)
	c.eachEntry(func(e *entry) *apiError { return c.q.changeVisibility(e, now).inBatch() })
	return nil
}

func (c *call) deleteMessageBatch() *apiError {
	now := c.q.lock()
	defer c.q.unlock(now)
	c.eachEntry(func(e *entry) *apiError { return c.q.remove(e).inBatch() })
	return nil
}

// staleWorks decides over one use of a receipt handle of an earlier receive, on a standard queue.
func (q *queue) staleWorks(e *entry) bool {
	switch {
	case e.spoiled:
		return false
	case q.a.o.StaleHandles == StaleRandom:
		return q.rnd.IntN(2) == 0
	default:
		return q.a.o.StaleHandles == StaleWork
	}
}
