package model

import (
	"fmt"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the search: which states were seen, the way to each of them, and where it stops.
// The tests call Explore. A model belongs to that one call, which runs in one goroutine, so nothing
// is locked. worker.go and environment.go give the steps, and property.go says what must hold.

// Config is one world to explore.
type Config struct {
	// Tx: the handler completes its job in a transaction of the store's database, with its effect
	// in it. External: it has an effect elsewhere. Both: first one, then the other, in either
	// order.
	Tx, External bool
	// Steps: the handler has two steps, and saves each under its claim. It may give the job back
	// between them.
	Steps bool
	// Limits: the job has a limiter, which may give it back before its work begins.
	Limits bool
	// Carries: a message that waits for longer than its queue keeps it is sent anew.
	Carries bool
	// Policies are the workers'.
	Policies [workers]dedupe.Policy
	// MaxAttempts is how often a handler may start.
	MaxAttempts uint8
	// Items is how many messages and letters there may be when a replay may add one,
	// 1 to 4; letters are always taken.
	Items int
	// Once: the producer does not send the job a second time.
	Once bool
	// Calm: nothing crashes and no lease dies while its owner lives; answers may still be lost.
	Calm bool
	// HandlersSucceed: no handler fails of itself.
	HandlersSucceed bool
	// Drains: workers are stopped at any time.
	Drains bool
	// LatePackets: a request may arrive after its sender has given it up.
	LatePackets bool
	// Redrive: the queue dead-letters messages by itself.
	Redrive bool
	// Forgets: an operator removes records that are not live.
	Forgets bool
	// Cancels: an operator cancels the job, at any time.
	Cancels bool
	// Retention: records expire while messages are left.
	Retention bool
	// Payloads: the second message has the same key and another payload, and fingerprints are
	// compared.
	Payloads bool
	// HoldsBack: what would be a letter stays in its queue. Its redrive, and an operator who
	// resolves what is parked, are the ways on.
	HoldsBack bool
	// LettersBare: no letter fits with its metadata.
	LettersBare bool
	// TellOld keeps apart messages that name an older failure and those that name none. No claim
	// can tell them apart, so it is needed only to watch what the letters say.
	TellOld bool
	// Without are the rules left out.
	Without []Rule
	// Watch are the properties looked at; none = all.
	Watch []Property
	// MaxStates ends an exploration that is larger than expected; 0 = 2 million.
	MaxStates int
	// Coverage, when given, counts the rows that decided.
	Coverage *Coverage
}

func (c *Config) counts() bool { return c.External }

// Report is what an exploration found.
type Report struct {
	States, Steps int
	// Pruned counts the steps that the bounds left out: each would have added a further equal
	// message.
	Pruned int
	// Broken is the first property found broken, Trace the shortest way there. Found tells that
	// there is one.
	Found  bool
	Broken Property
	Trace  []string
}

// model explores one Config.
type model struct {
	c     Config
	leave ruleSet
	watch propertySet
	alike bool // the workers
	olds  bool // a message of an older failure differs from one of none

	states  []state
	parents []int32
	index   map[state]int32
	edges   []edge
	pruned  int

	out    []successor
	broken propertySet // by the step being made
}

type edge struct{ from, to int32 }

type successor struct {
	who    int
	text   string
	fault  bool
	state  state
	broken propertySet
}

func (m *model) without(r Rule) bool { return m.leave.has(r) }

func (m *model) payloads() uint8 {
	if m.c.Payloads {
		return 2
	}
	return 1
}

// step notes a step that who may make.
func (m *model) step(who int, text string, to state) { m.put(who, text, false, to) }

// fault notes a step in which something goes wrong.
func (m *model) fault(who int, text string, to state) { m.put(who, text, true, to) }

func (m *model) put(who int, text string, fault bool, to state) {
	m.out = append(m.out, successor{who: who, text: text, fault: fault, state: to, broken: m.broken | m.check(&to)})
}

// from begins a step at s.
func (m *model) from(s *state) state {
	m.broken = 0
	return *s
}

// successors are all states that one step leads to.
func (m *model) successors(s *state) []successor {
	m.out = m.out[:0]
	for i := range s.w {
		m.worker(s, i)
	}
	m.environment(s)
	return m.out
}

// begin is where every exploration begins: the job is in the queue, and will be sent once more.
func (m *model) begin() state {
	var s state
	s.items[0] = item{place: inQueue}
	if !m.c.Once {
		s.items[1] = item{place: unsent}
	}
	if m.c.Payloads {
		s.items[1].payload = 1
	}
	return s.canonical(m.alike, m.olds)
}

// Explore makes every step from every state that can be reached, and stops at the first broken
// property.
func Explore(c Config) (Report, error) {
	m := &model{
		c: c, leave: setOf(c.Without...), watch: watching(c.Watch...),
		alike: c.Policies[0] == c.Policies[1], index: map[state]int32{},
	}
	m.olds = c.TellOld || c.Payloads || m.without(ReopenOwnFence) || m.without(LetterOfRecord) || m.without(FenceOutlivesRecord)
	if len(c.Watch) == 0 {
		m.watch = everything
	}
	if c.MaxStates == 0 {
		m.c.MaxStates = 2_000_000
	}
	if c.Items < 1 || c.Items > maxItems-workers {
		return Report{}, fmt.Errorf("model: Config.Items is %d, want 1 to %d", c.Items, maxItems-workers)
	}
	r := Report{}
	m.visit(m.begin(), -1)
	for at := int32(0); int(at) < len(m.states); at++ {
		s := m.states[at]
		for _, next := range m.successors(&s) {
			if bad := next.broken & m.watch; bad != 0 {
				r.Found, r.Broken = true, bad.first()
				r.Trace = append(m.trace(at), m.tell(&next))
				r.States, r.Pruned = len(m.states), m.pruned
				return r, nil
			}
			to := m.visit(next.state.canonical(m.alike, m.olds), at)
			if to == at {
				continue
			}
			r.Steps++
			if !next.fault {
				m.edges = append(m.edges, edge{at, to})
			}
		}
		if len(m.states) > m.c.MaxStates {
			return r, fmt.Errorf("model: more than %d states", m.c.MaxStates)
		}
	}
	r.States, r.Pruned = len(m.states), m.pruned
	if m.watch.has(DoneReachable) {
		if at := m.stuck(); at >= 0 {
			r.Found, r.Broken, r.Trace = true, DoneReachable, m.trace(at)
		}
	}
	return r, nil
}

func (s propertySet) first() Property {
	for p := range propertyCount {
		if s.has(p) {
			return p
		}
	}
	return propertyCount
}

func (m *model) visit(s state, from int32) int32 {
	if i, ok := m.index[s]; ok {
		return i
	}
	i := int32(len(m.states))
	m.index[s] = i
	m.states = append(m.states, s)
	m.parents = append(m.parents, from)
	return i
}
