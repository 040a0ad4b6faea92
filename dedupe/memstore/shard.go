package memstore

import (
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/onceq/onceq/dedupe"
)

// This file owns a shard: its entries, whole and packed, and where each is linked. Every method but
// init needs the shard's mutex.

const (
	shardBits  = 6
	shardCount = 1 << shardBits
	// dropsPerClaim is how many expired records of its shard a claim of a new key drops as well.
	// Two for each new one let the expired ones die out.
	dropsPerClaim = 2
	// maxSlab is the most entries that a shard allocates at once.
	maxSlab = 64
	// maxSpare is how many whole records a shard keeps for the next claims.
	maxSpare = 32
)

// entry is a record with its places in the shard.
type entry struct {
	scope    unique.Handle[string] // of the record's key
	name     string                // the key itself
	hash     uint64
	chain    *entry         // the next entry of the same bucket, or the next free one
	nodes    [2]node        // inQueue and inDone
	expiry   int64          // the record's Expires by the shard's clock, while queued
	finished int64          // its Finished by the shard's clock, while done
	live     *dedupe.Record // the whole record; nil: done has it
	done     packed
	slot     int32 // in the queue's heap, from 1
}

// marks are what makeRoom sees of a shard without its mutex, by the shard's clock: when the next
// record expires, and when the oldest done one was finished. never says that there is none. The
// marks of all shards lie together, so that looking at them touches little memory.
type marks struct{ nextExpiry, oldestDone atomic.Int64 }

// shard is a part of the store with its own mutex. No two are ever locked at once.
type shard struct {
	mu    sync.Mutex
	born  time.Time
	table table
	empty *entry
	slab  []entry // not yet used
	size  int     // entries allocated, ever
	queue queue   // every record that expires
	done  list    // done records, the oldest first

	scopes, owners names
	spare          []*dedupe.Record // empty
	scratch        dedupe.Record    // what load gives of a packed record

	marks *marks

	_ [64]byte // the neighbour's mutex is on another cache line
}

func (sh *shard) init(born time.Time, m *marks) {
	sh.born, sh.marks = born, m
	sh.done.which = inDone
	sh.queue.inOrder.which = inQueue
	sh.marks.nextExpiry.Store(never)
	sh.marks.oldestDone.Store(never)
}

// clock is t as a number. Counted from the store's birth it follows the monotonic clock and
// cannot overflow: it ends at never.
func (sh *shard) clock(t time.Time) int64 { return int64(t.Sub(sh.born)) }

func (sh *shard) find(h uint64, k dedupe.Key) *entry {
	for e := sh.table.chain(h); e != nil; e = e.chain {
		if e.hash == h && e.name == k.Key && e.scope.Value() == k.Scope {
			return e
		}
	}
	return nil
}

// add makes an entry with an empty record under k.
func (sh *shard) add(h uint64, k dedupe.Key) *entry {
	e := sh.empty
	if e != nil {
		sh.empty = e.chain
	} else {
		if len(sh.slab) == 0 {
			sh.slab = make([]entry, min(maxSlab, sh.size+1))
			sh.size += len(sh.slab)
		}
		e = &sh.slab[0]
		sh.slab = sh.slab[1:]
	}
	e.hash, e.scope, e.name, e.live = h, sh.scopes.of(k.Scope), k.Key, sh.whole()
	e.live.Key = k
	sh.table.add(e)
	return e
}

// remove takes e out. The entry may be used for another key at once.
func (sh *shard) remove(e *entry) {
	sh.unlink(e)
	sh.publish()
	sh.table.remove(e)
	if e.live != nil {
		sh.free(e.live)
	}
	*e = entry{chain: sh.empty}
	sh.empty = e
}

func (sh *shard) unlink(e *entry) {
	sh.queue.remove(e)
	sh.done.remove(e)
}

func (sh *shard) publish() {
	next, oldest := int64(never), int64(never)
	if e := sh.queue.first(); e != nil {
		next = e.expiry
	}
	if e := sh.done.first; e != nil {
		oldest = e.finished
	}
	// A store is dearer than a load, and the first of a long queue seldom changes.
	if sh.marks.nextExpiry.Load() != next {
		sh.marks.nextExpiry.Store(next)
	}
	if sh.marks.oldestDone.Load() != oldest {
		sh.marks.oldestDone.Store(oldest)
	}
}

// dropExpired removes up to most records that have expired, and returns how many it removed.
func (sh *shard) dropExpired(now time.Time, most int) int {
	n := 0
	for n < most {
		e := sh.queue.first()
		if e == nil || !sh.expired(e, now) {
			break
		}
		sh.remove(e)
		n++
	}
	return n
}

// key is the entry's.
func (e *entry) key() dedupe.Key { return dedupe.Key{Scope: e.scope.Value(), Key: e.name} }

// expired is dedupe.Record.Expired, for a packed record by the shard's clock.
func (sh *shard) expired(e *entry, now time.Time) bool {
	if e.live != nil {
		return e.live.Expired(now)
	}
	return e.expiry <= sh.clock(now)
}

// load gives the entry's record, for as long as the lock is held. A change of it takes effect with
// store.
func (sh *shard) load(e *entry, now time.Time) *dedupe.Record {
	if e.live != nil {
		return e.live
	}
	e.done.unpack(&sh.scratch, e.key(), now.Add(time.Duration(e.expiry-sh.clock(now))))
	return &sh.scratch
}

// store keeps r, which load gave and the caller has changed, and puts the entry where it belongs.
func (sh *shard) store(e *entry, r *dedupe.Record) {
	sh.unlink(e)
	if e.live == nil {
		e.live = sh.whole()
		*e.live = *r
		e.done = packed{}
	}
	if !e.live.Expires.IsZero() {
		e.expiry = sh.clock(e.live.Expires)
		sh.queue.push(e)
	}
	if e.live.Status == dedupe.Done {
		e.finished = sh.clock(e.live.Finished)
		sh.done.push(e)
		if e.expiry < never && e.done.pack(e.live, sh.owners.of(e.live.Owner)) {
			sh.free(e.live)
			e.live = nil
		}
	}
	sh.publish()
}

// whole gives room for a record; free takes it back.
func (sh *shard) whole() *dedupe.Record {
	if n := len(sh.spare); n > 0 {
		r := sh.spare[n-1]
		sh.spare = sh.spare[:n-1]
		return r
	}
	return new(dedupe.Record)
}

func (sh *shard) free(r *dedupe.Record) {
	if len(sh.spare) < maxSpare {
		*r = dedupe.Record{}
		sh.spare = append(sh.spare, r)
	}
}
