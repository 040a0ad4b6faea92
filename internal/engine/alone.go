package engine

// isAlone reports whether the goroutine that has the run makes the calls of the store for it, and
// not a carrier. Where a flow has one slot, no batch would have two of its runs. Only a store that
// is instant is called so, because a call that hangs would hold up whoever makes it: a poller, or
// the caller of Do.
func (en *Engine[J]) isAlone(r *Run[J]) bool { return en.instant && r.f.o.Slots == 1 }
