package model

import (
	"fmt"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the world of schedule.Run: two schedulers, of which one may have a newer schedule
// of the entry, its instants in the store, and workers that keep a job's key for a time.

// The promises of a schedule.
const (
	instantOnce  = "the job of an instant runs once at most"
	instantOpen  = "an instant that was not sent, and is not too late, is open to each scheduler"
	instantBound = "nothing is sent that was due before its schedule was known"
	sentMayRun   = "what is sent is not too old to be run"
)

// The schedule, in ticks: for how long workers keep a key, and for how long an instant is caught
// up. The record of an instant is kept for longer than the world lasts.
const (
	retentionTicks tick = 2
	catchUpTicks   tick = 2
	recordTicks    tick = 9
	instantsUntil  tick = 7
)

// dues are the instants of the two schedules. They have one in common.
var dues = [2][]tick{{2}, {1, 2}}

const (
	lastDue      tick = 2
	instantCount      = lastDue + 1 // an instant is known by its tick
	mostDeaths        = 2
)

// schedulerPC is where a scheduler is.
type schedulerPC uint8

const (
	adopting  schedulerPC = iota // does not know since when instants are open
	looking                      // knows it
	sending                      // has an instant's claim
	recording                    // has sent its message
)

// scheduler is a process.
type scheduler struct {
	pc      schedulerPC
	newer   uint8 // 1 = it has the newer schedule
	done    tick  // no instant up to here is open
	at      tick  // the instant that it sends
	written bool  // has recorded it before the send, where that rule is left out
}

// job is what queue and workers have of a key.
type job struct {
	waits bool // a message, which says that it was created at its instant
	late  bool // one that says when it was sent, where that rule is left out
	made  tick // when that was
	done  bool
	until tick // the key's record
	runs  uint8
}

// instants is the world at one instant.
type instants struct {
	now  tick
	dead uint8   // how many have died
	list uint8   // the schedule that stands in the list, from 1; 0 = none
	born tick    // since when
	knew [2]tick // when each schedule was first known, from 1; 0 = it was not
	p    [workers]scheduler
	rec  [instantCount]once
	sent [instantCount]bool
	jobs [2][instantCount]job // under the keys of both schedules, which are the same
}

func (s instants) String() string {
	return fmt.Sprintf("[at %d; sent %v; schedule %d since %d]", s.now, s.sent, s.list, s.born)
}

// key is the job of an instant.
func (s *instants) key(sch uint8, at tick, without map[TimedRule]bool) *job {
	if without[KeyOfInstant] {
		return &s.jobs[sch][at]
	}
	return &s.jobs[0][at]
}

// instantMoves are the steps of the world without some rules. ahead says by how much the first
// scheduler's clock is ahead.
func instantMoves(ahead tick, without map[TimedRule]bool) func(instants) []move[instants] {
	catchUp := catchUpTicks
	if without[CatchUpInRetention] {
		catchUp = retentionTicks + 2
	}
	return func(s instants) (all []move[instants]) {
		step := func(text string, f func(n *instants) string) {
			n := s
			breaks := f(&n)
			for at := range n.rec {
				r := &n.rec[at]
				if r.status == dedupe.Done && !n.sent[at] && !n.sends(tick(at)) {
					breaks = instantOpen
				}
				switch { // what cannot matter any more
				case r.status == dedupe.Done:
					*r = once{status: dedupe.Done, until: recordTicks}
				case r.status == dedupe.Released, r.status == dedupe.Claimed && r.until <= n.now && r.token == packets:
					*r = once{}
				}
			}
			all = append(all, move[instants]{text, breaks, n})
		}
		if s.now+1 < instantsUntil {
			step("time goes by", func(n *instants) string {
				n.now++
				for i := range n.jobs {
					for k := range n.jobs[i] {
						if j := &n.jobs[i][k]; j.done && n.now > j.until {
							j.done, j.until = false, 0
						}
					}
				}
				return ""
			})
		}
		for i := range s.p {
			clock := s.now
			if i == 0 {
				clock += ahead
			}
			do := func(text string, f func(n *instants, p *scheduler) string) {
				step(fmt.Sprintf("scheduler %d %s", i+1, text), func(n *instants) string { return f(n, &n.p[i]) })
			}
			switch p := s.p[i]; p.pc {
			case adopting:
				do("learns since when the entry is known", func(n *instants, p *scheduler) string {
					return n.adopt(p, clock, catchUp, without)
				})
			case looking:
				for _, at := range dues[p.newer] {
					if at > clock || at <= p.done || clock-at > catchUp || s.rec[at].status == dedupe.Done {
						continue
					}
					do(fmt.Sprint("claims the instant ", at), func(n *instants, p *scheduler) string {
						if !n.rec[at].claim(ownToken(i), n.now) {
							return ""
						}
						if p.pc, p.at = sending, at; n.now > at+retentionTicks {
							return sentMayRun
						}
						return ""
					})
				}
			case sending:
				if without[RecordedAfterSend] && !p.written {
					do("records the instant", func(n *instants, p *scheduler) string {
						p.written = n.rec[p.at].settle(ownToken(i), dedupe.Done, n.now, recordTicks)
						return ""
					})
					break
				}
				send := func(lost bool) func(*instants, *scheduler) string {
					return func(n *instants, p *scheduler) string {
						n.sent[p.at] = true
						j := n.key(p.newer, p.at, without)
						if j.waits = !without[CreatedIsInstant]; !j.waits {
							j.late, j.made = true, n.now
						}
						switch {
						case p.at+1 < n.knew[p.newer]:
							return instantBound
						case lost:
							n.rec[p.at].settle(ownToken(i), dedupe.Released, n.now, recordTicks)
							p.pc, p.at, p.written = looking, 0, false
						default:
							p.pc = recording
						}
						return ""
					}
				}
				do("sends the job", send(false))
				do("sends the job, and the answer is lost", send(true))
			case recording:
				do("records the instant", func(n *instants, p *scheduler) string {
					n.rec[p.at].settle(ownToken(i), dedupe.Done, n.now, recordTicks)
					p.pc, p.at, p.written = looking, 0, false
					return ""
				})
			}
			if s.dead < mostDeaths {
				do("dies, and starts again", func(n *instants, p *scheduler) string {
					for at := range n.rec {
						n.rec[at].disown(ownToken(i))
					}
					*p = scheduler{newer: p.newer}
					n.dead++
					return ""
				})
			}
		}
		for sch := range s.jobs {
			for at := range s.jobs[sch] {
				if j := &s.jobs[sch][at]; j.waits {
					step("a worker has the message", func(n *instants) string {
						n.jobs[sch][at].waits = false
						return n.run(uint8(sch), tick(at), tick(at))
					})
				}
				if j := &s.jobs[sch][at]; j.late {
					step("a worker has the message", func(n *instants) string {
						made := j.made
						n.jobs[sch][at].late, n.jobs[sch][at].made = false, 0
						return n.run(uint8(sch), tick(at), made)
					})
				}
			}
		}
		return all
	}
}

// sends reports whether a scheduler is about to send an instant.
func (s *instants) sends(at tick) bool {
	for i := range s.p {
		if p := &s.p[i]; p.pc == sending && p.at == at {
			return true
		}
	}
	return false
}

// adopt is what a scheduler does with the list when it starts.
func (s *instants) adopt(p *scheduler, clock, catchUp tick, without map[TimedRule]bool) string {
	switch {
	case s.list == 0, s.list != p.newer+1 && !without[ChangedIsNew]:
		s.list, s.born = p.newer+1, clock
	default:
		s.list = p.newer + 1
	}
	s.born = min(s.born, lastDue)
	if s.knew[p.newer] == 0 {
		s.knew[p.newer] = min(s.now, lastDue+1) + 1
	}
	back := clock
	if !without[LooksBack] {
		back = clock - min(clock, catchUp+1)
	}
	if p.pc, p.done = looking, max(s.born, back); without[BornBound] {
		p.done = back
	}
	p.done = min(p.done, lastDue)
	for _, at := range dues[p.newer] {
		if at > s.born && at <= p.done && clock-at <= catchUp && !s.sent[at] {
			return instantOpen
		}
	}
	return ""
}

// run is a worker's way with a message of a job that was made then.
func (s *instants) run(sch uint8, at, made tick) string {
	j := &s.jobs[sch][at]
	if j.done || s.now > made+retentionTicks {
		return "" // a duplicate; or it is refused as unproven
	}
	j.done, j.until = true, s.now+retentionTicks
	j.runs++
	if s.jobs[0][at].runs+s.jobs[1][at].runs > 1 {
		return instantOnce
	}
	return ""
}
