package localstack

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/testserver"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

var pubSubBackend = backend{
	Backend: testgcp.PubSubBackend,
	ways:    []way{{how: "Docker", start: runPubSub}, {how: "host process", start: startPubSub}},
}

// A PubSubServer is a server of Google Pub/Sub's API that all tests of a run share: each has a
// project of its own there, from [PubSubServer.Project].
type PubSubServer struct {
	// Addr is its address, host:port: gRPC without TLS. Google's clients take it from the
	// variable PUBSUB_EMULATOR_HOST.
	Addr string
	// Version is the server's, such as "Pub/Sub emulator 0.8.20". It is "Pub/Sub emulator" where
	// the environment names one, which does not tell, and "Pub/Sub" for another server.
	Version string
	// Kind is "emulator" for Google's, else "pubsub": servers differ from Google's own, each in
	// its own way.
	Kind string
}

// PubSub returns a server of Pub/Sub's API. See the package comment for where it comes from, and
// for what happens where there is none. ONCEQ_BACKENDS=all does not ask for it, because it comes
// with the Google Cloud CLI, which few machines have; ONCEQ_BACKENDS=pubsub does.
func PubSub(t testing.TB) *PubSubServer {
	t.Helper()
	s := testgcp.OnPubSub(t, pubSubBackend.asked())
	return &PubSubServer{Addr: s.Addr, Version: s.Version, Kind: s.Kind}
}

// Project returns the id of a project that nobody has used, "onceq-…", of at most 30 letters,
// digits and hyphens. When the test ends, its subscriptions and topics are deleted.
func (s *PubSubServer) Project(t testing.TB) string {
	t.Helper()
	return (&testgcp.PubSub{Addr: s.Addr}).Project(t)
}

// servingEmulator waits for the first of the addresses where the back end is, and is Google's
// emulator.
func servingEmulator(ctx context.Context, addrs []string, limit time.Duration, b *testserver.Backend, name string) (string, error) {
	return firstOf(ctx, addrs, limit, func(ctx context.Context, addr string) error {
		version, err := b.Version(ctx, addr, "")
		if err == nil && !strings.HasPrefix(version, name) {
			err = fmt.Errorf("the server is %s, not the emulator that was started", version)
		}
		return err
	})
}

// servingPubSub waits for the first of the addresses where Google's emulator answers. Java's first
// call takes a second: it is made here, and not by a test that measures.
func servingPubSub(ctx context.Context, addrs []string, limit time.Duration) (string, error) {
	return servingEmulator(ctx, addrs, limit, &testgcp.PubSubBackend, testgcp.PubSubEmulator)
}
