package sqsfake

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/hits"
)

// This file owns the Server: its options, its start and its end. Tests and cmd/sqsfake call it,
// from many goroutines. s.mu guards all queues, what is declared below it, and the draws of nonces.
// faults and log have locks of their own. New and Start set the other fields, which do not change
// later. transport.go does the requests.

// Options set up a server; the zero value is AWS's behaviour, what AWS leaves to chance included.
type Options struct {
	// Account is the account id in queue URLs and ARNs. Default 000000000000.
	Account string
	// Region is the region in ARNs. Default us-east-1.
	Region string
	// MaxInFlight is how many messages of one queue may be in flight. Default and AWS's
	// limit 120,000; lower it to see what happens there.
	MaxInFlight int
	// ReportLostLeases answers a ChangeMessageVisibility that comes after the timeout with
	// MessageNotInflight. AWS answers OK and does nothing, so that nobody notices: switch it
	// on to find the callers who extend too late.
	ReportLostLeases bool
	// StrandCancelled lets a long poll whose caller went away go on until its end, as AWS
	// does: what it finds is in flight, and nobody has it. Off, it ends with its caller.
	StrandCancelled bool
	// RecreateAtOnce allows a queue to be created within 60 seconds of deleting one of the
	// same name. AWS refuses that with QueueDeletedRecently.
	RecreateAtOnce bool
	// StaleHandles is what becomes of receipt handles of earlier receives on standard queues.
	// Default StaleRandom.
	StaleHandles StaleHandles
	// ShortPolls is what a receive that does not wait brings from a standard queue. Default
	// ShortPollsSampled.
	ShortPolls ShortPolls
	// Seed makes what is random play again: stale handles, short polls, the order of a batch's
	// answers, the rates of faults. Each queue draws for itself, in the order of its calls.
	// Default 0: the server draws one, which [Server.Seed] tells, and [Start] logs when the test
	// has failed.
	Seed uint64
	// LogSize is how many requests [Server.Requests] remembers. Default 10,000; negative
	// means none. [Server.Counts] counts all.
	LogSize int
	// Faults are those that the server begins with; see [Server.SetFaults].
	Faults []Fault
}

// Server is an SQS endpoint. It is an [http.Handler], and reachable without a socket through
// [Server.Client]. Its methods may be called from many goroutines.
type Server struct {
	// URL is where SDKs find the server: their endpoint. Before [Start] it is a name that
	// only [Server.Client] can reach.
	URL string

	o      Options
	seed   uint64
	base   time.Time
	nonces *rand.Rand
	faults hits.Table[Fault]
	log    requestLog
	// closing is closed when the server drains: what waits ends.
	closing chan struct{}
	stop    func() // the HTTP server's, of Start

	// mu holds all queues: a call is a few microseconds under it, and moving messages
	// between queues needs no order of locks.
	mu        sync.Mutex
	draining  bool
	queues    map[string]*queue
	deletions map[string]time.Time
	sequence  uint64
	touched   []*queue // got messages from others in this stretch of work
}

// New makes a server without queues; nil means the defaults. It listens nowhere: hand it to
// an [http.Server], or use [Server.Client]. It needs no goroutine; Close stops its timers.
func New(o *Options) *Server {
	if o == nil {
		o = &Options{}
	}
	s := &Server{
		URL: "http://sqsfake.test", o: *o, seed: cmp.Or(o.Seed, rand.Uint64(), 1), base: time.Now(), nonces: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		closing: make(chan struct{}), queues: map[string]*queue{}, deletions: map[string]time.Time{},
	}
	if s.o.Account == "" {
		s.o.Account = "000000000000"
	}
	if s.o.Region == "" {
		s.o.Region = "us-east-1"
	}
	if s.o.MaxInFlight <= 0 {
		s.o.MaxInFlight = 120_000
	}
	if s.o.LogSize == 0 {
		s.o.LogSize = 10_000
	}
	s.log = requestLog{size: s.o.LogSize, counts: map[string]int{}}
	s.faults.Rand = s.drawing("")
	s.SetFaults(o.Faults...)
	return s
}

// Start makes a server and serves it on a port of the loopback interface, until the test
// ends. Its address is in URL.
func Start(t testing.TB, o *Options) *Server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("sqsfake: %v", err)
	}
	s := New(o)
	s.URL = "http://" + l.Addr().String()
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.stop = func() { _ = h.Close() }
	go func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("sqsfake: %v", err)
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sqsfake: what was random plays again with Options.Seed %d", s.seed)
		}
		s.Close()
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
	if wrong := s.create(name, given, nil); wrong != nil {
		return "", wrong
	}
	return s.URL + "/" + s.o.Account + "/" + name, nil
}

// Drain answers the receives that wait, with nothing, and lets none wait from now on. All
// else goes on.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		close(s.closing)
	}
}

// Close drains the server and stops its timers and, after [Start], its listener. Calling it
// again does nothing.
func (s *Server) Close() {
	s.Drain()
	if s.stop != nil {
		s.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.stop()
	}
}

func (s *Server) now() int64 { return int64(time.Since(s.base)) }

// timestamp is a time as messages tell it: milliseconds since 1970.
func (s *Server) timestamp(at int64) string {
	return strconv.FormatInt(s.base.Add(time.Duration(at)).UnixMilli(), 10)
}
