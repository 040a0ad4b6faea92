//go:build unix

package chaos

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/onceq/onceq/internal/child"
)

// claim is one, by its key and its fence.
type claim struct {
	key   string
	fence uint64
}

// log is what all processes have said.
type log struct {
	mu       sync.Mutex
	began    map[claim]string // who has run a handler under it
	lastOf   map[string]uint64
	started  int              // handlers, for progress
	refused  map[claim]string // whose transaction the store has refused
	outcomes map[string]int
	done     map[string]uint64 // the fence under which a key's job was reported done
	parkings map[string]bool   // keys that a claim found parked, or made so
	forgiven string            // what keys begin with of which the store has forgotten something; "" = none
	wrong    []string
}

func newLog() *log {
	return &log{
		began: map[claim]string{}, lastOf: map[string]uint64{}, refused: map[claim]string{}, outcomes: map[string]int{}, done: map[string]uint64{}, parkings: map[string]bool{},
	}
}

// forgive takes back what was said of the keys that begin so, and is no longer true.
func (l *log) forgive(prefix string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgiven = prefix
	l.wrong = nil // the rounds before have looked at theirs
}

func (l *log) forgives(key string) bool {
	return l.forgiven != "" && strings.HasPrefix(key, l.forgiven)
}

// process is one life of a worker.
type process struct {
	*child.Child
	name string
	log  *log
	// rough: it was started in a trouble, and may find that it cannot work.
	rough bool
	open  map[claim]bool // its handlers that run, and whether they pay already; guarded by the log's mutex
}

// start runs a worker, at a place of the crew.
func (s *scene) start(place int) *process {
	t := s.T
	t.Helper()
	s.lives++
	a := s.through(place)
	a.Name = fmt.Sprintf("worker %d", s.lives)
	p := &process{name: a.Name, log: s.log, rough: s.trouble != nil && s.trouble.on.Load(), open: map[claim]bool{}}
	p.Child = begin(t, self(roleVariable, a), p.hear)
	return p
}

// hear takes a line of the process.
func (p *process) hear(text string) {
	l := p.log
	l.mu.Lock()
	defer l.mu.Unlock()
	words := strings.Fields(text)
	if len(words) < 3 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s said %q", p.name, text))
		return
	}
	fence, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		l.wrong = append(l.wrong, fmt.Sprintf("%s said %q", p.name, text))
	}
	c := claim{words[1], fence}
	switch words[0] {
	case lineBegan:
		if other, known := l.began[c]; known && !l.forgives(c.key) {
			l.wrong = append(l.wrong, fmt.Sprintf("the handler of %s ran twice under the fence %d: in %s and in %s", c.key, c.fence, other, p.name))
		}
		l.began[c] = p.name
		l.lastOf[c.key] = max(l.lastOf[c.key], fence)
		l.started++
		p.open[c] = false
	case linePays:
		p.open[c] = true
	case lineReturned:
		delete(p.open, c)
	case lineRefused:
		l.refused[c] = p.name
	case lineEnded:
		outcome := words[len(words)-1]
		l.outcomes[outcome]++
		if other, known := l.done[c.key]; outcome == "done" && known && !l.forgives(c.key) {
			l.wrong = append(l.wrong, fmt.Sprintf("%s was done under the fence %d, and then under %d in %s", c.key, other, c.fence, p.name))
		} else if outcome == "done" {
			l.done[c.key] = c.fence
		}
		if outcome == "already-parked" || outcome == "parked" {
			l.parkings[c.key] = true
		}
	}
}

// running are the claims of the handlers that run in the process.
func (p *process) running() (cs []claim) {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	for c := range p.open {
		cs = append(cs, c)
	}
	return cs
}

// waiting counts the handlers of the process that have not begun to pay.
func (p *process) waiting() (n int) {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	for _, pays := range p.open {
		if !pays {
			n++
		}
	}
	return n
}

// taken counts those of the claims that others have taken since.
func (l *log) taken(cs []claim) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cs {
		if l.lastOf[c.key] > c.fence || l.parkings[c.key] {
			n++
		}
	}
	return n
}

// refusals counts those of the claims of which the store has refused a transaction.
func (l *log) refusals(cs []claim) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cs {
		if _, ok := l.refused[c]; ok {
			n++
		}
	}
	return n
}

// last is the highest fence under which a handler of the key has begun; 0 = none has.
func (l *log) last(key string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastOf[key]
}

// owner is the process whose handler of the key has begun last.
func (l *log) owner(key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began[claim{key, l.lastOf[key]}]
}

func (l *log) progress() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started
}
