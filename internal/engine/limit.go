package engine

// This file owns the limit of a flow's slots. Hosts set it at any time, from any goroutine; the
// flow's lock guards it.

// Limit lets at most n handlers run at once, from now on; 0 and more than the flow's slots mean
// these. Handlers that run go on. What is held and finds no slot waits for one.
func (f *Flow[J]) Limit(n int) {
	f.mu.Lock()
	f.limit = n
	out := f.pump(nil)
	f.tell()
	f.mu.Unlock()
	f.send(out)
}

// slots is how many handlers may run at once. The caller holds the lock.
func (f *Flow[J]) slots() int {
	if f.limit > 0 {
		return min(f.limit, f.o.Slots)
	}
	return f.o.Slots
}

// capacity is how much is held at once. What waits beyond the slots stays the same under a limit.
func (f *Flow[J]) capacity() int { return f.o.Capacity - f.o.Slots + f.slots() }
