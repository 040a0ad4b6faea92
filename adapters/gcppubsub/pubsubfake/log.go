package pubsubfake

import (
	"maps"
	"sync"
	"time"
)

// This file owns what the server tells of its past and present: calls, deliveries and states. call
// (server.go) writes each call, deliver (take.go) each delivery, and tests ask, from many
// goroutines. log.mu guards the calls; the tallies and states belong to the server's lock.

// requestLog keeps the last calls and counts all.
type requestLog struct {
	mu     sync.Mutex
	size   int
	kept   []Request // a ring once it is full
	next   int
	counts map[string]int
}

func (l *requestLog) begin(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[method]++
}

func (l *requestLog) end(r *Request) {
	r.Took = time.Since(r.At)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.size <= 0:
	case len(l.kept) < l.size:
		l.kept = append(l.kept, *r)
	default:
		l.kept[l.next] = *r
		l.next = (l.next + 1) % l.size
	}
}

// Counts tells how many calls came, by method; those that failed count too, and those
// that still wait. The calls of one message can be told from the difference of two.
func (s *Server) Counts() map[string]int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return maps.Clone(s.log.counts)
}

// Requests are the last calls that were answered, in the order of the answers: at most
// [Options.LogSize].
func (s *Server) Requests() []Request {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	l := &s.log
	return append(append([]Request(nil), l.kept[l.next:]...), l.kept[:l.next]...)
}

// ResetLog forgets the calls and sets the counts to zero. What [Server.Deliveries] tells stays.
func (s *Server) ResetLog() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.kept, s.log.next, s.log.counts = nil, 0, map[string]int{}
}

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
	for m := q.all.first; m != nil; m = m.later {
		switch m.state {
		case ready:
			if m.lane != nil && !m.lane.listed {
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
