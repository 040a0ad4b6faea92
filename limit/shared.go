package limit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/engine"
	"github.com/onceq/onceq/internal/storecall"
)

// This file owns Shared. A window's starts are divided into blocks. A block is a record in the
// store: who makes it may begin its starts within use, and the record is kept for per + use after
// it was made. So two uses of a block are per apart, whoever has them, and no two clocks are
// compared. Handlers' goroutines run all of it. The table's lock is not held while the store is
// called; one goroutine of a process asks it for a key, and the others wait for its answer.

// Shared lets at most n jobs of a key begin in any time of length per, in all processes that use
// the store s and the name. n and per are as those of [Rate]; a per below a second is of little use
// across a network. The name has 1 to 64 bytes, and all processes give the same n and per with it.
//
// The starts are taken from the store in at most 20 blocks, two writes each, for a tenth of per.
// What of a block its process does not use by then is lost: with a steady load nine tenths of n
// begin, where jobs are few and far between a start for each block, and of an n up to 20 nothing is
// lost. While the store is away a process begins what it has taken, and then nothing: jobs are
// postponed, and no attempt counts.
//
// A process that stands still between the limiter's word and the handler's first instruction
// begins late. Where the store judges its records by its clients' clocks, as one in DynamoDB does,
// the limit is as exact as these.
func Shared(s dedupe.Store, name string, n int, per time.Duration) (Limiter, error) {
	if err := checkNamed("Shared", s, name); err != nil {
		return nil, err
	}
	if err := checkRate("Shared", n, per); err != nil {
		return nil, err
	}
	size := (n + maxBlocks - 1) / maxBlocks
	r := &shared{store: s, name: name, size: size, blocks: n / size, use: int64(per / 10), kept: per + per/10}
	r.table = newTable(func(b **block, now int64) bool { return (*b).isIdle(now) })
	return r, nil
}

const maxBlocks = 20

type shared struct {
	store        dedupe.Store
	name         string
	blocks, size int
	use          int64
	kept         time.Duration
	table        *table[*block]
}

// block is what is kept of a key.
type block struct {
	line
	left   int           // starts
	until  int64         // when they end
	wall   time.Time     // the same by the wall clock, because the other one may stand still in a sleep
	free   int64         // when another block may be free
	last   int64         // the last start
	asking chan struct{} // closed when the store has answered
	err    error         // its last answer, where that was none
	began  int64         // the window in which this process's starts are counted
	had    [2]int        // in the window before, and in this one
}

func (b *block) isIdle(now int64) bool {
	return b.asking == nil && b.until <= now && b.free <= now && b.last+silence <= now && b.line.isIdle(now)
}

func (r *shared) Name() string { return r.name }

// Reserve implements [Limiter]. It waits in the slot itself, because what is free later is not its
// own yet.
func (r *shared) Reserve(ctx context.Context, a Ask) (time.Duration, error) {
	for end := time.Now().Add(holdOf(ctx)); ; a.Again = true { // it has queued
		wait, asked, err := r.try(ctx, a)
		left := time.Until(end)
		switch {
		case err != nil:
			return 0, away(err)
		case wait <= 0:
			return 0, nil
		case left <= 0 || asked == nil && wait >= left:
			return max(wait, MaxHold), nil
		}
		t := time.NewTimer(min(wait, left))
		select {
		case <-asked:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, context.Cause(ctx)
		}
		t.Stop()
	}
}

// try takes a start, or says after what time, or answer, to try again.
func (r *shared) try(ctx context.Context, a Ask) (wait time.Duration, asked <-chan struct{}, err error) {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	k, b, ok := t.get(a.Key, now)
	if !ok {
		return full(), nil, nil
	}
	if b == nil {
		b = &block{began: now, had: [2]int{0, r.blocks * r.size}}
		t.m[k] = b
	}
	every := b.pace(now, r)
	if now > b.last+every+silence {
		b.tail = min(b.tail, now)
	}
	switch {
	case !a.Again && b.tail > now:
		return b.told(a, now, now, every), nil, nil
	case b.left > 0 && now < b.until && time.Now().Round(0).Before(b.wall):
		b.left--
		b.had[1]++
		b.last = now
		return 0, nil, nil
	case b.asking == nil && now < b.free:
		return b.wait(a, now, every), nil, b.err
	case b.asking == nil:
		b.asking = make(chan struct{})
		// Not under the job's context: what is taken is for the others, too. And not on the job's
		// goroutine, because a store may ignore every context.
		go r.ask(context.WithoutCancel(ctx), a.Key, b)
	}
	return MaxHold, b.asking, nil
}

// ask takes a block for the key.
func (r *shared) ask(ctx context.Context, key string, b *block) {
	g, err := engine.Guard(func() (grant, error) { return r.take(ctx, key) })
	if err != nil {
		g = grant{free: time.Second + rand.N(time.Second)}
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	b.left, b.until, b.wall, b.err = g.left, g.until, g.wall, err
	b.free = r.table.now() + int64(g.free)
	close(b.asking)
	b.asking = nil
}

// wait is how long a job waits for the next block. One that has waited already stays in its slot
// where that is short.
func (b *block) wait(a Ask, now, every int64) time.Duration {
	if a.Again && b.again < b.free && b.free-now < int64(MaxHold) {
		b.again = b.free
		return time.Duration(b.free - now)
	}
	return b.told(a, now, b.free, every)
}

// pace is the time between two starts of this process, as far as the last window tells: others have
// the rest.
func (b *block) pace(now int64, r *shared) int64 {
	if now-b.began >= int64(r.kept) {
		if b.had[0] = b.had[1]; now-b.began >= 2*int64(r.kept) {
			b.had[0] = 0
		}
		b.began, b.had[1] = now, 0
	}
	return int64(r.kept) / int64(max(1, b.had[0], b.had[1]))
}

// grant is what the store has given: starts until a time, or the time after which to ask again.
type grant struct {
	left  int
	until int64
	wall  time.Time
	free  time.Duration
}

// take asks the store for a block of the key's.
func (r *shared) take(ctx context.Context, key string) (g grant, err error) {
	poll := max(50*time.Millisecond, r.kept/80)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	names := r.blockNames(key)
	ks := make([]dedupe.Key, len(names))
	for i, name := range names {
		ks[i] = dedupe.Key{Scope: storecall.ScopeOnce, Key: name}
	}
	rs, err := storecall.ReadAll(ctx, r.store, ks)
	if err != nil {
		return g, err
	}
	g.free = r.kept
	for _, i := range rand.Perm(len(rs)) {
		if left := heldFor(rs[i]); left > 0 {
			g.free = min(g.free, left)
			continue
		}
		now, wall := r.table.now(), time.Now().Round(0)
		ran, err := control.RunOnce(ctx, r.store, names[i], r.kept, func(context.Context) error { return nil })
		switch {
		case err != nil:
			return g, err
		case ran:
			return grant{left: r.size, until: now + r.use, wall: wall.Add(time.Duration(r.use))}, nil
		}
		g.free = 0 // somebody was first
	}
	g.free = max(g.free, poll)
	return g, nil
}

// heldFor is for how long a block is not to be had, by this process's clock. A claim lasts for
// moments, and one whose taker died before it was settled ends by itself. Where the lease seems
// longer than any, the clocks are apart, and the store is asked.
func heldFor(r *dedupe.Record) time.Duration {
	switch {
	case r == nil:
	case r.Status == dedupe.Done:
		return max(1, time.Until(r.Expires)) // the store says that it is kept
	case r.Status == dedupe.Claimed && time.Until(r.LeaseUntil) <= placeTTL:
		return time.Until(r.LeaseUntil)
	}
	return 0
}

// blockNames are the names of a key's blocks. A key is a sender's word, so its hash stands for it.
func (r *shared) blockNames(key string) []string {
	sum := sha256.Sum256([]byte(key))
	names := make([]string, r.blocks)
	for i := range names {
		names[i] = fmt.Sprintf("limit/%s/%x/%d", r.name, sum[:16], i)
	}
	return names
}
