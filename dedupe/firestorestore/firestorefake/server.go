package firestorefake

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq/internal/fakeserver"
)

// This file owns the Server: its beginning and its end, and the way of each call through the counts
// and the faults. Clients call it from many goroutines. mu guards all documents and transactions;
// the faults and the counts have locks of their own.

// Options tune a [Server]. The zero value is usable.
type Options struct {
	// Faults are in force from the beginning; see [Server.SetFaults].
	Faults []Fault
	// Seed makes what is random the same again. Default: a drawn one.
	Seed uint64
	// LockWait is how long a write waits for a document that a transaction holds. Default 2 s, as
	// the emulator does.
	LockWait time.Duration
	// Idle is how long a transaction stands without a call. Default a minute, as at the service.
	Idle time.Duration
}

// Server is a Firestore service in memory.
type Server struct {
	pb.UnimplementedFirestoreServer
	o       Options
	seed    uint64
	faults  fakeserver.Table[Fault]
	log     fakeserver.Log[struct{}]
	closing chan struct{}
	g       *grpc.Server
	once    sync.Once

	mu   sync.Mutex
	docs map[string]*document
	txs  map[string]*transaction
	last time.Time // the last commit's
	made int       // transactions
	// freed is closed, and made anew, when a lock is given back.
	freed chan struct{}
	// written and read are documents that were, as a bill counts them.
	written, read int
}

// New makes a server without documents; nil means the zero Options. Close it at the end.
func New(o *Options) *Server {
	if o == nil {
		o = &Options{}
	}
	s := &Server{
		o: *o, seed: cmp.Or(o.Seed, rand.Uint64(), 1), closing: make(chan struct{}),
		docs: map[string]*document{}, txs: map[string]*transaction{}, freed: make(chan struct{}),
	}
	s.o.LockWait = cmp.Or(o.LockWait, 2*time.Second)
	s.o.Idle = cmp.Or(o.Idle, time.Minute)
	s.faults.Rand = rand.New(rand.NewPCG(s.seed, 2))
	s.SetFaults(o.Faults...)
	s.g = grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxConcurrentStreams(100_000), grpc.WaitForHandlers(true))
	pb.RegisterFirestoreServer(s.g, s)
	return s
}

// Seed is [Options.Seed], or the one that was drawn in its place.
func (s *Server) Seed() uint64 { return s.seed }

// Serve serves gRPC on l, without TLS, until Close or an error of l. It closes l. After Close it
// returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Close ends the server, with the calls under way. Calling it again does nothing.
func (s *Server) Close() {
	s.once.Do(func() { close(s.closing) })
	s.g.Stop()
}

// Start makes a server and serves gRPC on a port of the loopback interface, until the test ends.
// address is for FIRESTORE_EMULATOR_HOST, which Google's clients read.
func Start(t testing.TB, o *Options) (s *Server, address string) {
	t.Helper()
	l := fakeserver.Listen(t, "firestorefake")
	s = New(o)
	fakeserver.Serve(t, "firestorefake", s, func() error { return s.Serve(l) })
	return s, l.Addr().String()
}

// Conn makes a server, and a connection to it without a network, until the test ends. Give it to
// clients as option.WithGRPCConn.
func Conn(t testing.TB, o *Options) (*Server, *grpc.ClientConn) {
	t.Helper()
	l := bufconn.Listen(64 << 10)
	s := New(o)
	conn, err := grpc.NewClient("passthrough:///firestorefake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatalf("firestorefake: %v", err)
	}
	fakeserver.Serve(t, "firestorefake", s, func() error { return s.Serve(l) })
	t.Cleanup(func() { _ = conn.Close() }) // before the server's end
	return s, conn
}

// Usage is what a bill counts, and the calls.
type Usage struct {
	// Calls are counted by method, also those that were not answered.
	Calls map[string]int
	// Writes and Reads are of documents. A write that was refused is none. What is not there when
	// it is read counts as a read.
	Writes, Reads int
}

// Usage is what came since the server was made, or since ResetUsage.
func (s *Server) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Calls: maps.Clone(s.log.Counts()), Writes: s.written, Reads: s.read}
}

// ResetUsage begins to count anew.
func (s *Server) ResetUsage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Reset()
	s.written, s.read = 0, 0
}

// call takes one call through the faults.
func call[R any](ctx context.Context, s *Server, method string, apply func(f *Fault) (R, error)) (R, error) {
	var none R
	s.log.Begin(method)
	f := s.faults.Pick(func(f *Fault) bool { return f.Method == "" || f.Method == method })
	if f == nil {
		return apply(&Fault{})
	}
	if !fakeserver.Pause(ctx, f.Delay, s.closing) {
		return none, status.FromContextError(ctx.Err()).Err()
	}
	if f.whole() && !f.Applied {
		return none, s.failure(ctx, f)
	}
	out, err := apply(f)
	switch {
	case !fakeserver.Pause(ctx, f.ReplyDelay, s.closing):
		return none, status.FromContextError(ctx.Err()).Err()
	case f.whole():
		return none, s.failure(ctx, f)
	}
	return out, err
}

// failure is the answer to a call that a fault lets fail as a whole.
func (s *Server) failure(ctx context.Context, f *Fault) error {
	if !f.Silence {
		return status.Error(f.Code, cmp.Or(f.Message, f.Code.String()))
	}
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.closing:
		return status.Error(codes.Unavailable, "The server is closing.")
	}
}

// BatchWrite is that of the API.
func (s *Server) BatchWrite(ctx context.Context, in *pb.BatchWriteRequest) (*pb.BatchWriteResponse, error) {
	return call(ctx, s, "BatchWrite", func(f *Fault) (*pb.BatchWriteResponse, error) { return s.batchWrite(in, f) })
}

// Commit is that of the API.
func (s *Server) Commit(ctx context.Context, in *pb.CommitRequest) (*pb.CommitResponse, error) {
	return call(ctx, s, "Commit", func(*Fault) (*pb.CommitResponse, error) { return s.commit(in) })
}

// BeginTransaction is that of the API.
func (s *Server) BeginTransaction(ctx context.Context, in *pb.BeginTransactionRequest) (*pb.BeginTransactionResponse, error) {
	return call(ctx, s, "BeginTransaction", func(*Fault) (*pb.BeginTransactionResponse, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &pb.BeginTransactionResponse{Transaction: []byte(s.begin(in.GetOptions()))}, nil
	})
}

// Rollback is that of the API.
func (s *Server) Rollback(ctx context.Context, in *pb.RollbackRequest) (*emptypb.Empty, error) {
	return call(ctx, s, "Rollback", func(*Fault) (*emptypb.Empty, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		tx, err := s.transaction(in.GetTransaction())
		if tx != nil && !tx.over {
			s.end(tx)
		}
		if tx != nil {
			err = nil
		}
		return &emptypb.Empty{}, err
	})
}

// BatchGetDocuments is that of the API.
func (s *Server) BatchGetDocuments(in *pb.BatchGetDocumentsRequest, out pb.Firestore_BatchGetDocumentsServer) error {
	answers, err := call(out.Context(), s, "BatchGetDocuments", func(*Fault) ([]*pb.BatchGetDocumentsResponse, error) {
		return s.batchGet(in)
	})
	for _, a := range answers {
		if err := out.Send(a); err != nil {
			return err
		}
	}
	return err
}

// RunQuery is that of the API.
func (s *Server) RunQuery(in *pb.RunQueryRequest, out pb.Firestore_RunQueryServer) error {
	answers, err := call(out.Context(), s, "RunQuery", func(*Fault) ([]*pb.RunQueryResponse, error) { return s.runQuery(in) })
	for _, a := range answers {
		if err := out.Send(a); err != nil {
			return err
		}
	}
	return err
}
