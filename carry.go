package onceq

import (
	"context"
	"log/slog"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/internal/values"
)

// This file owns messages that wait for longer than their queue can delay them. Such a message is
// sent anew, and then acked: the copy has the queue's whole retention, and all of its receives,
// before it. workerHost asks whether a message is to be carried, in the goroutine that ends the
// run; the carrier of copies (batch.Queue) calls Worker.carry. No lock is held.

// NoCarry is a WorkerConfig.Carry that carries nothing.
var NoCarry broker.Sender = noCarry{}

type noCarry struct{ keepInQueue }

// carriedMost is the rest of a wait that is never carried: it is over soon.
const carriedMost = time.Minute

// dueAt is when a message that is given back is due, and whether its job was postponed. Zero = its
// wait is no such.
func dueAt(r *run) (due time.Time, postponed bool) {
	switch Outcome(r.Outcome) {
	case OutcomePostponed:
		return r.Due(), true
	case OutcomeEarly:
		return time.Now().Add(early(r.Message)), false
	}
	return time.Time{}, false
}

// carries reports whether the run's message is sent anew, as it has waited for half of what its
// queue allows, or is postponed for longer than its queue delays a message.
func (h *workerHost) carries(r *run) (due time.Time, yes bool) {
	if h.carrier == nil || h.limits.OrderedGroups && r.Message.Group != "" {
		return due, false
	}
	due, postponed := dueAt(r)
	left := time.Until(due)
	if due.IsZero() || left <= carriedMost {
		return due, false
	}
	hop := h.e.LongestNack()
	return due, postponed && left > hop || h.patience().Half(r.Message.Published, time.Now(), min(left, hop), r.Message.Attempt)
}

// carry sends copies of messages, and has those acked whose copy is stored. A copy in doubt is sent
// again: two messages of one key run once. What the queue does not take for SettleTimeout is given
// back, and carried when it comes again.
func (w *Worker) carry(rs []*run) {
	letter.InParts(len(rs), func(from, to int) bool { return w.carryPart(rs[from:to]) })
}

func (w *Worker) carryPart(rs []*run) (tooMuch bool) {
	out := make([]broker.Outgoing, len(rs))
	for i, r := range rs {
		out[i] = w.copyOf(r)
	}
	ctx := engine.CallContext(context.Background(), w.p.c.CallTimeout)
	_, err := engine.Guard(func() ([]string, error) { return w.c.Carry.Send(ctx, out) })
	ctx.Close()
	if letter.IsTooMuch(err, len(rs)) {
		return true
	}
	for i, r := range rs {
		switch e := broker.ErrAt(err, i); {
		case e == nil:
			r.Anew()
			r.Action = engine.Ack
			w.acks.Add(r)
		case r.Repeats(w.p.c.SettleTimeout):
			time.AfterFunc(retry.Pause(r.Tries()), func() { w.carriers.Add(r) })
		default:
			w.p.log.LogAttrs(r.Flow().Terms.Base, slog.LevelError, "onceq: a message that waits for longer than its queue keeps it could not be sent anew; it is given back, and that is tried again when it comes",
				slog.String("job", r.Name()), slog.Any("error", e))
			r.Anew()
			w.nacks.Add(r)
		}
	}
	return false
}

// copyOf is the message that takes the place of the run's.
func (w *Worker) copyOf(r *run) broker.Outgoing {
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
	delay := min(time.Until(due), w.c.Carry.Limits().MaxDelay)
	return broker.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Group: m.Group, Meta: meta,
		Delay: max(0, delay).Truncate(time.Second),
	}
}

// carrierOf is where a worker of that queue sends copies; nil = nowhere.
func carrierOf(asked broker.Sender, queue broker.Receiver) broker.Sender {
	if _, none := asked.(noCarry); none {
		return nil
	}
	if values.IsNil(asked) {
		asked, _ = broker.As[broker.Sender](queue)
	}
	return asked
}

// postponedMost is how far ahead a copy may say that its job goes on. What lies further ahead is
// not believed: the handler says again how long it waits.
const postponedMost = DefaultRetention
