package visibility

import "slices"

// news is what the manager tells holders when it has given the lock up.
type news[L any] struct{ timeouts, unanswered []L }

// tick looks at every lease that is due, and starts the beats.
func (m *Manager[L]) tick() {
	var n news[L]
	m.mu.Lock()
	m.wakes = never
	now, queued := m.now(), m.waiting.Len()
	m.catchUp(now)
	for m.leases.Len() > 0 && m.leases.First().Key <= now.mono {
		m.look(m.leases.First().Item, now, now.mono, &n)
	}
	if m.waiting.Len() > queued {
		// Leases that are due soon go along, so that the calls are full.
		soon := now.mono + int64(m.o.Interval/8)
		for _, h := range m.leases.Until(soon, nil) {
			m.look(h, now, soon, &n)
		}
	}
	m.launch()
	m.arm()
	m.mu.Unlock()

	for _, l := range n.timeouts {
		m.o.OnTimeout(l)
	}
	for _, l := range n.unanswered {
		m.o.OnLost(l, ErrUnanswered)
	}
}

// catchUp makes leases due that have come near their deadline while the machine was suspended.
// Leases are due by the monotonic clock, and that clock stood still. Such a jump may also come from
// a wall clock that was set, with nothing lost. So where a late answer counts, the beat goes out
// first. The holder is told only when the beat is not answered within the margin.
func (m *Manager[L]) catchUp(now moment) {
	skew := now.wall - now.mono
	if skew-m.skew > int64(m.o.Margin) {
		for _, n := range slices.Clone(m.leases.All()) {
			if h := n.Item; h.unanswered(now) {
				h.next = now.mono
				m.allowMargin(h, now)
				m.leases.Fix(&h.place[byDue], now.mono)
			}
		}
	}
	m.skew = skew
}

// allowMargin gives a beat the margin to be answered, where the lease is over by the wall clock
// alone.
func (m *Manager[L]) allowMargin(h *Held[L], now moment) {
	if m.o.Revives && h.deadline.mono > now.mono {
		h.doubt, h.warn = true, min(h.warn, now.mono+int64(m.o.Margin))
	}
}

// look does what is due for h now, and lets its beat wait for a call if that is due by until. It is
// called with the lock held. Afterwards nothing of h is due now.
func (m *Manager[L]) look(h *Held[L], now moment, until int64, n *news[L]) {
	if h.timeout <= now.mono {
		h.timeout = never
		n.timeouts = append(n.timeouts, h.Lease)
	}
	if h.unanswered(now) {
		h.warn = never
		n.unanswered = append(n.unanswered, h.Lease)
	}
	if h.told() && !m.o.Revives && h.deadline.reached(now, 0) {
		m.release([]*Held[L]{h})
		return
	}
	if !h.beating() && h.next <= until {
		m.waiting.Push(m.urgency(h, now), 0, h, &h.place[byUrgency])
	}
	m.leases.Fix(&h.place[byDue], m.due(h))
}

// urgency orders the beats that wait for a call, the nearest deadline first. A holder that has been
// told has no deadline left to meet. Its lease counts as a whole timeout away, because many such
// leases must not stand before the others for ever.
func (m *Manager[L]) urgency(h *Held[L], now moment) int64 {
	if h.told() {
		return now.mono + int64(m.o.Timeout)
	}
	return h.deadline.mono
}

// launch starts calls for the beats that wait, as far as calls are free. It is called with the lock
// held.
func (m *Manager[L]) launch() {
	for m.waiting.Len() > 0 && m.calls < m.o.MaxCalls {
		m.calls++
		go m.caller(m.take())
	}
}
