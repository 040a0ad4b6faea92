package sqsfake

// This file owns how a message moves to the dead-letter queue. take calls redrive, and unlock calls
// settle, under the server's lock. Moves back are in movetask.go, and what a policy may say is in
// redrivepolicy.go.

// checkTarget checks that a queue may send its dead letters where a policy says.
func (a *account) checkTarget(p *redrivePolicy, text, arn string, fifo bool) *apiError {
	if p == nil {
		return nil
	}
	target := a.byARN(p.target)
	switch {
	case target == nil:
		return badValue("RedrivePolicy", text, "Dead letter target does not exist.")
	case target.fifo != fifo:
		return badValue("RedrivePolicy", text, "Dead-letter queue must be same type of queue as the source.")
	case !target.settings.allow.allows(arn):
		return badValue("RedrivePolicy", text, "The dead-letter queue's RedriveAllowPolicy does not allow this queue.")
	}
	return nil
}

// redrive moves m to the dead-letter queue if it has had its receives. AWS does so when
// somebody asks for the message once more, not when its timeout ends.
func (q *queue) redrive(m *message, now int64) bool {
	p := q.settings.redrive
	if p == nil || int64(m.serial) < int64(p.maxReceives) {
		return false
	}
	target := q.a.byARN(p.target)
	if target == nil || target.fifo != q.fifo {
		return false // the target was deleted: the message stays
	}
	q.drop(m)
	c := *m.content
	c.source = q.arn
	moved := &message{content: &c, receives: m.receives, first: m.first, sent: m.sent}
	if target.fifo {
		// A standard queue's dead letters keep their age, so that retention goes on; a FIFO
		// queue's begin anew.
		moved.sent = now
	}
	target.take1(moved, now)
	return true
}

// take1 adds a message that comes from another queue.
func (q *queue) take1(m *message, now int64) {
	if q.fifo {
		m.sequence = q.a.nextSequence()
	}
	q.add(m, now, 0)
	q.a.touched = append(q.a.touched, q)
}

// sourcesOf are the queues whose dead letters go to q, by name.
func (a *account) sourcesOf(q *queue) []*queue {
	var sources []*queue
	for _, name := range a.sortedNames("") {
		if o := a.queues[name]; o.settings.redrive != nil && o.settings.redrive.target == q.arn {
			sources = append(sources, o)
		}
	}
	return sources
}
