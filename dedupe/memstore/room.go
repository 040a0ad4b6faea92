package memstore

import (
	"time"

	"github.com/onceq/onceq/dedupe"
)

// reserve counts a record that is about to be made, if there is room.
func (s *Store) reserve() bool {
	for {
		n := s.count.Load()
		if n >= s.most {
			return false
		}
		if s.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// makeRoom drops a record in a full store and reserves its place: an expired one, else the oldest
// done one. The caller must hold no shard's lock. makeRoom looks at all shards, so that a small
// store keeps the order too. A turn in vain means that another caller has succeeded. If no shard
// has anything to drop, makeRoom reports false.
func (s *Store) makeRoom(now time.Time) bool {
	for !s.reserve() {
		next, oldest := 0, 0
		firstExpiry, firstDone := int64(never), int64(never)
		for i := range s.marks {
			m := &s.marks[i]
			if t := m.nextExpiry.Load(); t < firstExpiry {
				next, firstExpiry = i, t
			}
			if t := m.oldestDone.Load(); t < firstDone {
				oldest, firstDone = i, t
			}
		}
		switch {
		case firstExpiry <= s.shards[next].clock(now):
			if s.dropExpired(&s.shards[next], now) {
				return true
			}
		case firstDone < never:
			if s.evict(&s.shards[oldest], firstDone) {
				return true
			}
		default:
			return false
		}
	}
	return true
}

// dropExpired hands the place of an expired record to the caller.
func (s *Store) dropExpired(sh *shard, now time.Time) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.dropExpired(now, 1) == 1
}

// evict hands the place of the shard's oldest done record to the caller, unless others were
// quicker.
func (s *Store) evict(sh *shard, finished int64) bool {
	sh.mu.Lock()
	e := sh.done.first
	ok := e != nil && sh.clock(e.rec.Finished) <= finished
	var key dedupe.Key
	if ok {
		key = e.rec.Key
		sh.remove(e)
	}
	sh.mu.Unlock()
	if ok && s.evicted.Add(1) == 1 && s.logger != nil {
		s.logger.Warn("memstore: full; done records are dropped before their retention ends, and late duplicates of them would run again",
			"max_records", s.most, "scope", key.Scope, "key", key.Key)
	}
	return ok
}
