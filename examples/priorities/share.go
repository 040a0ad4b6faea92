package main

import "github.com/onceq/onceq"

// This file owns what to copy: slots that several queues share. One goroutine calls move.

// class is a queue, with its worker and its weight.
type class struct {
	*onceq.Worker
	weight int
	limit  int // its present one
}

// shares divides slots among classes. Each has one at least, so none starves, and what a class has
// no work for goes to the others: by weight, or, where strict, to the first that has work.
type shares struct {
	slots   int
	strict  bool
	classes []*class
}

// move sets each worker's limit anew. Call it each second or so. Never more than slots handlers run
// at once, because a limit rises only by what others have left.
func (s *shares) move() {
	give, want := make([]int, len(s.classes)), make([]int, len(s.classes))
	for i, c := range s.classes {
		now := c.Stats()
		give[i], want[i] = 1, now.Busy+now.Held
	}
	for left := s.slots - len(s.classes); left > 0; left-- {
		next := -1
		for i, c := range s.classes {
			if want[i] > give[i] && (next < 0 || !s.strict && give[i]*s.classes[next].weight < give[next]*c.weight) {
				next = i
			}
		}
		if next < 0 {
			break // the rest waits for work
		}
		give[next]++
	}
	used := 0
	for i, c := range s.classes {
		c.limit = max(1, min(c.limit, give[i]))
		c.Limit(c.limit)
		used += max(c.limit, c.Stats().Busy) // handlers above a lower limit go on
	}
	for i, c := range s.classes {
		if n := min(give[i]-c.limit, s.slots-used); n > 0 {
			used, c.limit = used+n, c.limit+n
			c.Limit(c.limit)
		}
	}
}
