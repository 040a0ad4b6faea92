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
			if s.evict(&s.shards[oldest], firstDone, s.atOnce()) {
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

// atOnce is how many done records one look at the shards drops, because the look takes longer than
// a claim. What it drops too early is of the oldest hundredth of a store.
func (s *Store) atOnce() int { return int(min(max(1, s.most/10_000), 16)) }

// evict drops up to n of the shard's oldest done records, unless others were quicker. It hands the
// place of one to the caller, and the others to whoever comes.
func (s *Store) evict(sh *shard, finished int64, n int) bool {
	var key dedupe.Key
	dropped := 0
	sh.mu.Lock()
	for e := sh.done.first; e != nil && dropped < n && (dropped > 0 || e.finished <= finished); e = sh.done.first {
		key = e.key()
		sh.remove(e)
		dropped++
	}
	sh.mu.Unlock()
	if dropped == 0 {
		return false
	}
	s.count.Add(-int64(dropped - 1))
	if s.evicted.Add(uint64(dropped)) == uint64(dropped) && s.logger != nil {
		s.logger.Warn("memstore: full; done records are dropped before their retention ends, and late duplicates of them would run again",
			"max_records", s.most, "scope", key.Scope, "key", key.Key)
	}
	return true
}
