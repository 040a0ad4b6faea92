package pubsubfake

import (
	"maps"
)

// This file owns what the server tells of its past and present: calls, deliveries and states. call
// (server.go) writes each call, deliver (take.go) each delivery, and tests ask, from many
// goroutines. The calls have a lock of their own; the tallies and states belong to the server's.

// Counts tells how many calls came, by method; those that failed count too, and those
// that still wait. The calls of one message can be told from the difference of two.
func (s *Server) Counts() map[string]int { return s.log.Counts() }

// Requests are the last calls that were answered, in the order of the answers: at most
// [Options.LogSize].
func (s *Server) Requests() []Request { return s.log.Kept() }

// ResetLog forgets the calls and sets the counts to zero. What [Server.Deliveries] tells stays.
func (s *Server) ResetLog() { s.log.Reset() }

// Deliveries tells how often a subscription delivered its messages, by message id: of the last
// [Options.LogSize] messages that were delivered for the first time. It is nil for a subscription
// that does not exist.
func (s *Server) Deliveries(subscription string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.subs[subscription]
	if q == nil {
		return nil
	}
	return maps.Clone(q.delivered.counts)
}

// Stats is how many messages of a subscription are in which state.
type Stats struct {
	// Ready may be delivered now. Held were delivered, and their ack deadline has not passed.
	// Delayed wait for the end of a retry policy's backoff. Blocked wait for an earlier message of
	// their ordering key. Retained are acked, and kept for a Seek.
	Ready, Held, Delayed, Blocked, Retained int
}

// Unacked is all but Retained.
func (t Stats) Unacked() int { return t.Ready + t.Held + t.Delayed + t.Blocked }

// Stats tells what a subscription holds; zero for one that does not exist.
func (s *Server) Stats(subscription string) Stats {
	now := s.lock()
	defer s.unlock(now)
	q := s.subs[subscription]
	if q == nil {
		return Stats{}
	}
	q.age(now)
	var t Stats
	for m := q.all.First(); m != nil; m = m.inAll.Next() {
		switch m.state {
		case ready:
			if m.lane != nil && !m.lane.open.Listed() {
				t.Blocked++
			} else {
				t.Ready++
			}
		case held:
			t.Held++
		case delayed:
			t.Delayed++
		case settled:
			t.Blocked++
		case retained:
			t.Retained++
		}
	}
	return t
}
