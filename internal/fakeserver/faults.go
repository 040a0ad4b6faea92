package fakeserver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// This file decides which fault of a fake server hits a call. What a fault is, and which calls it
// fits, is the server's: sqsfake and pubsubfake have faults of their own kind.

// When says which of the calls that a fault fits are hit. The fakes' faults explain each field.
type When struct {
	Skip, Count int
	Rate        float64
	For         time.Duration
}

// Table holds the faults in force, of type F. Set Rand before its first use. Its lock guards the
// faults, their counts and the random numbers; the server's own lock is never held with it.
type Table[F any] struct {
	Rand *rand.Rand

	mu    sync.Mutex
	rules []*rule[F]
}

type rule[F any] struct {
	fault F
	when  When
	set   time.Time
	seen  int
}

// Set replaces the faults, and counting begins anew. It copies them.
func (t *Table[F]) Set(fs []F, when func(*F) When) {
	rules := make([]*rule[F], len(fs))
	for i := range fs {
		rules[i] = &rule[F]{fault: fs[i], when: when(&fs[i]), set: time.Now()}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = rules
}

// Pick finds the first fault that fits a call and hits it; nil = none does. It calls fits without
// the lock, because users' code may be behind it.
func (t *Table[F]) Pick(fits func(*F) bool) *F {
	t.mu.Lock()
	rules := t.rules
	t.mu.Unlock()
	for _, r := range rules {
		if fits(&r.fault) && t.hit(r) {
			return &r.fault
		}
	}
	return nil
}

func (t *Table[F]) hit(r *rule[F]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &r.when
	if w.For > 0 && time.Since(r.set) >= w.For {
		return false
	}
	if w.Rate > 0 && w.Rate < 1 && t.Rand.Float64() >= w.Rate {
		return false
	}
	r.seen++
	return r.seen > w.Skip && (w.Count == 0 || r.seen <= w.Skip+w.Count)
}

// Pause waits for d, or until the caller gives up, which it reports by false. A server that closes
// ends the wait, too.
func Pause(ctx context.Context, d time.Duration, closing <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-closing:
		return true
	}
}
