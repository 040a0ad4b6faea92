package sqsfake

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

// This file owns the Server: its start and its end, its faults and its log. Tests and cmd/sqsfake
// call it, from many goroutines. All queues are in its account, under a lock of their own, and so
// are faults and log. New and Start set the fields, which do not change later. transport.go does
// the requests.

// Server is an SQS endpoint. It is an [http.Handler], and reachable without a socket through
// [Server.Client]. Its methods may be called from many goroutines.
type Server struct {
	// URL is where SDKs find the server: their endpoint. Before [Start] it is a name that
	// only [Server.Client] can reach.
	URL string

	a      *account
	faults fakeserver.Table[Fault]
	log    fakeserver.Log[Request]
	stop   func() // the HTTP server's, of Start
	// control tells about the server and takes faults, for tests in other processes and languages.
	control http.Handler
}

// New makes a server without queues; nil means the defaults. It listens nowhere: hand it to
// an [http.Server], or use [Server.Client]. It needs no goroutine; Close stops its timers.
func New(o *Options) *Server {
	if o == nil {
		o = &Options{}
	}
	a := &account{
		o: *o, seed: cmp.Or(o.Seed, rand.Uint64(), 1), base: time.Now(), nonces: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		closing: make(chan struct{}), queues: map[string]*queue{}, deletions: map[string]time.Time{},
	}
	a.o.Account = cmp.Or(o.Account, "000000000000")
	a.o.Region = cmp.Or(o.Region, "us-east-1")
	if o.MaxInFlight <= 0 {
		a.o.MaxInFlight = 120_000
	}
	a.o.LogSize = cmp.Or(o.LogSize, fakeserver.DefaultLogSize)
	s := &Server{URL: "http://sqsfake.test", a: a}
	s.log.Size = a.o.LogSize
	s.faults.Rand = drawing(a.seed, "")
	s.SetFaults(o.Faults...)
	s.control = fakeserver.Control("sqsfake", s, s.putFaults)
	return s
}

// Start makes a server and serves it on a port of the loopback interface, until the test
// ends. Its address is in URL.
func Start(t testing.TB, o *Options) *Server {
	t.Helper()
	l := fakeserver.Listen(t, "sqsfake")
	s := New(o)
	s.URL = "http://" + l.Addr().String()
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.stop = func() { _ = h.Close() }
	fakeserver.Serve(t, "sqsfake", s, func() error {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return s
}

// CreateQueue makes a queue, as the API's CreateQueue does, and tells its URL. A name that
// ends in .fifo makes a FIFO queue.
func (s *Server) CreateQueue(name string, attributes map[string]string) (queueURL string, err error) {
	given := make(map[string]string, len(attributes)+1)
	if strings.HasSuffix(name, ".fifo") {
		given["FifoQueue"] = "true"
	}
	maps.Copy(given, attributes)
	if wrong := s.a.create(name, given, nil); wrong != nil {
		return "", wrong
	}
	return s.URL + "/" + s.a.o.Account + "/" + name, nil
}

// Drain answers the receives that wait, with nothing, and lets none wait from now on. All
// else goes on.
func (s *Server) Drain() {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if !s.a.draining {
		s.a.draining = true
		close(s.a.closing)
	}
}

// Close drains the server and stops its timers and, after [Start], its listener. Calling it
// again does nothing.
func (s *Server) Close() {
	s.Drain()
	if s.stop != nil {
		s.stop()
	}
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	for _, q := range s.a.queues {
		q.stop()
	}
}

// SetFaults replaces the server's faults; without an argument there are none. Counting
// begins anew. It may be called at any time. A fault with an Action that the API does not
// have would never be seen: it panics.
func (s *Server) SetFaults(fs ...Fault) {
	if err := checkFaults(fs); err != nil {
		panic(err)
	}
	s.faults.Set(fs, (*Fault).when)
}

func checkFaults(fs []Fault) error {
	for i, f := range fs {
		if f.Action != "" && actions[f.Action] == nil {
			return fmt.Errorf("sqsfake: fault %d: SQS has no action %q", i, f.Action)
		}
	}
	return nil
}

// pick finds the fault of a call.
func (s *Server) pick(r *Request) *Fault {
	f := s.faults.Pick(func(f *Fault) bool {
		return (f.Action == "" || f.Action == r.Action) && (f.Queue == "" || f.Queue == r.Queue) &&
			(f.When == nil || f.When(*r))
	})
	if f == nil {
		return &noFault
	}
	return f
}

// Counts tells how many requests came, by action; those that failed count too, and those
// that still wait. The requests of one message can be told from the difference of two.
func (s *Server) Counts() map[string]int { return s.log.Counts() }

// Requests are the last requests that were answered, in the order of the answers: at most
// [Options.LogSize].
func (s *Server) Requests() []Request { return s.log.Kept() }

// ResetLog forgets the requests and sets the counts to zero.
func (s *Server) ResetLog() { s.log.Reset() }

// Seed is [Options.Seed], or the one that was drawn in its place.
func (s *Server) Seed() uint64 { return s.a.seed }
