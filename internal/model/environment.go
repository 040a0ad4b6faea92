package model

import "github.com/onceq/onceq/dedupe"

// This file owns the steps that no worker makes: time, the database, the network, the queue, and
// operators. successors calls environment, once for each state. A step changes the copy that from
// gives it, so nothing is locked.

// nobody is who makes the steps of the world around the workers.
const nobody = -1

// environment makes the steps that no worker makes.
func (m *model) environment(s *state) {
	m.time(s)
	m.database(s)
	m.network(s)
	m.queue(s)
	m.operator(s)
	m.cancel(s)
}

func (m *model) time(s *state) {
	if s.rec.status == dedupe.Claimed && !s.rec.dead {
		n := m.from(s)
		n.rec.dead = true
		switch owned := s.rec.token != nobodys && s.rec.token != packets; {
		case !owned:
			m.step(nobody, "the lease of a dead worker runs out", n)
		case !m.c.Calm:
			m.fault(nobody, "the lease of a live worker runs out", n)
		}
	}
	if m.c.Retention && (s.rec.status == dedupe.Done || s.rec.status == dedupe.Failed || s.rec.status == dedupe.Released) && !s.rec.expired && !s.rec.reborn {
		n := m.from(s)
		n.rec.expired = true
		for k := range n.items {
			n.items[k].old = n.items[k].place != nowhere
		}
		for k := range n.w {
			n.w[k].old = n.w[k].pc == claiming || n.w[k].pc == lettering
		}
		m.fault(nobody, "the record's retention ends, and the messages are older than it", n)
	}
}

// database ends the transactions that no handler waits for.
func (m *model) database(s *state) {
	if s.tx.phase == txInFlight {
		n := m.from(s)
		m.commit(&n, txInFlight)
		m.step(nobody, "the COMMIT in flight takes effect", n)
	}
	if s.tx.phase == txInFlight || s.tx.phase == txOrphan {
		n := m.from(s)
		n.tx = tx{}
		m.step(nobody, "a transaction without a client is rolled back", n)
	}
}

func (m *model) network(s *state) {
	if s.late.kind == noPacket {
		return
	}
	n := m.from(s)
	p := n.late
	locked := s.tx.phase != noTx
	switch {
	case p.kind == claimPacket:
		m.claim(&n, claimCall{token: p.token, reopens: p.fence, payload: p.payload, policy: p.policy, word: p.word})
	case p.kind == startPacket && !locked:
		_ = m.renew(&n, p.token, true, 0)
	case p.kind == savePacket && !locked:
		_ = m.renew(&n, p.token, false, p.saved)
	case p.kind == settlePacket && !locked:
		m.settle(&n, settleCall{token: p.token, to: p.to, uncounted: p.uncounted, unstarted: p.unstarted, joined: p.joined, postponed: p.postponed})
	case p.kind == letterPacket, p.kind == carryPacket:
		to := inDLQ
		if p.kind == carryPacket {
			to = inQueue
		}
		if !n.add(item{place: to, fence: p.fence, payload: p.payload, word: p.word}) {
			m.pruned++
			return
		}
	}
	// A claim may have given the packet's token to the record.
	n.dropPacket()
	m.step(nobody, "the late packet arrives", n)
}

func (m *model) queue(s *state) {
	for k, it := range s.items {
		if k > 0 && s.items[k-1] == it {
			continue
		}
		n := m.from(s)
		switch {
		case it.place == unsent:
			n.items[k].place = inQueue
			m.step(nobody, "the producer sends the job again", n)
		case it.place == inQueue && m.c.Redrive:
			n.items[k].place, n.items[k].hands = inDLQ, 0
			m.fault(nobody, "the queue dead-letters a message by itself", n)
		}
	}
}

// cancel is an operator's command that cancels the job. It waits for a transaction's lock. Between
// the claim and the settlement of what nobody runs it may die; a rival costs it another look.
func (m *model) cancel(s *state) {
	failed := s.rec.status == dedupe.Failed
	switch done := s.rec.status == dedupe.Done || s.rec.status == dedupe.Parked; {
	case !m.c.Cancels, s.tx.phase != noTx, done && !s.rec.expired, s.rec.cancelled:
		return
	case s.rec.status == dedupe.Claimed && m.without(CancelByToken):
		n := m.from(s)
		n.rec, n.ghost.stored, n.ghost.of = record{}, 0, 0
		n.age()
		m.fault(nobody, "a cancel forgets the record, and dies", n)
		return
	case failed && m.without(CancelClaimsFirst):
		n := m.from(s)
		n.rec.cancelled, n.ghost.cancelled = true, true
		m.step(nobody, "the operator cancels the failed job", n)
		return
	}
	n := m.from(s)
	token := n.rec.token
	if s.rec.status != dedupe.Claimed {
		q := claimCall{token: strange, policy: s.rec.policy}
		if failed {
			q.reopens = curFence
		}
		m.claim(&n, q)
		n.rec.token = nobodys
		m.fault(nobody, "a cancel claims the key, and dies", n)
		token = nobodys
	}
	m.settle(&n, settleCall{token: token, to: dedupe.Failed, cancels: true})
	n.ghost.cancelled = true
	m.step(nobody, "the operator cancels the job", n)
}

// operator replays letters, twice if his program crashes between sending one and removing it, and
// forgets records.
func (m *model) operator(s *state) {
	for k, it := range s.items {
		if it.place != inDLQ || k > 0 && s.items[k-1] == it {
			continue
		}
		n := m.from(s)
		again := item{place: inQueue, fence: it.fence, payload: it.payload, old: it.old, word: it.word}
		switch {
		case m.without(ReplaySendsFirst):
			n.items[k] = item{}
			m.fault(nobody, "a replay removes the letter, and crashes", n)
			n.add(again)
			m.step(nobody, "a replay removes the letter, and sends it", n)
		case s.mayReplay(m.c.Items) && n.add(again):
			n.items[k].sent = true
			m.step(nobody, "a replay sends the letter", n)
		default:
			m.pruned++
		}
		if it.sent {
			n = m.from(s)
			n.items[k] = item{}
			m.step(nobody, "the replay removes the letter that it has sent", n)
		}
	}
	if m.c.HoldsBack && s.rec.status == dedupe.Parked && s.tx.phase == noTx {
		n := m.from(s)
		n.rec.status, n.rec.started = dedupe.Released, false
		m.decided(&n)
		m.step(nobody, "the operator resolves the parked job: it may run again", n)
	}
	live := s.rec.status == dedupe.Claimed && !s.rec.dead
	if m.c.Forgets && s.rec.status != 0 && s.rec.status != dedupe.Done && !live && s.tx.phase == noTx {
		n := m.from(s)
		n.rec, n.ghost.forgotten, n.ghost.stored, n.ghost.of = record{}, true, 0, 0
		if !m.without(FenceOutlivesRecord) {
			n.age()
		}
		m.fault(nobody, "the operator forgets the record", n)
	}
}
