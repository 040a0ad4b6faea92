package sqsfake

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// This file owns sends: what a message must be, and how it gets into its queue. The actions run in
// the goroutine of their request. compose needs no lock, because it reads the settings as lookUp
// found them, and settings never change. accept runs under the server's lock.

const maxDelay = 15 * time.Minute

// compose makes the content of an entry, or says what is wrong with it. It runs without
// the lock: checksums take time.
func (c *call) compose(e *entry, batch bool) (*content, *apiError) {
	set := c.settings
	if e.body == "" {
		return nil, missing("MessageBody")
	}
	if err := checkAttributes(e.attributes); err != nil {
		return nil, err
	}
	if r, ok := badCharacter(e.body); !ok {
		return nil, errContents.withf(badText, r)
	}
	size := e.size()
	if size > set.maxSize {
		what := "are invalid"
		if batch {
			what = "cannot be validated" // LocalStack's recordings of AWS have both
		}
		return nil, errParameter.withf("One or more parameters %s. Reason: Message must be shorter than %d bytes.", what, set.maxSize)
	}
	if e.delay < 0 || e.delay > int64(maxDelay/time.Second) {
		return nil, badValue("DelaySeconds", e.delay, "DelaySeconds must be >= 0 and <= 900.")
	}
	trace, err := traceHeader(e.system)
	if err != nil {
		return nil, err
	}
	if trace == "" {
		trace = c.trace
	}
	if err := c.checkOrder(e); err != nil {
		return nil, err
	}
	m := &content{
		id: newUUID(), body: e.body, bodyMD5: md5Text(e.body),
		attributes: e.attributes, attrsMD5: md5Attributes(e.attributes),
		trace: trace, group: e.groupID, dedupID: e.dedupID, size: size,
	}
	if c.q.fifo && m.dedupID == "" {
		sum := sha256.Sum256([]byte(e.body))
		m.dedupID = hex.EncodeToString(sum[:])
	}
	return m, nil
}

// size is what counts towards the limits.
func (e *entry) size() int64 {
	n := int64(len(e.body))
	for i := range e.attributes {
		n += e.attributes[i].size()
	}
	return n
}

// checkOrder checks groups, deduplication ids and delays against the queue's type.
func (c *call) checkOrder(e *entry) *apiError {
	if e.given.has(pGroupID) && !validFIFOID(e.groupID) {
		return badValue("MessageGroupId", e.groupID, "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	if !c.q.fifo {
		if e.given.has(pDedupID) {
			return badValue("MessageDeduplicationId", e.dedupID, "The request includes a parameter that is not valid for this queue type.")
		}
		return nil
	}
	if e.given.has(pDedupID) && !validFIFOID(e.dedupID) {
		return badValue("MessageDeduplicationId", e.dedupID, "MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	if e.delay != 0 {
		return badValue("DelaySeconds", e.delay, "The request include parameter that is not valid for this queue type.")
	}
	return nil
}

// checkFIFO looks for what a FIFO queue wants of every message. A batch that lacks it in one
// entry is refused whole.
func (c *call) checkFIFO(e *entry, batch bool) *apiError {
	if !c.q.fifo {
		return nil
	}
	if !e.given.has(pGroupID) {
		err := missing("MessageGroupId")
		if batch {
			err = errParameter.withf("%s", err.message)
		}
		return err
	}
	if !e.given.has(pDedupID) && !c.settings.contentDedup {
		return errParameter.withf("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	return nil
}

// traceHeader reads the system attributes: AWS takes one, AWSTraceHeader.
func traceHeader(as []attribute) (string, *apiError) {
	trace := ""
	for i := range as {
		a := &as[i]
		if a.name != "AWSTraceHeader" {
			return "", errParameter.withf("Message system attribute name '%s' is invalid.", a.name)
		}
		if a.dataType != "String" || a.text == "" || a.hasBlob || a.hasList {
			return "", errParameter.withf("Message system attribute '%s' must contain a non-empty value of type 'String'.", a.name)
		}
		trace = a.text
	}
	return trace, nil
}

// accept puts a content into the queue. A duplicate of the last five minutes is answered as
// the message that it repeats.
func (q *queue) accept(e *entry, m *content, now int64) *content {
	delay := int64(q.settings.delay)
	if e.given.has(pDelay) && !q.fifo {
		delay = e.delay * int64(time.Second)
	}
	if q.fifo {
		key := dedupKey{id: m.dedupID}
		if q.dedupPerGroup(now) {
			key.group = m.group
		}
		if s := q.order.sent[key]; s != nil {
			m.id, m.sequence = s.id, s.sequence // the checksums stay those of this body
			return m
		}
		m.sequence = q.a.nextSequence()
		q.order.remember(key, m, now)
	}
	q.add(&message{content: m, sent: now}, now, delay)
	return m
}

func (c *call) sendMessage() *apiError {
	e := &c.in.entry
	if err := c.checkFIFO(e, false); err != nil {
		return err
	}
	m, err := c.compose(e, false)
	if err != nil {
		return err
	}
	now := c.q.lock()
	m = c.q.accept(e, m, now)
	c.q.unlock(now)
	w := &c.out
	w.open('{')
	c.writeSent(w, e, m, 0)
	w.close('}')
	return nil
}

// writeSent writes the answer for the i-th message.
func (c *call) writeSent(w *writer, e *entry, m *content, i int) {
	w.field("MD5OfMessageBody", c.fault.spoilMD5(i, m.bodyMD5))
	w.optional("MD5OfMessageAttributes", m.attrsMD5)
	w.optional("MD5OfMessageSystemAttributes", md5Attributes(e.system))
	w.field("MessageId", m.id)
	w.optional("SequenceNumber", m.sequence)
}

func (c *call) sendMessageBatch() *apiError {
	entries := c.in.entries
	total := int64(0)
	for i := range entries {
		if err := c.checkFIFO(&entries[i], true); err != nil {
			return err
		}
		total += entries[i].size()
	}
	if total > maxMessageSize {
		return errBatchTooLong.withf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxMessageSize, total)
	}
	contents := make([]*content, len(entries))
	results := make([]*apiError, len(entries))
	for i := range entries {
		contents[i], results[i] = c.compose(&entries[i], true)
	}
	now := c.q.lock()
	for i, m := range contents {
		if err := c.fault.entry(i); err != nil {
			results[i] = err
			if !c.fault.Applied {
				continue
			}
		}
		if m != nil {
			contents[i] = c.q.accept(&entries[i], m, now)
		}
	}
	order := shuffle(c.q.rnd, len(entries))
	c.q.unlock(now)
	c.writeBatch(results, order, func(w *writer, i int) { c.writeSent(w, &entries[i], contents[i], i) })
	return nil
}
