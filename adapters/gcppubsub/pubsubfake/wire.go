package pubsubfake

import (
	"context"
	"errors"
	"net"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc"

	"github.com/onceq/onceq/internal/fakeserver"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns gRPC: the server listens for other processes and for clients that want a
// connection. cmd/pubsubfake and Start call Serve, each in a goroutine of its own; wire.mu guards
// the listeners' servers.

// maxRequest is more than any request that the service takes, so that larger ones get its error.
const maxRequest = 64 << 20

// remote is the server as gRPC calls it: nobody else has the messages that come and go, so that
// they need no copy.
type remote struct{ *Server }

// Publish is that of the server.
func (r remote) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return r.publish(ctx, in, func(m *pubsubpb.PubsubMessage) *pubsubpb.PubsubMessage { return m })
}

// Pull is that of the server.
func (r remote) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	p, err := r.pull(ctx, in)
	if err != nil {
		return nil, err
	}
	return &pubsubpb.PullResponse{ReceivedMessages: p.shared()}, nil
}

// Serve serves gRPC on l, without TLS and without credentials, until Close or an error of l. It
// closes l. After Close it returns nil.
func (s *Server) Serve(l net.Listener) error {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(100_000), grpc.WaitForHandlers(true))
	pubsubpb.RegisterPublisherServer(g, remote{s})
	pubsubpb.RegisterSubscriberServer(g, remote{s})
	iampb.RegisterIAMPolicyServer(g, s)
	if !s.wire.add(g) {
		return l.Close()
	}
	defer s.wire.remove(g)
	if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Start makes a server and serves gRPC on a port of the loopback interface, until the test ends.
// address is for PUBSUB_EMULATOR_HOST, which Google's clients read, or for grpc.NewClient with
// insecure credentials.
func Start(t testing.TB, o *Options) (s *Server, address string) {
	t.Helper()
	l := fakeserver.Listen(t, "pubsubfake")
	s = New(o)
	fakeserver.Serve(t, "pubsubfake", s, func() error { return s.Serve(l) })
	return s, l.Addr().String()
}
