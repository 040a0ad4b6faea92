package pubsubfake

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceq/onceq/internal/fakeserver"
)

// This file owns the Server: its beginning and its end, and the way of each call through log and
// faults. Tests and cmd/pubsubfake call it, from many goroutines. The service's lock guards all
// topics and subscriptions with their messages; faults and log have locks of their own. New sets
// the fields, which do not change later. wire.go serves gRPC.

// Server is a Pub/Sub service in memory. It implements pubsubpb's PublisherServer and
// SubscriberServer, so that its methods can be called as they are, without a network. They may be
// called from many goroutines.
type Server struct {
	*service
	seed   uint64
	faults fakeserver.Table[Fault]
	log    fakeserver.Log[Request]
	wire   wire
}

// New makes a server without topics; nil means the zero Options. It listens nowhere: call its
// methods, or see [Server.Serve] for gRPC. It needs no goroutine; Close stops its timer.
func New(o *Options) *Server {
	if o == nil {
		o = &Options{}
	}
	s := &Server{
		service: &service{
			o: *o, base: time.Now(), closing: make(chan struct{}),
			ids:    10_000_000_000_000_000, // message ids of the service are long numbers, too
			topics: map[string]*topic{}, subs: map[string]*subscription{}, policies: map[string]*policy{},
		},
		seed: cmp.Or(o.Seed, rand.Uint64(), 1),
	}
	s.o.LogSize = cmp.Or(o.LogSize, fakeserver.DefaultLogSize)
	s.rnd = rand.New(rand.NewPCG(s.seed, 1))
	s.faults.Rand = rand.New(rand.NewPCG(s.seed, 2))
	s.log.Size = s.o.LogSize
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
	s.alarm.Stop()
}

// call takes one call through the log and the faults.
func call[R any](ctx context.Context, s *Server, r Request, apply func(f *Fault) (R, error)) (R, error) {
	var none R
	r.At = time.Now()
	s.log.Begin(r.Method)
	f := s.pick(&r)
	r.Faulty = f != &noFault
	out, err := none, error(nil)
	switch {
	case !fakeserver.Pause(ctx, f.Delay, s.closing):
		err = status.FromContextError(ctx.Err()).Err()
	case f.whole() && !f.Applied:
		err = s.failure(ctx, f)
	default:
		out, err = apply(f)
		switch {
		case !fakeserver.Pause(ctx, f.ReplyDelay, s.closing):
			out, err = none, status.FromContextError(ctx.Err()).Err()
		case f.whole():
			out, err = none, s.failure(ctx, f)
		}
	}
	if p, ok := any(out).(*pulled); ok && p != nil {
		r.Messages = len(p.messages)
	}
	r.Code = status.Code(err)
	r.Took = time.Since(r.At)
	s.log.End(r)
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

// SetFaults replaces the server's faults; without an argument there are none. Counting
// begins anew. It may be called at any time. A fault with a Method that the API does not
// have would never be seen: it panics.
func (s *Server) SetFaults(fs ...Fault) {
	if err := s.setFaults(fs); err != nil {
		panic(err)
	}
}

func (s *Server) setFaults(fs []Fault) error {
	for i, f := range fs {
		if f.Method != "" && !methods[f.Method] {
			return fmt.Errorf("pubsubfake: fault %d: Pub/Sub has no method %q", i, f.Method)
		}
	}
	s.faults.Set(fs, (*Fault).when)
	return nil
}

// pick finds the fault of a call.
func (s *Server) pick(r *Request) *Fault {
	f := s.faults.Pick(func(f *Fault) bool {
		return (f.Method == "" || f.Method == r.Method) && (f.Resource == "" || f.Resource == r.Resource) &&
			(f.When == nil || f.When(*r))
	})
	if f == nil {
		return &noFault
	}
	return f
}
