// Package peak counts, for tests, how many of something are under way at once, and the most.
package peak

import "sync"

// Gauge counts what came in and has not gone out. The count and the most change under one lock: who
// loads a maximum and then stores a new one loses the larger of two that come at once. The zero
// value is ready.
type Gauge struct {
	mu        sync.Mutex
	now, most int
}

// In counts one more.
func (g *Gauge) In() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.most = max(g.most, g.now)
}

// Out counts one less.
func (g *Gauge) Out() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

// Now is how many are under way.
func (g *Gauge) Now() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// Top is how many were under way at once, at most, when one came in since the last Reset.
func (g *Gauge) Top() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// Reset forgets the most. What is under way stays counted.
func (g *Gauge) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = 0
}
