package onceq

// glance is what the Worker's card says of it as a whole.
func (w *Worker) glance() glance {
	h, n := w.Health(), w.counted()
	g := glance{state: string(h.State), slots: h.Slots, busy: h.Busy, held: n.Held, ends: n.Outcomes}
	for _, d := range []struct {
		what string
		of   *Dependency
	}{{ReasonStore, &h.Store}, {ReasonQueue, &h.Queue}} {
		if since := d.of.Failing; !since.IsZero() && (g.outage == "" || since.Before(g.since)) {
			g.outage, g.since = d.what, since
		}
	}
	return g
}
