package pubsubfake

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/internal/heap"
	"github.com/onceq/onceq/internal/hits"
)

// This file owns the Server: its options, its beginning and its end, and the way of each call
// through log and faults. Tests and cmd/pubsubfake call it, from many goroutines. s.mu guards all
// topics and subscriptions with their messages, and what is declared below it. faults and log have
// locks of their own. New sets the other fields, which do not change later. wire.go serves gRPC.

// Options set up a server; the zero value is the service's behaviour, what it leaves to chance
// included.
type Options struct {
	// StrandCancelled lets a Pull whose caller went away go on until its end, as the service may:
	// what it finds is held, and nobody has it until the ack deadline. Off, it ends with its
	// caller.
	StrandCancelled bool
	// StaleAckIDs is what becomes of the ack ids of earlier deliveries while a later one is held,
	// on subscriptions without exactly-once delivery. Default StaleRandom.
	StaleAckIDs StaleAckIDs
	// Seed makes what is random play again: stale ack ids, and the rates of faults, for calls in
	// the same order. Default 0: the server draws one, which [Server.Seed] tells.
	Seed uint64
	// LogSize is how many calls [Server.Requests] remembers, and of how many messages of a
	// subscription [Server.Deliveries] tells. Default 10,000; negative means none. [Server.Counts]
	// counts all.
	LogSize int
	// Faults are those that the server begins with; see [Server.SetFaults].
	Faults []Fault
}

// Server is a Pub/Sub service in memory. It implements pubsubpb's PublisherServer and
// SubscriberServer, so that its methods can be called as they are, without a network. They may be
// called from many goroutines.
type Server struct {
	o      Options
	seed   uint64
	base   time.Time
	faults hits.Table[Fault]
	log    requestLog
	// closing is closed when the server drains: what waits ends.
	closing chan struct{}
	running sync.WaitGroup // goroutines of abandoned pulls
	wire    wire

	// mu holds all topics and subscriptions: a call is a few microseconds under it, and moving
	// messages to a dead-letter topic needs no order of locks.
	mu       sync.Mutex
	draining bool
	rnd      *rand.Rand
	topics   map[string]*topic
	subs     map[string]*subscription
	policies map[string]*policy
	ids      uint64              // the message id given last
	nonces   uint64              // the subscription's number given last
	deadline heap.Heap[*message] // held and delayed messages of all subscriptions, by when that ends
	woken    []*subscription     // got ready messages while somebody waits, in this stretch of work
	waiting  int                 // pulls that wait, and streams
	alarm    alarm
}

// New makes a server without topics. It listens nowhere: call its methods, or see
// [Server.Serve] for gRPC. It needs no goroutine; Close stops its timer.
func New(o Options) *Server {
	s := &Server{
		o: o, seed: cmp.Or(o.Seed, rand.Uint64(), 1), base: time.Now(), closing: make(chan struct{}),
		topics: map[string]*topic{}, subs: map[string]*subscription{}, policies: map[string]*policy{},
	}
	if s.o.LogSize == 0 {
		s.o.LogSize = 10_000
	}
	s.ids = 10_000_000_000_000_000 // message ids of the service are long numbers, too
	s.rnd = rand.New(rand.NewPCG(s.seed, 1))
	s.faults.Rand = rand.New(rand.NewPCG(s.seed, 2))
	s.log = requestLog{size: s.o.LogSize, counts: map[string]int{}}
	s.SetFaults(o.Faults...)
	return s
}

// Seed is [Options.Seed], or the one that was drawn in its place.
func (s *Server) Seed() uint64 { return s.seed }

// Drain answers the pulls that wait, with nothing, and lets none wait from now on; it ends
// streaming pulls. All else goes on.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		close(s.closing)
	}
}

// Close drains the server, stops its timer, ends what [Server.Serve] serves, and returns when no
// goroutine of the server runs any longer. Calling it again does nothing.
func (s *Server) Close() {
	s.Drain()
	s.wire.stop()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarm.stop()
}

func (s *Server) now() int64 { return int64(time.Since(s.base)) }

func (s *Server) time(at int64) time.Time { return s.base.Add(time.Duration(at)) }

// lock takes the server's lock and brings what is due up to date.
func (s *Server) lock() (now int64) {
	s.mu.Lock()
	now = s.now()
	s.expire(now)
	return now
}

// unlock gives the pulls that wait what has become ready, and lets go of the lock.
func (s *Server) unlock(now int64) {
	for len(s.woken) > 0 {
		woken := s.woken
		s.woken = nil
		for _, q := range woken {
			q.woken = false
			q.serve(now)
		}
	}
	s.setAlarm(now)
	s.mu.Unlock()
}

// expire ends the holds and delays that are over.
func (s *Server) expire(now int64) {
	for s.deadline.Len() > 0 && s.deadline.First().Key <= now {
		at, m := s.deadline.First().Key, s.deadline.First().Item
		s.deadline.Remove(&m.place)
		if m.state == held {
			m.q.fail(m, at)
		} else {
			m.q.show(m)
		}
	}
}

// alarm is the server's timer: it rings when a hold or a delay ends while a pull waits. Nobody
// else needs it, every call looks for itself.
type alarm struct {
	timer *time.Timer
	due   int64
	set   bool
}

func (a *alarm) stop() {
	if a.set {
		a.timer.Stop()
		a.set = false
	}
}

// setAlarm keeps the alarm at the earliest end of a hold. One that rings too early only sets
// itself anew: cheaper than moving it with every ack.
func (s *Server) setAlarm(now int64) {
	a := &s.alarm
	if s.deadline.Len() == 0 || s.waiting == 0 || s.draining {
		a.stop()
		return
	}
	due := s.deadline.First().Key
	if a.set && a.due <= due {
		return
	}
	a.stop()
	a.set, a.due = true, due
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Duration(due-now), s.ring)
		return
	}
	a.timer.Reset(time.Duration(due - now))
}

func (s *Server) ring() {
	now := s.lock()
	s.alarm.set = false
	s.unlock(now)
}

// call takes one call through the log and the faults.
func call[R any](ctx context.Context, s *Server, r Request, apply func(f *Fault) (R, error)) (R, error) {
	var none R
	r.At = time.Now()
	s.log.begin(r.Method)
	f := s.pick(&r)
	r.Faulty = f != &noFault
	out, err := none, error(nil)
	switch {
	case !hits.Pause(ctx, f.Delay, s.closing):
		err = status.FromContextError(ctx.Err()).Err()
	case f.whole() && !f.Applied:
		err = s.failure(ctx, f)
	default:
		out, err = apply(f)
		switch {
		case !hits.Pause(ctx, f.ReplyDelay, s.closing):
			out, err = none, status.FromContextError(ctx.Err()).Err()
		case f.whole():
			out, err = none, s.failure(ctx, f)
		}
	}
	if p, ok := any(out).(*pulled); ok && p != nil {
		r.Messages = len(p.messages)
	}
	r.Code = status.Code(err)
	s.log.end(&r)
	return out, err
}

// failure is the answer to a call that a fault lets fail as a whole.
func (s *Server) failure(ctx context.Context, f *Fault) error {
	if f.Silence {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.closing:
			return status.Error(codes.Unavailable, "The server is closing.")
		}
	}
	return status.Error(f.Code, cmp.Or(f.Message, texts[f.Code], f.Code.String()))
}
