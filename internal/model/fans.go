package model

import (
	"fmt"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the world of fan.Out: a parent with two children, which two workers try to have,
// what it saves, and the children's messages, records and letters. A part has one child. The policy
// is WaitForReplay: the other one only ends a parent sooner.

// The promises of a fan.
const (
	childOnce  = "a child is done once at most"
	allDone    = "a parent goes on only when all of its children are done"
	eachSent   = "a child that counts as sent was sent"
	seenDone   = "a child that was seen done never fails its parent"
	parentEnds = "a parent ends, whatever becomes of its children"
)

const (
	children           = 2
	fanUntil      tick = 4
	mostBad            = 1 // deaths, failures and losses
	fanEndsWithin tick = 20
)

// parentPC is what a worker does next with the parent.
type parentPC uint8

const (
	toHave parentPC = iota
	toBegin
	toSend
	toSave
	toLook
	toRest
	toGiveBack
	toFail
	toEnd
)

// kept is what a parent saves of its fan.
type kept struct {
	begun      tick // from 1; 0 = it has not begun
	sent, done uint8
}

// parent is a worker's attempt.
type parent struct {
	pc parentPC
	kept
	early bool // has saved a child as sent before it is, where that rule is left out
}

// childState is what the record of a child says.
type childState uint8

const (
	noRecord childState = iota
	childDone
	childFailed // it has a letter
)

// child is a job of the fan.
type child struct {
	sent, waits bool
	strange     bool // a second message, under another key, where that rule is left out
	made        tick // its message's Created
	state       childState
	until       tick // of the record
	ran         uint8
}

// fanned is the world at one instant.
type fanned struct {
	now  tick
	bad  uint8
	rec  once // the parent's
	kept kept
	p    [workers]parent
	kids [children]child
}

func (s fanned) String() string {
	return fmt.Sprintf("[at %d; parent %v %+v; children %+v]", s.now, s.rec.status, s.kept, s.kids)
}

// fanMoves are the steps of the world without some rules.
func fanMoves(without map[TimedRule]bool) func(fanned) []move[fanned] {
	return func(s fanned) (all []move[fanned]) {
		step := func(text string, f func(n *fanned) string) {
			n := s
			breaks := f(&n)
			if n.tidy(); breaks == "" && !n.canEnd(without) {
				breaks = parentEnds
			}
			all = append(all, move[fanned]{text, breaks, n})
		}
		goes := func(text string, f func(n *fanned)) {
			step(text, func(n *fanned) string { f(n); return "" })
		}
		if s.now+1 < fanUntil {
			goes("time goes by", (*fanned).tick)
		}
		for i := range s.p {
			step(fmt.Sprintf("worker %d goes on from %d", i+1, s.p[i].pc), func(n *fanned) string { return n.goOn(i, without) })
			if s.p[i].pc != toHave && s.bad < mostBad {
				goes(fmt.Sprintf("worker %d dies", i+1), func(n *fanned) { n.bad++; n.letGo(i) })
			}
			if s.p[i].pc == toSend && s.bad < mostBad {
				step(fmt.Sprintf("worker %d sends a child, and the answer is lost", i+1), func(n *fanned) string {
					n.bad++
					breaks := n.goOn(i, without)
					n.rec.settle(ownToken(i), dedupe.Released, n.now, recordTicks)
					n.letGo(i)
					return breaks
				})
			}
		}
		for i := range s.kids {
			each := func(text string, can bool, bad uint8, f func(n *fanned, c *child)) {
				if !can || s.bad+bad > mostBad {
					return
				}
				step(fmt.Sprintf("child %d %s", i, text), func(n *fanned) string {
					n.bad += bad
					if f(n, &n.kids[i]); n.kids[i].ran > 1 {
						return childOnce
					}
					return ""
				})
			}
			c := s.kids[i]
			each("has its message", c.waits, 0, func(n *fanned, c *child) { c.deliver(n.now, childDone) })
			each("has its message, and fails", c.waits, 1, func(n *fanned, c *child) { c.deliver(n.now, childFailed) })
			each("has a second message, under another key", c.strange, 0, func(n *fanned, c *child) { c.strange = false; c.ran++ })
			each("loses its message", c.waits, 1, func(n *fanned, c *child) { c.waits = false })
			each("is replayed", c.state == childFailed, 0, func(n *fanned, c *child) { c.conclude(n.now, childDone) })
		}
		return all
	}
}

// goOn is the next step of a worker, as fan.Out has it.
func (s *fanned) goOn(i int, without map[TimedRule]bool) (breaks string) {
	switch p := &s.p[i]; p.pc {
	case toHave:
		if s.rec.claim(ownToken(i), s.now) {
			*p = parent{kept: s.kept}
			if without[FrontierKept] {
				p.done = 0
			}
			p.next()
		}
	case toBegin:
		if p.begun = s.now + 1; without[BeginSavedFirst] {
			p.next()
			break
		}
		return s.save(i, without)
	case toSend:
		if without[SavedAfterSend] && !p.early {
			p.sent, p.early = p.sent+1, true
			if breaks = s.save(i, without); s.p[i].pc != toHave {
				s.p[i].pc = toSend
			}
			break
		}
		if p.early {
			p.sent--
		}
		c := &s.kids[p.sent]
		c.strange = c.strange || c.sent && without[KeyOfChild]
		c.sent, c.waits = true, true
		if c.made = p.begun - 1; without[CreatedIsBegin] {
			c.made = s.now
		}
		p.sent++
		p.pc, p.early = toSave, false
	case toSave:
		return s.save(i, without)
	case toLook:
		s.look(p, without)
	case toRest:
		if breaks = s.save(i, without); s.p[i].pc != toHave {
			s.p[i].pc = toGiveBack
		}
	default:
		to := map[parentPC]dedupe.Status{toGiveBack: dedupe.Released, toFail: dedupe.Failed, toEnd: dedupe.Done}[p.pc]
		ends := s.rec.settle(ownToken(i), to, s.now, recordTicks)
		switch {
		case p.pc == toEnd && (s.kids[0].ran == 0 || s.kids[1].ran == 0):
			breaks = allDone
		case p.pc == toFail && ends && p.done < s.kept.done:
			breaks = seenDone
		}
		s.letGo(i)
	}
	return breaks
}

// next is what an attempt does that has saved.
func (p *parent) next() {
	switch {
	case p.begun == 0:
		p.pc = toBegin
	case p.sent < children:
		p.pc = toSend
	default:
		p.pc = toLook
	}
}

// save stores how far the attempt is, unless its claim is another's.
func (s *fanned) save(i int, without map[TimedRule]bool) (breaks string) {
	p := &s.p[i]
	if s.rec.token != ownToken(i) && !without[SavedUnderClaim] {
		s.letGo(i)
		return ""
	}
	s.kept = p.kept
	p.next()
	for k := range s.kept.sent {
		if !s.kids[k].sent && !p.early {
			return eachSent
		}
	}
	return ""
}

// look reads the children's records, from the frontier on.
func (s *fanned) look(p *parent, without map[TimedRule]bool) {
	for p.pc = toEnd; p.done < children; p.done++ {
		c := &s.kids[p.done]
		if c.state == childDone || c.state != noRecord && without[FrontierStops] {
			continue
		}
		isGone := c.state == noRecord && s.now > p.begun-1+retentionTicks && !without[GoneFails]
		if p.pc = toRest; isGone {
			p.pc = toFail
		}
		return
	}
}

// letGo: the worker does nothing more under its token.
func (s *fanned) letGo(i int) {
	s.rec.disown(ownToken(i))
	s.p[i] = parent{}
}

// deliver is a worker's way with the child's message.
func (c *child) deliver(now tick, to childState) {
	c.waits = false
	if c.state == noRecord && now <= c.made+retentionTicks { // else it is a duplicate, or unproven
		c.conclude(now, to)
	}
}

func (c *child) conclude(now tick, to childState) {
	if c.state, c.until = to, now+retentionTicks; to == childDone {
		c.ran++
	}
}

func (s *fanned) tick() {
	s.now++
	for i := range s.kids {
		if c := &s.kids[i]; s.now > c.until {
			c.state, c.until = noRecord, 0
		}
	}
}

// tidy forgets what cannot matter any more.
func (s *fanned) tidy() {
	switch r := &s.rec; {
	case r.status == dedupe.Done, r.status == dedupe.Failed:
		r.until, r.token = recordTicks, packets
	case r.status == dedupe.Released, r.status == dedupe.Claimed && r.until <= s.now && r.token == packets:
		*r = once{}
	}
}

// canEnd reports whether the parent comes to its end if from now on nothing goes wrong.
func (s fanned) canEnd(without map[TimedRule]bool) bool {
	for i := range s.p {
		s.letGo(i)
	}
	for end := s.now + fanEndsWithin; s.now < end; s.tick() {
		for i := range s.kids {
			if c := &s.kids[i]; c.waits {
				c.deliver(s.now, childDone)
			} else if c.state == childFailed {
				c.conclude(s.now, childDone)
			}
		}
		for s.goOn(0, without); s.p[0].pc != toHave; s.goOn(0, without) {
		}
		if s.tidy(); s.rec.status != 0 && s.rec.status != dedupe.Claimed {
			return true
		}
	}
	return false
}
