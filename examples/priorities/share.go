package main

import "github.com/onceq/onceq"

// This file owns what to copy: slots that several queues share. One goroutine calls share.

// class is a queue's worker, with its weight. Where each weight is above slots times the next one,
// the order is strict.
type class struct {
	*onceq.Worker
	weight int
}

// share divides slots among classes, by weight. Each has one at least, so none starves, and what a
// class has no work for goes to the others. Call it each second or so, and set each Limit to 1
// before. Never more than slots handlers run at once, because a limit rises only by what others
// have left.
func share(slots int, classes []class) {
	now, give := make([]onceq.Stats, len(classes)), make([]int, len(classes))
	for i, c := range classes {
		now[i], give[i] = c.Stats(), 1
	}
	for range slots - len(classes) {
		next := -1
		for i, c := range classes {
			hasWork := now[i].Busy+now[i].Held > give[i]
			if hasWork && (next < 0 || give[i]*classes[next].weight < give[next]*c.weight) {
				next = i
			}
		}
		if next < 0 {
			break // the rest waits for work
		}
		give[next]++
	}
	free := slots
	for i, c := range classes {
		now[i].Slots = max(1, min(now[i].Slots, give[i]))
		c.Limit(now[i].Slots)
		free -= max(now[i].Slots, c.Stats().Busy) // handlers above a lower limit go on
	}
	for i, c := range classes {
		if more := min(give[i]-now[i].Slots, free); more > 0 {
			c.Limit(now[i].Slots + more)
			free -= more
		}
	}
}
