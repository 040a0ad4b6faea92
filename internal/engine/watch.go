package engine

// A Watcher is told that a flow has stopped or paused, or that its limit has changed. No lock is
// held, and it must not block.
type Watcher interface{ FlowChanged() }

func tellWatchers(ws []Watcher) {
	for _, w := range ws {
		w.FlowChanged()
	}
}
