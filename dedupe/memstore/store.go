package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/instant"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the store: construction, limits and the calls. Workers call it from many
// goroutines. Each entry holds its shard's mutex, one shard at a time. The counters are atomic.

// The defaults of [Options].
const (
	DefaultMaxRecords = 1_000_000
	DefaultMaxResult  = 1 << 20
	DefaultMaxBatch   = 1000
)

// Options of a [Store]; the zero value, and nil, take every default.
type Options struct {
	// MaxRecords bounds the records of the whole store. In a full store, the claim of a new key
	// drops an expired record, else the oldest done one; from 20,000 records on, a few more of the
	// oldest hundredth with it. Claimed, released, failed and parked records are never dropped
	// before they expire. If there is nothing to drop, the claim is answered [dedupe.ErrFull]. A
	// done record takes about 215 bytes besides its key and result, any other about 700 besides
	// its texts and state. Default 1,000,000; at least 1.
	MaxRecords int
	// MaxResult bounds one result and one saved state, in bytes. Default 1 MiB; at least 1.
	MaxResult int
	// MaxBatch bounds the entries of one call. Default 1,000; at least 1.
	MaxBatch int
	// Logger is warned once, when the first done record is dropped before its retention ended:
	// from then on a late duplicate of it would run again. Default: none.
	Logger *slog.Logger
}

// fences is one counter for all stores of the process, so that a new store never repeats a fence of
// the one before it, even if the clock stands still. The first store sets it to the time in
// microseconds. A later process begins with a higher number, because nobody claims a million times
// a second for as long as a process runs.
var fences atomic.Uint64

func raiseFences(floor uint64) {
	for {
		f := fences.Load()
		if f >= floor || fences.CompareAndSwap(f, floor) {
			return
		}
	}
}

func nextFence() uint64 { return fences.Add(1) }

// Store is a [dedupe.Store] in memory. Make one with [New].
type Store struct {
	mark
	shards []shard
	marks  []marks // of the shards
	seed   maphash.Seed
	born   time.Time // the origin of the shards' clock
	limits dedupe.Limits
	calls  *records.Calls
	most   int64
	logger *slog.Logger

	_       [64]byte // the counters below change with every claim, the fields above never
	count   atomic.Int64
	evicted atomic.Uint64
}

var _ dedupe.Store = (*Store)(nil)

type mark = instant.Mark

// New makes an empty store. Nil options are the defaults. An error names the option that makes no
// sense.
func New(o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	most, err := option("MaxRecords", o.MaxRecords, DefaultMaxRecords)
	if err != nil {
		return nil, err
	}
	result, err := option("MaxResult", o.MaxResult, DefaultMaxResult)
	if err != nil {
		return nil, err
	}
	batch, err := option("MaxBatch", o.MaxBatch, DefaultMaxBatch)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	raiseFences(uint64(max(1, now.UnixMicro())))
	s := &Store{
		shards: make([]shard, shardCount),
		marks:  make([]marks, shardCount),
		seed:   maphash.MakeSeed(),
		born:   now,
		limits: dedupe.Limits{MaxResult: result, MaxBatch: batch},
		calls:  records.NewCalls("memstore", result),
		most:   int64(most),
		logger: o.Logger,
	}
	if o.Logger == nil { // which is a user's, and may do anything
		s.mark = instant.Of(s)
	}
	for i := range s.shards {
		s.shards[i].init(now, &s.marks[i])
	}
	return s, nil
}

func option(name string, v, def int) (int, error) {
	switch {
	case v == 0:
		return def, nil
	case v < 0:
		return 0, fmt.Errorf("memstore: Options.%s is %d, want at least 1, or 0 for %d", name, v, def)
	}
	return v, nil
}

// Limits says what the store can hold. It is not durable.
func (s *Store) Limits() dedupe.Limits { return s.limits }

// Len is the number of records, those included that have expired and were not dropped yet.
func (s *Store) Len() int { return int(s.count.Load()) }

// Evicted counts the done records that were dropped before their retention ended, to make room.
func (s *Store) Evicted() uint64 { return s.evicted.Load() }

// ready says why a call of n entries cannot begin. The store cannot be closed.
func (s *Store) ready(ctx context.Context, n int) error {
	return records.Ready(ctx, "memstore", false, n, s.limits.MaxBatch)
}

// Claim tries to win each key. Each entry is applied alone, in order, so a key may stand in a batch
// more than once. Besides what the contract names, an entry may be answered [dedupe.ErrFull].
func (s *Store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := s.ready(ctx, len(rs)); err != nil {
		return nil, err
	}
	now := time.Now()
	return s.calls.Claims.Each(rs, func(q *dedupe.ClaimRequest, c *dedupe.Claim) { s.claim(c, q, now) }), nil
}

func (s *Store) claim(c *dedupe.Claim, q *dedupe.ClaimRequest, now time.Time) {
	h := s.hash(q.Key)
	sh := s.shard(h)
	sh.mu.Lock()
	e := sh.find(h, q.Key)
	if e == nil {
		s.count.Add(-int64(sh.dropExpired(now, dropsPerClaim)))
		if !s.reserve() {
			sh.mu.Unlock()
			if !s.makeRoom(now) {
				c.Err = dedupe.ErrFull
				return
			}
			sh.mu.Lock()
			if e = sh.find(h, q.Key); e != nil {
				s.count.Add(-1)
			}
		}
		if e == nil {
			e = sh.add(h, q.Key)
		}
	}
	r := sh.load(e, now)
	var changed bool
	*c, changed = machine.ApplyClaim(r, q, now, nextFence)
	if c.Outcome == dedupe.Won {
		c.Lease.Deadline = r.LeaseUntil
	}
	if changed {
		sh.store(e, r)
	}
	sh.mu.Unlock()
}

// Renew prolongs leases. Each entry is applied alone, in order.
func (s *Store) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := s.ready(ctx, len(rs)); err != nil {
		return nil, err
	}
	now := time.Now()
	return s.calls.Renewals.Each(rs, func(n *dedupe.Renewal, a *dedupe.Renewed) {
		h := s.hash(n.Key)
		sh := s.shard(h)
		sh.mu.Lock()
		a.Err = dedupe.ErrLeaseLost
		if e := sh.find(h, n.Key); e != nil {
			r := sh.load(e, now) // one that is changed is claimed, so it is whole
			if a.Err = machine.ApplyRenew(r, n, now); a.Err == nil {
				a.Deadline = r.LeaseUntil
			}
		}
		sh.mu.Unlock()
	}), nil
}

// Settle ends claims. Each entry is applied alone, in order.
func (s *Store) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := s.ready(ctx, len(ss)); err != nil {
		return nil, err
	}
	now := time.Now()
	return s.calls.Settlements.Each(ss, func(t *dedupe.Settlement, a *dedupe.Settled) {
		h := s.hash(t.Key)
		sh := s.shard(h)
		sh.mu.Lock()
		if e := sh.find(h, t.Key); e == nil {
			a.Err = dedupe.ErrLeaseLost
		} else {
			r := sh.load(e, now)
			var changed bool
			if *a, changed = machine.ApplySettle(r, t, now); changed {
				sh.store(e, r)
			}
		}
		sh.mu.Unlock()
	}), nil
}

// Get reads records; the answers are copies.
func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if err := s.ready(ctx, len(ks)); err != nil {
		return nil, err
	}
	now := time.Now()
	out := make([]*dedupe.Record, len(ks))
	for i, k := range ks {
		out[i] = s.get(k, now)
	}
	return out, nil
}

func (s *Store) get(k dedupe.Key, now time.Time) *dedupe.Record {
	h := s.hash(k)
	sh := s.shard(h)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.find(h, k); e != nil && !sh.expired(e, now) {
		return sh.load(e, now).Clone()
	}
	return nil
}

// Forget removes records.
func (s *Store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	if err := s.ready(ctx, len(fs)); err != nil {
		return nil, err
	}
	now := time.Now()
	return s.calls.Removals.Each(fs, func(f *dedupe.Forgotten, err *error) {
		h := s.hash(f.Key)
		sh := s.shard(h)
		sh.mu.Lock()
		if e := sh.find(h, f.Key); e != nil {
			var remove bool
			if remove, *err = machine.ApplyForget(sh.load(e, now), f, now); remove {
				sh.remove(e)
				s.count.Add(-1)
			}
		}
		sh.mu.Unlock()
	}), nil
}

func (s *Store) hash(k dedupe.Key) uint64 {
	// Keys that collide share a chain and are told apart there.
	return maphash.String(s.seed, k.Scope)*0x9e3779b97f4a7c15 + maphash.String(s.seed, k.Key)
}

func (s *Store) shard(h uint64) *shard { return &s.shards[h>>(64-shardBits)] }
