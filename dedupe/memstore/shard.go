package memstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/dedupe"
)

const (
	shardBits  = 6
	shardCount = 1 << shardBits
	// dropsPerClaim is how many expired records of its shard a claim of a new key drops as well.
	// Two for each new one let the expired ones die out.
	dropsPerClaim = 2
	// maxSlab is the most entries that a shard allocates at once.
	maxSlab = 64
)

// entry is a record with its places in the shard.
type entry struct {
	rec    dedupe.Record
	hash   uint64
	chain  *entry  // the next entry of the same bucket, or the next free one
	nodes  [2]node // inQueue and inDone
	slot   int32   // in the queue's heap, from 1
	expiry int64   // rec.Expires by the shard's clock, while queued
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
	free  *entry
	slab  []entry // not yet used
	size  int     // entries allocated, ever
	queue queue   // every record that expires
	done  list    // done records, the oldest first

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
		if e.hash == h && e.rec.Key == k {
			return e
		}
	}
	return nil
}

// add makes an entry with an empty record.
func (sh *shard) add(h uint64) *entry {
	e := sh.free
	if e != nil {
		sh.free = e.chain
	} else {
		if len(sh.slab) == 0 {
			sh.slab = make([]entry, min(maxSlab, sh.size+1))
			sh.size += len(sh.slab)
		}
		e = &sh.slab[0]
		sh.slab = sh.slab[1:]
	}
	e.hash = h
	sh.table.add(e)
	return e
}

// remove takes e out. The entry may be used for another key at once.
func (sh *shard) remove(e *entry) {
	sh.unlink(e)
	sh.publish()
	sh.table.remove(e)
	*e = entry{chain: sh.free}
	sh.free = e
}

// relink puts e where its record, which has changed, belongs.
func (sh *shard) relink(e *entry) {
	sh.unlink(e)
	if !e.rec.Expires.IsZero() {
		e.expiry = sh.clock(e.rec.Expires)
		sh.queue.push(e)
	}
	if e.rec.Status == dedupe.Done {
		sh.done.push(e)
	}
	sh.publish()
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
		oldest = sh.clock(e.rec.Finished)
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
		if e == nil || !e.rec.Expired(now) {
			break
		}
		sh.remove(e)
		n++
	}
	return n
}
