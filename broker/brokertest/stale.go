package brokertest

import (
	"time"

	"github.com/onceq/onceq/broker"
)

// stale is a delivery that ran out, the next one of the same message, and what a call with the old
// receipt was answered.
type stale struct {
	m        *broker.Message
	answered time.Time // m came
	settled  time.Time // just before the call
	// void: the call must have changed nothing.
	void bool
}

func staleReceipt(e *env, call string, settle func(broker.Receipt) error) stale {
	e.Helper()
	e.sendBodies("a")
	old := e.takeOne()
	e.lapse(time.Now())
	s := stale{m: e.takeOne(), answered: time.Now()}
	e.same(s.m, old)
	s.settled = time.Now()
	err := settle(old.Receipt)
	e.staleAnswer(err, call+" with the old receipt")
	s.void = e.h.StaleReceiptsVoid || broker.ErrAt(err, 0) != nil
	return s
}

// back wants the message at the end of its newest delivery, removes it, and wants it gone.
func (s *stale) back(e *env, m *broker.Message) {
	e.Helper()
	if m == nil {
		m = e.heldAndBack(s.m, s.answered, "the message, held by its new receipt,")
	}
	e.same(m, s.m)
	e.ack(m)
	e.gone("after an ack with the newest receipt")
}

func staleAck(e *env) {
	s := staleReceipt(e, "Ack", func(r broker.Receipt) error { return e.b.Ack(e.Context(), []broker.Receipt{r}) })
	if s.void {
		s.back(e, nil)
		return
	}
	ms := e.poll(e.b, 1, s.answered.Add(e.v+e.h.Slack))
	if len(ms) == 0 {
		e.gone("after a stale ack that worked")
		return
	}
	if early := time.Until(s.m.Deadline); early > 0 {
		e.Fatalf("after a stale ack the message came %v before the end of its newest delivery", early)
	}
	s.back(e, ms[0])
}

func staleNack(e *env) {
	s := staleReceipt(e, "Nack", func(r broker.Receipt) error { return e.b.Nack(e.Context(), []broker.Hold{{Receipt: r}}) })
	if s.void {
		s.back(e, nil)
		return
	}
	m := e.receiveBy(s.answered.Add(e.v+e.h.Slack), "the message, after a stale nack,")
	if early := time.Until(s.m.Deadline); early > 0 && time.Since(s.settled) > e.prompt {
		e.Errorf("after a stale nack the message came neither at once nor at the end of its newest delivery, but %v before that", early)
	}
	s.back(e, m)
}

func staleExtension(e *env) {
	// The extension would outlast the timeout, so that it shows.
	longer := e.hold * 3
	if e.l.MaxHold > 0 {
		longer = min(longer, e.l.MaxHold)
	}
	s := staleReceipt(e, "Extend", func(r broker.Receipt) error {
		return e.b.Extend(e.Context(), []broker.Hold{{Receipt: r, For: longer}})
	})
	if s.void {
		s.back(e, nil)
		return
	}
	m := e.between(s.m.Deadline, time.Now().Add(longer+e.h.Slack), "the message, after a stale extension,")
	if late := time.Since(s.answered.Add(e.v + e.h.Slack)); late > 0 && time.Now().Before(s.settled.Add(longer)) {
		e.Errorf("after a stale extension by %v the message came %v after the end of its newest delivery, and before that of the extension", longer, late)
	}
	s.back(e, m)
}
