package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// server is a mail server in memory. It sends what it is handed as often as it is handed over, unless it takes
// idempotency keys.
type server struct {
	keyed bool

	mu     sync.Mutex
	log    []entry           // what it has sent
	faults map[string]string // by subject, for the first try
}

type entry struct{ id, subject string }

func newServer(keyed bool) *server {
	return &server{keyed: keyed, faults: map[string]string{"invoice": "reset", "reminder": "silent", "ticket": "refuses"}}
}

// refusal is what the server itself answers: the mail was not taken.
type refusal struct{ reply string }

func (r *refusal) Error() string { return "the mail server answered " + r.reply }

// send hands a mail over. When no answer comes the caller cannot tell whether the mail was taken.
func (s *server) send(ctx context.Context, id string, m mail) error {
	s.mu.Lock()
	fault := s.faults[m.Subject]
	delete(s.faults, m.Subject)
	known := s.keyed && slices.ContainsFunc(s.log, func(e entry) bool { return e.id == id })
	if (fault == "" || fault == "reset") && !known {
		s.log = append(s.log, entry{id, m.Subject})
	}
	s.mu.Unlock()
	switch fault {
	case "refuses":
		return &refusal{"451 try again later"}
	case "reset":
		return errors.New("connection reset by peer")
	case "silent":
		<-ctx.Done()
		return fmt.Errorf("no answer from the mail server: %w", ctx.Err())
	}
	return nil
}

// sent looks into the server's log.
func (s *server) sent(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.log, func(e entry) bool { return e.id == id })
}

// count is how often the mail with the subject was sent.
func (s *server) count(subject string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.log {
		if e.subject == subject {
			n++
		}
	}
	return n
}

func (s *server) report(out io.Writer) {
	var counts []string
	for _, subject := range []string{"welcome", "invoice", "reminder", "ticket"} {
		c := fmt.Sprintf("%s %d", subject, s.count(subject))
		if s.count(subject) > 1 {
			c += " (TWICE!)"
		}
		counts = append(counts, c)
	}
	fmt.Fprintln(out, "  sent:", strings.Join(counts, ", "))
}
