package model

import (
	"errors"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/verdict"
)

// This file owns a worker's steps but those of its handler (handler.go): receive, claim, start,
// settle, letter, ack. successors calls worker, once for each worker and state. A step changes the
// copy that from gives it, and step or fault notes it, so nothing is locked.

// worker makes the steps of worker i.
func (m *model) worker(s *state, i int) {
	switch s.w[i].pc {
	case idle:
		m.receive(s, i)
		return
	case claiming:
		m.claiming(s, i)
	case starting:
		m.starting(s, i)
	case running:
		m.running(s, i)
	case settling:
		m.settling(s, i)
	case lettering:
		m.lettering(s, i)
	case acking:
		m.acking(s, i)
	case carrying:
		m.carrying(s, i)
	}
	if !m.c.Calm {
		n := m.from(s)
		n.leave(i)
		m.fault(i, "crashes, or gives up and leaves the message", n)
	}
}

func (m *model) receive(s *state, i int) {
	for k, it := range s.items {
		if it.place != inQueue || k > 0 && s.items[k-1] == it {
			continue
		}
		n := m.from(s)
		n.items[k].hands |= hand(i)
		n.w[i] = worker{pc: claiming, reopens: it.fence, payload: it.payload, old: it.old, word: it.word}
		m.step(i, "receives a message", n)
	}
}

func (m *model) claiming(s *state, i int) {
	w := &s.w[i]
	q := claimCall{token: ownToken(i), reopens: w.reopens, payload: w.payload, policy: m.c.Policies[i], word: w.word}

	if m.c.Carries && s.rec.token != ownToken(i) && s.late.token != ownToken(i) {
		n := m.from(s)
		m.carry(&n, i)
		n.w[i].last = n.w[i].pc == carrying
		m.step(i, "finds its message too early for its queue", n)
	}
	n := m.from(s)
	c := m.claim(&n, q)
	w = &n.w[i]
	switch c.Outcome {
	case dedupe.Won:
		m.won(&n, i, &c)
		m.step(i, "claims the key: won", n)
	case dedupe.InProgress:
		if m.without(AckOnlyDone) {
			m.ack(&n, i, false)
			m.step(i, "claims the key: in progress, and acks", n)
			break
		}
		n.leave(i)
		m.step(i, "claims the key: in progress, and gives the message back", n)
	case dedupe.AlreadyDone:
		m.ack(&n, i, true)
		m.step(i, "claims the key: already done", n)
	case dedupe.AlreadyFailed, dedupe.IsParked:
		if n.rec.cancelled && !m.without(CancelledAcks) {
			m.ack(&n, i, true)
			m.step(i, "claims the key: cancelled", n)
			break
		}
		carries := curFence
		if m.without(LetterOfRecord) {
			carries = w.reopens
		}
		n.dropToken(i)
		if m.without(LetterAgain) {
			m.ack(&n, i, false)
		} else {
			m.letter(&n, i, carries)
		}
		m.step(i, "claims the key: already failed or parked", n)
	case dedupe.Mismatch:
		carries := noFence
		if m.without(MismatchNeverReopens) {
			carries = curFence
		}
		n.dropToken(i)
		m.letter(&n, i, carries)
		m.step(i, "claims the key: it has another payload", n)
	case dedupe.Stale:
		n.dropToken(i)
		m.step(i, "claims the key: stale, and draws a new token", n)
	}

	n = m.from(s)
	m.claim(&n, q)
	m.fault(i, "claims the key, and the answer is lost", n)
	m.delay(s, i, packet{kind: claimPacket, fence: w.reopens, payload: w.payload, policy: q.policy, word: w.word})
	if m.c.Drains {
		n = m.from(s)
		if m.without(DoubtUncounted) {
			n.leave(i)
		} else {
			m.unstarted(&n.w[i])
		}
		m.step(i, "drains while it does not know whether the key is its own", n)
	}
	if m.without(ClaimBeforeEffect) {
		n = m.from(s)
		n.w[i] = worker{pc: running, fence: curFence, payload: w.payload}
		m.step(i, "finds the store away, and runs the handler all the same", n)
	}
}

// won decides what follows a won claim.
func (m *model) won(s *state, i int, c *dedupe.Claim) {
	w := &s.w[i]
	unproven := w.old && (s.rec.fresh || s.rec.reborn && !m.without(UnprovenSticks)) && !m.without(UnprovenFails)
	*w = worker{pc: running, fence: curFence, payload: w.payload, attempt: s.rec.attempt, saved: s.rec.saved, seen: s.ghost.stored}
	switch {
	case unproven && !m.without(UnprovenReleases):
		m.unstarted(w)
		w.refused = true
		return
	case m.c.HoldsBack && w.attempt > m.c.MaxAttempts:
		died := c.From != ""
		if m.without(KeptStarts) || died && !m.without(KeptRests) {
			m.unstarted(w)
			return
		}
		if died {
			m.markBroken(PoisonRests)
		}
	case unproven, w.attempt > m.c.MaxAttempts:
		m.verdict(w, verdict.Verdict{To: dedupe.Failed})
		return
	}
	if m.parks(i) {
		w.pc = starting
	}
}

// unstarted sends a claim back whose handler was not started.
func (m *model) unstarted(w *worker) {
	m.verdict(w, verdict.Verdict{To: dedupe.Released, Uncounted: true})
	w.unstarted = true
}

func (m *model) parks(i int) bool { return m.c.Policies[i] == dedupe.Park }

func (m *model) starting(s *state, i int) {
	if m.without(StartBeforeHandler) {
		n := m.from(s)
		n.w[i].pc = running
		m.step(i, "starts the handler", n)
		return
	}
	n := m.from(s)
	if err := m.renew(&n, ownToken(i), true, 0); err != nil {
		n.leave(i)
		m.step(i, "records the start: the lease is lost", n)
	} else {
		m.fault(i, "records the start, and the answer is lost", n)
		n.w[i].pc = running
		m.step(i, "records the start, and starts the handler", n)
	}
	m.delay(s, i, packet{kind: startPacket})
	if m.c.Drains {
		n = m.from(s)
		m.unstarted(&n.w[i])
		m.step(i, "drains before the handler has begun", n)
	}
}

// verdict sends a run's end on its way.
func (m *model) verdict(w *worker, v verdict.Verdict) {
	if v.To == dedupe.Failed && m.c.HoldsBack {
		v.To = dedupe.Released
	}
	*w = worker{pc: settling, fence: w.fence, payload: w.payload, joined: w.joined, to: v.To, uncounted: v.Uncounted, postponed: v.Class == verdict.Postponed}
	if v.To == dedupe.Failed && m.without(SettleBeforeLetter) {
		w.pc, w.owes = lettering, true
	}
}

func (m *model) settling(s *state, i int) {
	w := &s.w[i]
	if m.without(RepeatNeverRead) && s.rec.token == ownToken(i) && s.rec.status != 0 {
		n := m.from(s)
		end := w.to
		if n.rec.status != dedupe.Claimed {
			end = n.rec.status
		}
		m.settled(&n, i, end)
		m.step(i, "reads the record instead of repeating the settlement", n)
	}
	if m.without(SettleUntilKnown) {
		n := m.from(s)
		m.settled(&n, i, w.to)
		m.fault(i, "sends the settlement, which is lost, and goes on", n)
	}
	if s.tx.phase != noTx {
		return // the settlement waits for the transaction
	}
	q := settleCall{token: ownToken(i), to: w.to, uncounted: w.uncounted, unstarted: w.unstarted, joined: w.joined, postponed: w.postponed}
	n := m.from(s)
	a := m.settle(&n, q)
	m.fault(i, "settles, and the answer is lost", n)
	if errors.Is(a.Err, dedupe.ErrLeaseLost) {
		if m.without(LostLeaseLeaves) {
			m.ack(&n, i, false)
		} else {
			n.leave(i)
		}
		m.step(i, "settles: the lease is lost", n)
	} else {
		m.settled(&n, i, a.Status)
		m.step(i, "settles, and is told "+a.Status.String(), n)
	}
	m.delay(s, i, packet{kind: settlePacket, to: w.to, uncounted: w.uncounted, unstarted: w.unstarted, joined: w.joined, postponed: w.postponed})
}

// settled acts on the status that is stored under the worker's token. That status decides, and not
// the one that the worker has asked for.
func (m *model) settled(s *state, i int, status dedupe.Status) {
	w := &s.w[i]
	switch status {
	case dedupe.Done:
		m.ack(s, i, s.rec.status == dedupe.Done)
	case dedupe.Failed, dedupe.Parked:
		if s.rec.cancelled && w.to != dedupe.Failed && !m.without(CancelledLeaves) {
			s.leave(i)
			return
		}
		s.ghost.failed = s.ghost.failed || s.rec.cancelled
		carries, owes := w.fence, w.owes
		s.dropToken(i)
		switch {
		case owes: // the letter came first
			m.ack(s, i, true)
		case m.without(LetterBeforeAck):
			payload := w.payload
			m.ack(s, i, false)
			s.w[i].owes, s.w[i].fence, s.w[i].payload = true, carries, payload
		default:
			m.letter(s, i, carries)
		}
	default:
		if w.refused {
			s.dropToken(i)
			m.letter(s, i, noFence)
			s.w[i].word = true
			return
		}
		if w.carried {
			m.ack(s, i, true)
			return
		}
		if w.postponed && m.c.Carries {
			s.dropToken(i)
			m.carry(s, i)
			return
		}
		s.leave(i)
	}
}

// letter makes the worker put a letter next.
func (m *model) letter(s *state, i int, carries fence) {
	if m.c.HoldsBack {
		s.leave(i) // its message is given back
		return
	}
	if s.rec.cancelled && carries == curFence && s.w[i].to != dedupe.Failed {
		m.markBroken(CancelledBare)
	}
	s.w[i] = worker{pc: lettering, fence: carries, payload: s.w[i].payload}
	recorded := s.rec.status == dedupe.Failed || s.rec.status == dedupe.Parked
	if carries != noFence && !(carries == curFence && recorded) && !m.without(LetterOfRecord) {
		m.markBroken(LetterIsTrue)
	}
	if carries == curFence && m.c.Payloads && s.w[i].payload != s.rec.payload {
		m.markBroken(LetterIsTrue)
	}
}

func (m *model) lettering(s *state, i int) {
	w := &s.w[i]
	it := item{place: inDLQ, fence: w.fence, payload: w.payload, old: w.old, word: w.word}
	if m.c.LettersBare {
		it.fence = noFence
	}
	if m.without(LetterUntilKnown) {
		n := m.from(s)
		m.ack(&n, i, true)
		m.fault(i, "puts the letter, which is lost, and goes on", n)
	}
	n := m.from(s)
	if w.owes && w.to == dedupe.Failed && s.rec.status != dedupe.Failed {
		m.markBroken(LetterIsTrue)
	}
	if n.add(it) {
		m.fault(i, "puts the letter, and the answer is lost", n)
		switch {
		case w.owes && w.to == dedupe.Failed:
			n.w[i].pc = settling
		case w.owes:
			n.leave(i)
		default:
			m.ack(&n, i, true)
		}
		m.step(i, "puts the letter", n)
	} else {
		m.pruned++
	}
	m.delay(s, i, packet{kind: letterPacket, fence: it.fence, payload: w.payload, word: w.word})
}

// carry makes the worker send its message anew next.
func (m *model) carry(s *state, i int) {
	it := s.held(i)
	if it == nil {
		s.leave(i)
		return
	}
	s.w[i] = worker{pc: carrying, reopens: it.fence, payload: it.payload, old: it.old, word: it.word}
}

// carryFirst makes the worker send its message anew, and then record that its job is postponed.
func (m *model) carryFirst(s *state, i int) {
	if it := s.held(i); it != nil && m.c.Carries && s.w[i].postponed {
		n := m.from(s)
		n.w[i].pc, n.w[i].last = carrying, true
		n.w[i].reopens, n.w[i].old, n.w[i].word = it.fence, it.old, it.word
		m.step(i, "sends its message anew before it records the end, because its queue brings it for the last time", n)
	}
}

// carried acts on a copy that is stored, or that cannot be sent.
func (m *model) carried(s *state, i int, stored bool) {
	w := &s.w[i]
	switch {
	case w.last && w.postponed && stored:
		w.pc, w.carried = settling, true
		w.reopens, w.last, w.old, w.word = 0, false, false, false
	case w.last && w.postponed:
		m.verdict(w, verdict.Verdict{To: dedupe.Failed})
	case stored:
		m.ack(s, i, true)
	case w.last:
		m.letter(s, i, noFence)
	default:
		s.leave(i)
	}
}

func (m *model) carrying(s *state, i int) {
	w := &s.w[i]
	if m.without(CarryUntilKnown) {
		n := m.from(s)
		m.carried(&n, i, true)
		m.fault(i, "sends a copy, which is lost, and goes on", n)
	}
	if w.last {
		n := m.from(s)
		m.carried(&n, i, false)
		m.fault(i, "cannot send a copy", n)
	}
	if m.without(CarryBeforeAck) && !w.owes {
		n := m.from(s)
		if it := n.held(i); it != nil {
			*it = item{}
		}
		n.w[i].owes = true
		m.step(i, "acks, and will send a copy", n)
		return
	}
	n := m.from(s)
	if n.add(item{place: inQueue, fence: w.reopens, payload: w.payload, old: w.old, word: w.word}) {
		m.fault(i, "sends a copy, and the answer is lost", n)
		if w.owes {
			n.leave(i)
		} else {
			m.carried(&n, i, true)
		}
		m.step(i, "sends a copy", n)
	} else {
		m.pruned++
	}
	m.delay(s, i, packet{kind: carryPacket, fence: w.reopens, payload: w.payload, word: w.word})
}

// ack makes the worker ack next. known says that done was seen, or that the letter is stored.
func (m *model) ack(s *state, i int, known bool) {
	s.dropToken(i)
	s.w[i] = worker{pc: acking}
	if !known {
		m.markBroken(AckHasReason)
	}
}

// acking removes the message, whether or not the worker's receipt is still the newest.
func (m *model) acking(s *state, i int) {
	n := m.from(s)
	if it := n.held(i); it != nil {
		*it = item{}
	}
	if w := &n.w[i]; w.owes {
		*w = worker{pc: lettering, owes: true, fence: w.fence, payload: w.payload}
	} else {
		n.leave(i)
	}
	m.step(i, "acks", n)
}

// delay lets a request be late: the sender gives it up, and it arrives after all.
func (m *model) delay(s *state, i int, p packet) {
	if !m.c.LatePackets || s.late.kind != noPacket {
		return
	}
	n := m.from(s)
	n.late = p
	if p.kind != letterPacket && p.kind != carryPacket {
		n.late.token = ownToken(i)
	}
	m.fault(i, "sends a request that will be late, and repeats it", n)
}
