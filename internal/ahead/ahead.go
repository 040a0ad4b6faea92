// Package ahead knows how long a message may wait in its queue for the time at which its job is
// due. A worker refuses what would be gone before that, and a replay says when it can be sent.
package ahead

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Queue is what a queue does to messages that wait. The zero Queue is one of which nothing is
// known.
type Queue struct {
	Keeps    time.Duration // how long it keeps a message; 0 = for ever, or not known
	Receives int           // after so many it moves a message away; 0 = never, or not known
	Hop      time.Duration // the longest delay of a nack; a longer wait is made of several
}

// spare is how many receives a job must have left when it is due, where it waits for more than one
// hop: the queue counts those of a duplicate, of a drain and of a pause as well.
const spare = 2

// margin is how long before the end of its time in the queue a job must be due, because it needs
// time to be tried in: one hop, at most an eighth of the time.
func (q Queue) margin() time.Duration { return min(q.hop(), q.Keeps/8) }

// hop is the longest delay of a nack, as far as one can count on it: the time since the receive is
// taken from it.
func (q Queue) hop() time.Duration {
	if q.Hop <= 0 {
		return math.MaxInt64
	}
	return q.Hop - q.Hop/64
}

// Refuses says why a message cannot wait until due; "" = it can. published is when the queue took
// it, zero where nobody says, and receive the number of this receive, 0 where nobody counts.
func (q Queue) Refuses(due, published, now time.Time, receive int) string {
	left := due.Sub(now)
	if left <= 0 {
		return ""
	}
	if published.IsZero() || published.After(now) {
		published = now
	}
	if q.Keeps > 0 && published.Add(q.Keeps).Sub(due) < q.margin() {
		return fmt.Sprintf("due in %s, and the queue keeps messages for %s", Days(left), Days(q.Keeps))
	}
	if q.Receives > 0 {
		hops := (left-1)/q.hop() + 1
		at := time.Duration(max(1, receive)) + hops
		if most := time.Duration(q.Receives); at > most || hops > 1 && at > most-spare {
			return fmt.Sprintf("due in %s, and the queue moves a message away after %d receives, each of which delays it by at most %s",
				Days(left), q.Receives, Days(q.Hop))
		}
	}
	return ""
}

// Step is for how long a message that is sent anew in time is given back at once: one hop, and a
// quarter of the time that the queue keeps it.
func (q Queue) Step() time.Duration {
	if q.Keeps > 0 {
		return min(q.hop(), q.Keeps/4)
	}
	return q.hop()
}

// IsLast reports whether a message that is given back for step would come for the last time.
func (q Queue) IsLast(published, now time.Time, step time.Duration, receive int) bool {
	if q.Receives > 0 && receive+2 > q.Receives {
		return true
	}
	alone := Queue{Keeps: q.Keeps, Hop: q.Hop}
	return alone.Refuses(now.Add(2*step), published, now, receive) != ""
}

// Longest is how long before it is due a job can be sent to the queue; ok = false: any time before.
func (q Queue) Longest() (d time.Duration, ok bool) {
	d = math.MaxInt64
	if q.Keeps > 0 {
		d = q.Keeps - q.margin()
	}
	if q.Receives == 1 {
		return 0, true
	}
	if hops := time.Duration(max(1, q.Receives-spare-1)); q.Receives > 0 && q.hop() < d/hops {
		d = hops * q.hop()
	}
	return d, d < math.MaxInt64
}

// From is when a job that is due then can be sent to the queue; zero = at any time.
func (q Queue) From(due time.Time) (t time.Time) {
	if d, ok := q.Longest(); ok {
		t = due.Add(-d)
	}
	return t
}

// Days writes a time with its two largest units, such as 3d12h.
func Days(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= 24*time.Hour {
		d = d.Round(time.Hour)
	}
	var b strings.Builder
	n := 0
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d < u.of || n == 2 {
			continue
		}
		fmt.Fprintf(&b, "%d%s", d/u.of, u.name)
		d %= u.of
		n++
	}
	if n == 0 {
		return "0s"
	}
	return b.String()
}
