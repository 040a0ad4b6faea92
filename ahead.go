package onceq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/ahead"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns jobs that are due later than their queue can keep them. Such a message would be
// gone before its time, and nobody would know. So it is refused at its first receive, or sent
// anew. hosts.go and intake.go ask, in the goroutine that has the run; Worker.look reads what the
// queue can keep.

// patience is what the queue does to a message that waits for its time. A batch does not know.
func (in *intake) patience() ahead.Queue {
	return ahead.Queue{
		Keeps:    time.Duration(in.foreign.keeps.Load()),
		Receives: int(in.foreign.receives.Load()),
		Hop:      in.e.LongestNack(),
	}
}

// tooFarAhead refuses a message that its queue cannot keep until due.
func (in *intake) tooFarAhead(m *broker.Message, due time.Time) *engine.Refusal {
	if in.carry.able(m) {
		return nil
	}
	q := in.patience()
	if q.Keeps <= 0 && q.Receives <= 0 {
		return nil
	}
	why := q.Refuses(due, m.Published, time.Now(), m.Attempt)
	if why == "" {
		return nil
	}
	from := q.From(due)
	return &engine.Refusal{Class: ClassTooEarly, Err: fmt.Errorf("onceq: the job is %s; it can be sent from %s on", why, from.UTC().Format(time.RFC3339))}
}

// tooLong is the handler's error. But where it postpones the job for longer than the queue can keep
// its message, and nothing carries that, the job fails, and its letter keeps it.
func (in *intake) tooLong(r *run, err error) error {
	if err == nil {
		return nil // before p, which errors.As moves to the heap
	}
	var p *verdict.PostponeError
	if r.Message == nil || !errors.As(err, &p) || p.After <= 0 {
		return err
	}
	no := in.tooFarAhead(r.Message, time.Now().Add(p.After))
	if no == nil {
		return err
	}
	_ = in.refuseOutlasting(r, no)
	return Permanent(verdict.Classed(ClassTooEarly, "%w: %w", no.Err, err))
}

// refuseOutlasting turns a message away that its queue cannot keep, and says so in the log: at the
// first such message, and then each engine.TellAgain while they come.
func (in *intake) refuseOutlasting(r *run, no *engine.Refusal) *engine.Refusal {
	if since, tell := in.foreign.outlasting.shouldTell(); tell {
		in.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, "onceq: jobs are due later than their queue can keep them, and become dead letters. Let them wait in a queue that keeps messages, in PostgreSQL or SQLite, or send them later",
			engine.ForSo(since), slog.String("job", r.Name()), slog.Any("error", no.Err))
	}
	return no
}

// This part owns messages that wait for longer than their queue can delay them. Such a message is
// sent anew, and then acked: the copy has the queue's whole retention, and all of its receives,
// before it. workerHost asks whether a message is to be carried, in the goroutine that ends the
// run; the carrier's own goroutines (batch.Queue) call send. No lock is held.

// NoCarry is a WorkerConfig.Carry that carries nothing.
var NoCarry broker.Sender = noCarry{}

type noCarry struct{}

func (noCarry) Send(context.Context, []broker.Outgoing) ([]string, error) {
	return nil, broker.ErrUnsupported
}
func (noCarry) Limits() broker.Limits { return broker.Limits{SendBatch: 1} }

// carrier sends messages anew.
type carrier struct {
	to         broker.Sender
	call       time.Duration // bounds one call
	settle     time.Duration // for how long a copy is tried to be sent
	hop        time.Duration // the queue's longest delay
	ordered    bool          // it orders groups
	patience   func() ahead.Queue
	log        *slog.Logger
	keyOf      func(*broker.Message) (dedupe.Key, error) // nil = the metadata have the key
	queue      *batch.Queue[*run]
	acks, back func(*run)
	refused    atomic.Int64 // when a copy was last given up, in Unix nanoseconds; 0 = never
}

// carrierRests is how long a carrier that could not send counts as none. A worker that may not send
// to its queue is such a one: a job that the queue cannot keep becomes a dead letter then.
const carrierRests = time.Hour

// able reports whether a message like m can be sent anew.
func (c *carrier) able(m *broker.Message) bool {
	if c == nil || c.ordered && m.Group != "" {
		return false
	}
	at := c.refused.Load()
	return at == 0 || time.Since(time.Unix(0, at)) > carrierRests
}

// carriedMost is the rest of a not-before that is never carried: it is over soon.
const carriedMost = time.Minute

// dueAt is when a message that is given back is due, and whether its job was postponed. Zero = its
// wait is no such.
func dueAt(r *run) (due time.Time, postponed bool) {
	switch r.Outcome {
	case engine.Postponed:
		return r.Due(), true
	case engine.Outcome(OutcomeEarly):
		return time.Now().Add(early(r.Message)), false
	}
	return time.Time{}, false
}

// takes reports whether the run's message is sent anew, and sees to it: where the message has used
// up half of what its queue allows, or is postponed for longer than its queue delays a message.
func (c *carrier) takes(r *run) bool {
	if !c.able(r.Message) {
		return false
	}
	due, postponed := dueAt(r)
	left := time.Until(due)
	if due.IsZero() || left <= 0 || !postponed && left <= carriedMost {
		return false
	}
	if !(postponed && left > c.hop) && !c.patience().Half(r.Message.Published, time.Now(), min(left, c.hop), r.Message.Attempt) {
		return false
	}
	if !c.isSame(r) {
		return false
	}
	c.queue.Add(r)
	return true
}

// isSame reports whether a copy has the key of the run's message. A Key of the user's may look at
// what a copy does not keep, as the broker's id. Then a copy would be another job.
func (c *carrier) isSame(r *run) bool {
	if c.keyOf == nil {
		return true
	}
	o := c.copyOf(r)
	k, err := c.keyOf(&broker.Message{Body: o.Body, Attributes: o.Attributes, Group: o.Group, Meta: o.Meta})
	return err == nil && k.Key == r.Key.Key
}

// send sends copies of messages, and has those acked whose copy is stored. A copy in doubt is sent
// again: two messages of one key run once. What is not taken for the time that settle says is given
// back, and carried when it comes again.
func (c *carrier) send(rs []*run) {
	letter.InParts(len(rs), func(from, to int) bool { return c.sendPart(rs[from:to]) })
}

func (c *carrier) sendPart(rs []*run) (tooMuch bool) {
	out := make([]broker.Outgoing, len(rs))
	for i, r := range rs {
		out[i] = c.copyOf(r)
	}
	ctx := engine.CallContext(context.Background(), c.call)
	_, err := engine.Guard(func() ([]string, error) { return c.to.Send(ctx, out) })
	ctx.Close()
	if letter.IsTooMuch(err, len(rs)) {
		return true
	}
	for i, r := range rs {
		switch e := broker.ErrAt(err, i); {
		case e == nil:
			c.refused.Store(0)
			r.Anew()
			r.Action = engine.Ack
			c.acks(r)
		case r.Repeats(c.settle):
			time.AfterFunc(retry.Pause(r.Tries()), func() { c.queue.Add(r) })
		default:
			c.refused.Store(time.Now().UnixNano())
			c.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, "onceq: a message that waits for longer than its queue keeps it could not be sent anew; for an hour such jobs become dead letters of class too-early. Let the worker send to its queue, or set WorkerConfig.Carry",
				slog.String("job", r.Name()), slog.Any("error", e))
			r.Anew()
			if now := time.Now(); c.patience().Refuses(now.Add(r.Verdict.Delay), r.Message.Published, now, r.Message.Attempt) != "" {
				r.Verdict.Delay = min(r.Verdict.Delay, carriedMost) // it would not come again: see outlasts
			}
			c.back(r)
		}
	}
	return false
}

// copyOf is the message that takes the place of the run's.
func (c *carrier) copyOf(r *run) broker.Outgoing {
	m := r.Message
	meta := m.Meta.Clone()
	if meta == nil { // of a producer that does not use onceq
		meta = new(broker.Meta)
	}
	due, postponed := dueAt(r)
	if far := time.Now().Add(postponedMost); postponed {
		meta.Postponed = due
		if due.After(far) {
			meta.Postponed = far
		}
	}
	delay := min(time.Until(due), c.to.Limits().MaxDelay)
	return broker.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Group: m.Group, Meta: meta,
		Delay: max(0, delay).Truncate(time.Second),
	}
}

// carryTo is where a worker of that queue sends copies; nil = nowhere.
func carryTo(asked broker.Sender, queue broker.Receiver) broker.Sender {
	if _, none := asked.(noCarry); none {
		return nil
	}
	if !values.IsNil(asked) {
		return asked
	}
	if own, ok := broker.As[broker.Sender](queue); ok && !queue.Limits().FansOut {
		return own
	}
	return nil
}

// postponedMost is how far ahead a copy may say that its job goes on. What lies further ahead is
// not believed: the handler says again how long it waits.
const postponedMost = 31 * 24 * time.Hour

// early is how long a message waits for its time: its not-before, or when its job goes on that was
// postponed.
func early(m *broker.Message) time.Duration {
	if m.Meta == nil || m.Meta.NotBefore.IsZero() && m.Meta.Postponed.IsZero() {
		return 0
	}
	left := time.Until(m.Meta.NotBefore)
	if on := time.Until(m.Meta.Postponed); on <= postponedMost+time.Hour { // clocks differ
		left = max(left, on)
	}
	return max(0, left)
}
