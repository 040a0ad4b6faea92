package brokertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file has the cases of receipts and time: expiry, deadlines, extensions, acks, nacks and
// delays. Run calls each in a subtest with a queue of its own. Where a case sends from another
// goroutine, the two share the broker alone, so nothing is locked.

func ackedIsGone(e *env) {
	e.sendBodies("a", "b", "c")
	e.ack(e.take(3)...)
	e.gone("after an ack")
}

func expiryRedelivers(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	for range 2 {
		m = e.heldAndBack(m, time.Now(), "a message that was not settled")
	}
}

func deadlineIsEarly(e *env) {
	for _, late := range []bool{false, true} {
		started := time.Now()
		var m *broker.Message
		if late {
			// The poll is as long as it can be without a message. So a deadline that counts from
			// its start differs from one that counts from its answer.
			after := e.wait(e.v / 2)
			sent := e.sendAfter(after, e.out("late"))
			ms := e.poll(e.b, 1, started.Add(after+e.prompt))
			sent()
			if len(ms) == 0 {
				e.Fatalf("a message that was sent during the poll did not come within %v", e.prompt)
			}
			m = ms[0]
		} else {
			e.sendBodies("early")
			m = e.takeOne()
		}
		answered := time.Now()
		if late := m.Deadline.Sub(answered.Add(e.v)); late > 0 {
			e.Errorf("Deadline is %v later than the answer plus the timeout", late)
		}
		margin := min(answered.Sub(started), 5*time.Second, e.v/4)
		earliest := answered.Add(e.v - margin - e.h.Slack)
		if m.Deadline.Before(earliest) {
			e.Errorf("Deadline is %s, %v earlier than it may be", e.at(m.Deadline), earliest.Sub(m.Deadline))
		}
		e.ack(e.heldAndBack(m, answered, "a message before its Deadline"))
	}
}

func receiveChoosesVisibility(e *env) {
	want := e.hold * 2
	if e.l.MaxHold > 0 {
		want = min(want, e.l.MaxHold)
	}
	// A driver may honour it where the message is there already, but not where it comes during the
	// poll.
	for _, after := range []time.Duration{0, e.wait(e.v / 2)} {
		until := time.Now().Add(after + e.prompt)
		sent := e.sendAfter(after, e.out("a"))
		if after == 0 {
			sent()
		}
		var ms []*broker.Message
		for len(ms) == 0 {
			var err error
			o := broker.ReceiveOptions{Max: 1, Wait: e.wait(time.Until(until)), Visibility: want}
			ms, err = e.b.Receive(e.Context(), o)
			e.OK(err, "Receive")
			if len(ms) == 0 && !time.Now().Before(until) {
				e.Fatalf("a message that was available after %v did not come within %v", after, after+e.prompt)
			}
		}
		answered := time.Now()
		if after > 0 {
			sent()
		}
		m := ms[0]
		left := m.Deadline.Sub(answered)
		got := e.v
		if left > e.v {
			got = want
		}
		if left > got || left < got-got/4-e.h.Slack {
			e.Errorf("Deadline is %v after the answer; the queue's timeout is %v and %v was asked for", left, e.v, want)
		}
		again := e.between(m.Deadline, answered.Add(got+e.h.Slack), "a message at its Deadline")
		e.same(again, m)
		e.ack(again)
	}
}

func extensionKeepsHidden(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	// The first two beats come in time, each after a third of what is left.
	from, by := m.Deadline, time.Time{}
	for range 2 {
		e.quiet(time.Now().Add(time.Until(from)/3), "a held message")
		from = time.Now().Add(e.hold)
		e.extend(m, e.hold)
		by = time.Now().Add(e.hold + e.h.Slack)
	}
	e.same(e.between(from, by, "a message that was extended twice"), m)
}

func settlesAfterExtension(e *env) {
	e.sendBodies("acked", "nacked")
	ms := e.take(2)
	for range 2 {
		e.Pause(e.v / 4)
		for _, m := range ms {
			e.extend(m, e.hold)
		}
	}
	if string(ms[0].Body) != "acked" {
		ms[0], ms[1] = ms[1], ms[0]
	}
	e.ack(ms[0])
	e.nack(ms[1], 0)
	again := e.takeOne()
	e.same(again, ms[1])
	e.extend(again, e.hold)
	e.ack(again)
	e.gone("after an extension and an ack")
}

func longestExtension(e *env) {
	d := e.l.MaxHold
	if d == 0 {
		d = 24 * time.Hour
	}
	if e.l.MaxTotal > 0 {
		// The time since the receive counts too.
		d = min(d, e.l.MaxTotal-time.Minute)
	}
	e.sendBodies("a")
	m := e.takeOne()
	from := time.Now().Add(d)
	e.extend(m, d)
	by := time.Now().Add(d + e.h.Slack)
	e.same(e.between(from, by, fmt.Sprintf("a message extended by %v", d)), m)
}

func lateExtensionNeverHides(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	e.lapse(time.Now())
	e.staleAnswer(e.b.Extend(e.Context(), []broker.Hold{{Receipt: m.Receipt, For: e.hold}}), "Extend after the deadline")
	again := e.receiveBy(time.Now().Add(e.prompt), "the message, which nobody holds,")
	e.same(again, m)
	e.ack(again)
	e.gone("after the ack of the next delivery")
}

func holdBeyondLimits(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	answered := time.Now()
	try := func(d time.Duration) {
		err := e.b.Extend(e.Context(), []broker.Hold{{Receipt: m.Receipt, For: d}})
		call := fmt.Sprintf("Extend by %v, with MinHold %v and MaxHold %v,", d, e.l.MinHold, e.l.MaxHold)
		e.Want(call, broker.ErrAt(err, 0), broker.ErrUnsupported)
	}
	if e.l.MinHold > 0 {
		try(e.l.MinHold - 1)
		try(-time.Second)
	}
	if e.l.MaxHold > 0 {
		try(e.l.MaxHold + 1)
	}
	e.heldAndBack(m, answered, "a message whose extensions were refused")
}

func holdEndsAtMaxTotal(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	end := time.Now().Add(e.l.MaxTotal)
	step := e.l.MaxTotal / 5
	if e.l.MaxHold > 0 {
		step = min(step, e.l.MaxHold)
	}
	step = max(step, e.l.MinHold)
	for time.Until(end) > step/2 {
		// What the service answers near the end is its own concern.
		if err := e.b.Extend(e.Context(), []broker.Hold{{Receipt: m.Receipt, For: step}}); err != nil {
			if time.Until(end) > step {
				e.Fatalf("Extend by %v, %v before MaxTotal, was answered: %v", step, time.Until(end), err)
			}
			break
		}
		e.Pause(step / 2)
	}
	e.same(e.receiveBy(end.Add(e.h.Slack), "a message held for MaxTotal"), m)
}

func extensionUnsupported(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	answered := time.Now()
	err := e.b.Extend(e.Context(), []broker.Hold{{Receipt: m.Receipt, For: e.v}})
	e.Want("Extend", broker.ErrAt(err, 0), broker.ErrUnsupported)
	e.heldAndBack(m, answered, "a message whose extension was refused")
}

func lateAckTellsTheTruth(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	e.lapse(time.Now())
	err := broker.ErrAt(e.b.Ack(e.Context(), []broker.Receipt{m.Receipt}), 0)
	switch {
	case err == nil:
		e.gone("after a late ack that succeeded")
	case errors.Is(err, broker.ErrReceiptExpired):
		e.same(e.receiveBy(time.Now().Add(e.prompt), "a message whose late ack was refused"), m)
	default:
		e.Errorf("the late ack was answered: %v", err)
	}
}

func settledStaysSettled(e *env) {
	e.sendBodies("acked", "visible", "held")
	var acked, visible, held *broker.Message
	for _, m := range e.take(3) {
		switch string(m.Body) {
		case "acked":
			acked = m
		case "visible":
			visible = m
		default:
			held = m
		}
	}
	answered := time.Now()
	e.ack(acked)
	e.nack(visible, 0)
	hold := []broker.Hold{{Receipt: acked.Receipt}}
	e.staleAnswer(e.b.Ack(e.Context(), []broker.Receipt{acked.Receipt}), "a second Ack")
	e.staleAnswer(e.b.Nack(e.Context(), hold), "Nack after the Ack")
	if e.l.Extends {
		hold[0].For = e.hold
		e.staleAnswer(e.b.Extend(e.Context(), hold), "Extend after the Ack")
	}
	again := e.takeOne()
	e.same(again, visible)
	e.ack(again)
	e.ack(e.heldAndBack(held, answered, "a message beside an acked one"))
	e.gone("an acked message")
}

func attemptsRise(e *env) {
	e.sendBodies("a")
	const most = 6
	m := e.takeOne()
	for i := 1; ; i++ {
		answered := time.Now()
		want := i
		if !e.l.Attempts {
			want = 0
		}
		if m.Attempt != want {
			e.Errorf("delivery %d has Attempt %d, want %d", i, m.Attempt, want)
		}
		if i == most {
			return
		}
		switch i % 3 {
		case 1:
			e.nack(m, 0)
			m = e.takeOne()
		case 2:
			e.lapse(answered)
			m = e.takeOne()
		default:
			delay := min(e.v/2, e.l.MaxNack)
			e.nack(m, delay)
			m = e.receiveBy(time.Now().Add(delay+max(e.prompt, e.h.Slack)), "a message nacked with a delay")
		}
	}
}

func nackZeroIsImmediate(e *env) {
	e.sendBodies("a")
	for range 3 {
		e.nack(e.takeOne(), 0)
	}
	e.ack(e.takeOne())
	e.gone("after the ack")
}

// nacked checks a delay that is short of the timeout or goes beyond it.
func nacked(e *env, d time.Duration) {
	e.sendBodies("a")
	m := e.takeOne()
	from := time.Now().Add(d)
	e.nack(m, d)
	by := time.Now().Add(d + e.h.Slack)
	again := e.between(from, by, fmt.Sprintf("a message nacked for %v", d))
	e.same(again, m)
	e.ack(again)
}

func nackDelayHonoured(e *env) {
	nacked(e, min(e.v/2, e.l.MaxNack))
	nacked(e, min(e.v*2, e.l.MaxNack))
}

func longestNack(e *env) { nacked(e, e.l.MaxNack) }

func nackBeyondLimit(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	answered := time.Now()
	over := e.l.MaxNack + time.Second
	err := e.b.Nack(e.Context(), []broker.Hold{{Receipt: m.Receipt, For: over}})
	e.Want(fmt.Sprintf("a nack for %v, with MaxNack %v,", over, e.l.MaxNack), broker.ErrAt(err, 0), broker.ErrUnsupported)
	e.heldAndBack(m, answered, "a message whose nack was refused")
}

// delayed sends a message with a delay between two without.
func delayed(e *env, d time.Duration) {
	late := e.out("late")
	late.Delay = d
	late.Attributes, late.Meta = full(e).Attributes, fullMeta()
	from := time.Now().Add(d)
	e.send(e.out("now-1"), late, e.out("now-2"))
	by := time.Now().Add(d + e.h.Slack)
	for _, m := range e.take(2) {
		if string(m.Body) == "late" {
			e.Fatalf("the message delayed by %v came with its neighbours", d)
		}
		e.ack(m)
	}
	m := e.between(from, by, fmt.Sprintf("a message delayed by %v", d))
	e.unchanged(m, late)
	e.ack(m)
}

func delayOnSend(e *env) { delayed(e, min(e.v, e.l.MaxDelay)) }

func longestDelay(e *env) { delayed(e, e.l.MaxDelay) }

func delayBeyondLimit(e *env) {
	o := e.out("late")
	o.Delay = e.l.MaxDelay + time.Second
	_, err := e.b.Send(e.Context(), []broker.Outgoing{o})
	e.Want(fmt.Sprintf("a delay of %v, with MaxDelay %v,", o.Delay, e.l.MaxDelay), broker.ErrAt(err, 0), broker.ErrUnsupported)
	until := time.Now().Add(e.v / 2)
	if e.h.Virtual {
		until = time.Now().Add(o.Delay + e.v)
	}
	e.quiet(until, "a message whose send was refused")
}
