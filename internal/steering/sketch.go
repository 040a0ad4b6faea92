package steering

import (
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/internal/engine"
)

// This file owns how long handlers took, for the card. Whoever ends a run notes its time, in
// counters of a fixed size that nobody locks. The goroutine that keeps the seat looks at them: it
// alone has the earlier looks, so what is older than five minutes is subtracted there.

const (
	// sketchSize is for 40 doublings of a microsecond, 12 days, each in two halves.
	sketchSize = 80
	// rateOver is the time over which a card's rate and durations are counted.
	rateOver = 5 * time.Minute
	// lookEvery is the least time between two looks that are kept.
	lookEvery = 30 * time.Second
)

// sketch counts the times of one type of job. A bucket is half of a doubling, so that a quantile is
// wrong by a quarter at the most.
type sketch struct {
	counts  [sketchSize]atomic.Uint32
	longest atomic.Int64  // since the last look, in nanoseconds
	errors  atomic.Uint32 // how many of them failed, finally or to be tried again

	mu      sync.Mutex        // a run that has failed is no hot path
	classes map[string]uint64 // of the errors; that of no type has all
}

const (
	// mostClasses bounds the classes that are told apart, because a program may make one of each
	// error.
	mostClasses = 16
	otherClass  = "other"
)

func (s *sketch) failedBy(class string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.classes == nil {
		s.classes = make(map[string]uint64)
	}
	if _, known := s.classes[class]; !known && (class == "" || len(s.classes) >= mostClasses) {
		class = otherClass
	}
	s.classes[class]++
}

// ran is how many handlers have ended, and how many of them failed.
func (s *sketch) ran() (runs, errors uint32) {
	errors = s.errors.Load() // first: a run is counted before its error
	for i := range s.counts {
		runs += s.counts[i].Load()
	}
	return runs, errors
}

func (s *sketch) tookFor(d time.Duration) {
	s.counts[bucketOf(d)].Add(1)
	for {
		most := s.longest.Load()
		if int64(d) <= most || s.longest.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

func bucketOf(d time.Duration) int {
	us := uint64(max(1, d.Microseconds()))
	n := bits.Len64(us) // 1 at least
	half := 0
	if n > 1 {
		half = int(us >> (n - 2) & 1)
	}
	return min(2*(n-1)+half, sketchSize-1)
}

// middle is the time that stands for a bucket.
func middle(i int) time.Duration {
	least := time.Microsecond << (i / 2)
	return least + time.Duration(i%2)*least/2 + least/4
}

// Sketches are the times of an intake's handlers, by the types of its Mux; "" is for all others.
// Nobody changes the map. nil counts nothing.
type Sketches map[string]*sketch

// NewSketches makes the sketches of these types.
func NewSketches(types []string) Sketches {
	all := Sketches{"": new(sketch)}
	for _, t := range types {
		all[t] = new(sketch)
	}
	return all
}

// Count counts one handler's time, and how it ended; class is that of its error.
func (all Sketches) Count(typ string, d time.Duration, outcome engine.Outcome, class string) {
	if all == nil {
		return
	}
	s := all[typ]
	if s == nil {
		s = all[""]
	}
	s.tookFor(d)
	switch outcome {
	case engine.Retried, engine.Failed, engine.Parked:
		s.errors.Add(1)
		all[""].failedBy(class)
	}
}

// byClass is how many errors there were of each class; nil where nothing has failed.
func (all Sketches) byClass() map[string]uint64 {
	s := all[""]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.classes)
}

// look is what a sketch has counted at a time.
type look struct {
	at      time.Time
	counts  [sketchSize]uint32
	longest time.Duration // since the look before
}

// looks are the earlier ones of a sketch, the oldest first.
type looks []look

// quantiles are those of the last five minutes; false where nothing has ended in them.
func (ls *looks) quantiles(s *sketch, now time.Time) (q control.Quantiles, ok bool) {
	var l look
	l.at = now
	for i := range s.counts {
		l.counts[i] = s.counts[i].Load()
	}
	for len(*ls) > 1 && now.Sub((*ls)[1].at) >= rateOver {
		*ls = (*ls)[1:]
	}
	var base look
	if len(*ls) > 0 {
		base = (*ls)[0]
	}
	q.Max = time.Duration(s.longest.Load())
	for i, e := range *ls {
		if i > 0 { // what the first one has seen is subtracted
			q.Max = max(q.Max, e.longest)
		}
	}
	if n := len(*ls); n == 0 || now.Sub((*ls)[n-1].at) >= lookEvery {
		l.longest = time.Duration(s.longest.Swap(0))
		*ls = append(*ls, l)
	}
	all := uint64(0)
	for i := range l.counts {
		l.counts[i] -= base.counts[i]
		all += uint64(l.counts[i])
	}
	if all == 0 {
		return q, false
	}
	q.P50, q.P95 = l.quantile(all, 50), l.quantile(all, 95)
	q.Max = max(q.Max, 1)
	q.P50, q.P95 = min(q.P50, q.Max), min(q.P95, q.Max)
	return q, true
}

// quantile is the time of which so many of a hundred are not longer.
func (l *look) quantile(all uint64, percent uint64) time.Duration {
	seen := uint64(0)
	for i, n := range l.counts {
		if seen += uint64(n); seen*100 >= all*percent {
			return middle(i)
		}
	}
	return middle(sketchSize - 1)
}
