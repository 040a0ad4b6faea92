package onceq

import (
	"maps"
	"sync"

	"github.com/onceq/onceq/internal/engine"
)

// This file owns what the program itself bounds of a Worker: Limit, and the brakes of breakers. Any
// goroutine calls them. w.mu guards a Worker's bounds, and a flow's limit changes under it, so that
// the flow obeys who came last. It is let go before what has a slot is begun.

// bounds are what holds a Worker to fewer handlers than its Concurrency; 0 = nothing is said.
type bounds struct {
	program, rules int
	brakes         map[*byte]int // by who has pulled them: 0 = it pauses
}

// lowest is the bound that holds, and the reason of a pause that names who has set it. 0 = none.
func (b *bounds) lowest() (slots int, by string) {
	for _, o := range []struct {
		slots int
		by    string
	}{{b.program, ReasonLocal}, {b.rules, ReasonRules}} {
		if o.slots > 0 && (slots == 0 || o.slots < slots) {
			slots, by = o.slots, o.by
		}
	}
	for _, n := range b.brakes {
		// One that pauses bounds as well: a probe's limit must not end before the pause begins.
		if n = max(1, n); slots == 0 || n < slots {
			slots, by = n, ReasonBreaker
		}
	}
	return slots, by
}

func (b *bounds) pauses() bool {
	for _, n := range b.brakes {
		if n == 0 {
			return true
		}
	}
	return false
}

// Limit lets at most n handlers of this Worker run at once, from now on; 0 or less, or more than
// Concurrency, means Concurrency. Handlers that run go on. It may be called before Run and at any
// time, and holds until the next call. Where an operator's rule, or a breaker, sets another limit,
// the lowest one counts. Limit bounds one Worker: package limit has what bounds all of them.
func (w *Worker) Limit(n int) {
	w.bound(func(b *bounds) { b.program = max(0, n) })
}

// limitByRules is Limit for the operators' rules.
func (w *Worker) limitByRules(n int) {
	w.bound(func(b *bounds) { b.rules = max(0, n) })
}

// Brake makes a bound of its own on this Worker, for a breaker such as limit.Breaker. set(0) pauses
// the Worker for the reason [ReasonBreaker], set(n) lets at most n handlers run, and set(-1) lifts
// the bound. Each call of Brake makes another one. The lowest bound counts, and neither Resume nor
// another's set ends it. Any goroutine may call set, before Run too.
func (w *Worker) Brake() (set func(n int)) {
	me := new(byte)
	return func(n int) {
		w.bound(func(b *bounds) {
			if n < 0 {
				delete(b.brakes, me)
				return
			}
			if b.brakes == nil {
				b.brakes = make(map[*byte]int)
			}
			b.brakes[me] = n
		})
		w.obeyBrakes()
	}
}

// bound changes the bounds, and has the flow obey.
func (w *Worker) bound(change func(*bounds)) {
	w.mu.Lock()
	change(&w.bounds)
	start := func() {}
	if w.flow != nil {
		slots, _ := w.bounds.lowest()
		start = w.flow.Limit(slots)
	}
	w.mu.Unlock()
	start()
}

// obeyBrakes pauses the Worker while a brake says so. Callers may come at once, and a pause tells
// the Observer, so no lock is held around both: each looks again until what holds is what is said.
func (w *Worker) obeyBrakes() {
	for {
		w.mu.Lock()
		_, holds := w.paused[engine.ByBreaker]
		says := w.bounds.pauses()
		w.mu.Unlock()
		switch {
		case says == holds:
			return
		case says:
			w.pause(engine.ByBreaker)
		default:
			w.resume(engine.ByBreaker)
		}
	}
}

// limitedBy is what holds the Worker to fewer handlers: a reason as of a pause; "" = nothing does.
func (w *Worker) limitedBy() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slots, by := w.bounds.lowest()
	if slots == 0 || slots >= w.c.Concurrency {
		return ""
	}
	return by
}

// limiters counts the jobs that each limiter has postponed, for cards. Jobs alone that a limiter
// postpones reach it.
type limiters struct {
	mu sync.Mutex
	n  map[string]uint64
}

// maxLimiters bounds the names: a program of ours has a few, and a user's own limiter may make up
// any number.
const maxLimiters = 16

func (l *limiters) count(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = make(map[string]uint64)
	}
	if _, ok := l.n[name]; !ok && len(l.n) >= maxLimiters {
		name = "other"
	}
	l.n[name]++
}

func (l *limiters) counted() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.n)
}
