package visibility

import (
	"math"
	"time"
)

// Held is a lease under a Manager's care. Its holder allocates it, inside its own job, so that
// holding costs no allocation. It belongs to one Manager, and must not be copied or changed while
// it is held.
type Held[L any] struct {
	// Lease is what the Extender gets.
	Lease L
	// Deadline is when the lease ends unless it is prolonged. The holder sets it before Hold, and
	// reads later ones through Manager.Deadline. A lease that is over, or has the zero Deadline, is
	// beaten and reported at once.
	Deadline time.Time

	next     int64        // beat
	timeout  int64        // the holder's own time; never = none
	warn     int64        // when the holder is told that the answers have stopped; never = it has been
	deadline moment       // of the lease
	place    [heaps]int32 // in each heap, from 1; 0 = it is not there
	tries    uint8        // beats that failed since the last answer; 3 stands for more
	flying   bool         // a beat is in flight
	stale    bool         // the beat in flight is of an earlier hold
	doubt    bool         // over by the wall clock alone: it was set, or the machine stood still; a beat decides
}

// The heaps of a Manager, by what they are ordered by.
const (
	byDue     = iota // every lease, by the time at which something is due
	byUrgency        // those whose beat waits for a call
	heaps
)

// never is no time; every moment is before it.
const never = math.MaxInt64

// far is 73 years. Times beyond it are cut, so that sums and differences of a few do not overflow.
const far = math.MaxInt64 / 4

// moment is a time by both clocks. When a machine was suspended its monotonic clock is behind, and
// the lease is as dead as the wall clock says.
type moment struct{ mono, wall int64 }

func (m moment) plus(d time.Duration) moment { return moment{m.mono + int64(d), m.wall + int64(d)} }

// reached reports whether now is at m, or within d before it, by either clock.
func (m moment) reached(now moment, d int64) bool {
	return now.mono >= m.mono-d || now.wall >= m.wall-d
}

// left is the time from now to m, by the clock that says less.
func (m moment) left(now moment) int64 { return min(m.mono-now.mono, m.wall-now.wall) }

func (h *Held[L]) held() bool { return h.place[byDue] != 0 }

// beating reports whether a beat is waiting for a call, or in flight.
func (h *Held[L]) beating() bool { return h.flying || h.place[byUrgency] != 0 }

func (h *Held[L]) told() bool { return h.warn == never }

// unanswered reports whether the deadline is so near, or over, that the holder must be told now.
func (h *Held[L]) unanswered(now moment) bool {
	if h.doubt {
		return now.mono >= h.warn && !h.told()
	}
	return !h.told() && h.deadline.reached(now, h.deadline.mono-h.warn)
}

// until sets the deadline. A lease with little time left gets half of it before its holder is told,
// because a beat that goes out at once may well be answered.
func (h *Held[L]) until(d, now moment, margin time.Duration) {
	h.deadline, h.doubt = d, false
	h.warn = d.mono - min(int64(margin), max(0, d.left(now)/2))
}
