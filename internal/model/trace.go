package model

import (
	"fmt"
	"slices"
	"strings"
)

// stuck is the first state from which no steps without a fault lead to done; -1 = there is none.
func (m *model) stuck() int32 {
	begins := make([]int32, len(m.states)+1) // of each state's part of sources
	for _, e := range m.edges {
		begins[e.to+1]++
	}
	for i := range m.states {
		begins[i+1] += begins[i]
	}
	sources := make([]int32, len(m.edges))
	fill := slices.Clone(begins)
	for _, e := range m.edges {
		sources[fill[e.to]] = e.from
		fill[e.to]++
	}
	reaches := make([]bool, len(m.states))
	var queue []int32
	for i := range m.states {
		if m.states[i].ghost.done != 0 || m.states[i].ghost.cancelled {
			reaches[i] = true
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range sources[begins[at]:begins[at+1]] {
			if !reaches[from] {
				reaches[from] = true
				queue = append(queue, from)
			}
		}
	}
	return int32(slices.Index(reaches, false))
}

// trace tells the steps of the way on which a state was first reached. The canonical states
// exchange workers; the trace does not.
func (m *model) trace(to int32) (lines []string) {
	var path []int32
	for at := to; at >= 0; at = m.parents[at] {
		path = append(path, at)
	}
	slices.Reverse(path)
	s := m.states[path[0]]
	for _, at := range path[1:] {
		for _, next := range m.successors(&s) {
			if next.state.canonical(m.alike, m.olds) == m.states[at] {
				lines = append(lines, m.tell(&next))
				s = next.state
				s.sortItems()
				s.merge()
				break
			}
		}
	}
	return lines
}

func (m *model) tell(n *successor) string {
	var b strings.Builder
	if n.who >= 0 {
		fmt.Fprintf(&b, "worker %d %s", n.who+1, n.text)
	} else {
		b.WriteString(n.text)
	}
	fmt.Fprintf(&b, "  [%s]", n.state.String())
	return b.String()
}

// String is the record, the transaction and the messages in short.
func (s *state) String() string {
	var b strings.Builder
	b.WriteString(s.rec.status.String())
	if s.rec.status != 0 {
		switch s.rec.token {
		case nobodys:
		case packets:
			b.WriteString(" by the late packet")
		default:
			fmt.Fprintf(&b, " by %d", s.rec.token)
		}
		flag(&b, s.rec.dead, " dead")
		flag(&b, s.rec.started, " started")
		flag(&b, s.rec.expired, " expired")
		fmt.Fprintf(&b, " attempt %d", s.rec.attempt)
	}
	flag(&b, s.tx.phase != noTx, ", locked")
	for _, it := range s.items {
		if it.place == nowhere {
			continue
		}
		b.WriteString("; " + [...]string{"", "unsent", "message", "letter"}[it.place])
		b.WriteString([...]string{"", " of an older failure", " of the record's fence", ""}[it.fence])
		flag(&b, it.payload != 0, " with another payload")
		flag(&b, it.sent, ", replayed")
	}
	return b.String()
}

func flag(b *strings.Builder, set bool, text string) {
	if set {
		b.WriteString(text)
	}
}
