package model

import (
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns a handler's steps: its effects, its transaction, what it saves, and its end.
// worker calls running. A step changes the copy that from gives it, so nothing is locked.

// running makes the steps of worker i's handler. It knows nothing of leases: that its claim was
// taken over does not keep it from acting.
func (m *model) running(s *state, i int) {
	if m.c.Limits && !s.w[i].let {
		m.limited(s, i)
	} else {
		m.working(s, i)
	}
	if !m.c.Calm && s.rec.dead && s.rec.token == ownToken(i) && s.tx.phase == noTx {
		n := m.from(s)
		if m.renew(&n, ownToken(i), false, 0) == nil {
			m.step(i, "renews its lease", n)
		}
	}
	if m.without(ReleaseAfterReturn) && s.tx.phase == noTx {
		n := m.from(s)
		m.settle(&n, settleCall{token: ownToken(i), to: dedupe.Released, uncounted: true})
		m.step(i, "releases the claim while the handler runs", n)
	}
}

// limited makes the steps of a limiter, which is asked under the claim and before the work begins.
func (m *model) limited(s *state, i int) {
	n := m.from(s)
	n.w[i].let, n.ghost.begun = true, true
	m.step(i, "limiter: the job may begin", n)
	m.end(s, i, "limiter: the job gets a time of its own", verdict.Ending{Returned: verdict.Postpone})
	for _, cut := range []verdict.Cut{verdict.ByTimeout, verdict.ByDrain} {
		e := verdict.Ending{Returned: verdict.NotBegun, Cut: cut}
		if m.without(UnbegunIsNone) {
			e.Returned = verdict.Error
		}
		if m.without(PostponedUnbegun) {
			e.Returned = verdict.Postpone
		}
		if cut == verdict.ByTimeout || m.c.Drains {
			m.end(s, i, "limiter: the job is cut off before it begins", e)
		}
	}
}

// working makes the steps of the handler itself.
func (m *model) working(s *state, i int) {
	if m.c.External && !s.w[i].acted {
		n := m.from(s)
		m.act(&n, i)
		m.step(i, "handler: has its effect", n)
	}
	if m.c.Steps {
		m.stepping(s, i)
	}
	if m.c.Tx {
		m.transaction(s, i)
	}
	if s.tx.owner != ownOwner(i) { // no handler leaves its transaction open
		m.endHandler(s, i)
	}
}

// act counts an external effect where its number was promised.
func (m *model) act(s *state, i int) {
	w := &s.w[i]
	w.acted, s.ghost.acted = true, true
	count := &s.ghost.effects
	if w.overtaken {
		count = &w.effects
	}
	if *count > 0 {
		if m.c.Calm {
			m.markBroken(OneCalmEffect)
		} else {
			m.markBroken(OneParkedEffect)
		}
	}
	if m.c.Calm || m.parks(i) {
		*count = 1
	}
}

// transaction makes the steps of a handler that completes its job in a transaction of the store's
// database.
func (m *model) transaction(s *state, i int) {
	w := &s.w[i]
	switch {
	case s.tx.phase == noTx:
		n := m.from(s)
		n.w[i].joined = true
		if n.tx.phase = m.completeTx(&n, ownToken(i)); n.tx.phase != noTx {
			n.tx.owner = ownOwner(i)
			m.step(i, "handler: completes the job in a transaction", n)
		} else if !w.joined {
			m.step(i, "handler: CompleteTx refuses, and the transaction is rolled back", n)
		}
	case s.tx.owner == ownOwner(i):
		n := m.from(s)
		m.commit(&n, n.tx.phase)
		m.step(i, "handler: commits", n)
		if s.tx.phase == txOpen {
			n = m.from(s)
			n.tx = tx{phase: txInFlight}
			m.fault(i, "handler: sends COMMIT and gets no answer", n)
		}
		n = m.from(s)
		n.tx = tx{}
		m.step(i, "handler: rolls back", n)
	}
}

// endHandler lets the handler return, in every way that an honest one may: nil when it believes its
// effect to have happened; under Park an error only when it knows that it has not.
func (m *model) endHandler(s *state, i int) {
	w := &s.w[i]
	park := m.parks(i)
	mayFail := !w.acted && w.did == 0 || !park && !m.c.Calm
	if (!m.c.External || w.acted) && (!m.c.Tx || w.joined) && (!m.c.Steps || w.saved == allSteps) {
		m.end(s, i, "handler: returns nil", verdict.Ending{Returned: verdict.Nil})
		if m.c.Drains && m.without(SettleOutlivesHandler) {
			n := m.from(s)
			n.leave(i)
			m.step(i, "handler: returns nil, and the settlement is dropped, for the drain has ended its context", n)
		}
	}
	if m.c.Drains && (mayFail || park) {
		m.end(s, i, "handler: is cut off by a drain", verdict.Ending{Returned: verdict.Error, Cut: verdict.ByDrain})
	}
	if m.c.Steps && w.saved < allSteps && (mayFail || w.did == 0) {
		m.end(s, i, "handler: gives the job back for a time", verdict.Ending{Returned: verdict.Postpone})
	}
	if m.c.HandlersSucceed {
		return
	}
	if mayFail {
		m.end(s, i, "handler: returns an error", verdict.Ending{Returned: verdict.Error})
		m.end(s, i, "handler: returns a permanent error", verdict.Ending{Returned: verdict.Permanent})
	}
	if mayFail || park {
		m.end(s, i, "handler: cannot tell whether its effect happened", verdict.Ending{Returned: verdict.Error, Unknown: true})
		m.end(s, i, "handler: panics", verdict.Ending{Returned: verdict.Panic})
	}
}

func (m *model) end(s *state, i int, text string, e verdict.Ending) {
	n := m.from(s)
	w := &n.w[i]
	e.Parks = m.parks(i) && !(m.without(InterruptedParks) && e.Returned != verdict.Nil) && !(m.without(UncommittedParks) && e.Returned == verdict.Nil)
	e.Joined = w.joined && !m.without(JoinedNeverDone)
	e.LastTry = w.attempt >= m.c.MaxAttempts
	m.verdict(w, verdict.Judge(e))
	m.step(i, text, n)
	m.carryFirst(&n, i)
}

// allSteps are those of a handler with steps.
const allSteps = 2

// stepping makes the steps of a handler that saves what it has done, before it goes on.
func (m *model) stepping(s *state, i int) {
	w := &s.w[i]
	if next := w.saved + w.did + 1; next <= allSteps && (w.did == 0 || m.without(SaveBeforeNext)) {
		n := m.from(s)
		n.w[i].did++
		n.ghost.acted = true
		if next <= w.seen {
			m.markBroken(StoredStepOnce)
		}
		if n.w[i].did > 1 {
			m.markBroken(OneStepRepeats)
		}
		m.step(i, "handler: runs a step", n)
	}
	if w.did == 0 || s.tx.phase != noTx {
		return
	}
	saved := w.saved + w.did
	n := m.from(s)
	if m.renew(&n, ownToken(i), false, saved) != nil {
		n.leave(i)
		m.step(i, "saves a step: the lease is lost", n)
	} else {
		m.fault(i, "saves a step, and the answer is lost", n)
		n.w[i].saved, n.w[i].did = saved, 0
		m.step(i, "saves a step", n)
	}
	m.delay(s, i, packet{kind: savePacket, saved: saved})
}
