package localstack

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/testserver/testgcp"
)

var firestoreBackend = backend{
	Backend: testgcp.FirestoreBackend,
	ways:    []way{{how: "Docker", start: runFirestore}, {how: "host process", start: startFirestore}},
}

// A FirestoreServer is a server of Firestore's API that all tests of a run share: each has a
// project of its own there, from [FirestoreServer.Project].
type FirestoreServer struct {
	// Addr is its address, host:port: gRPC without TLS. Google's clients take it from the
	// variable FIRESTORE_EMULATOR_HOST.
	Addr string
	// Version is the server's, such as "Firestore emulator 1.19.9". It is "Firestore emulator"
	// where the environment names one, which does not tell, and "Firestore" for another server.
	Version string
	// Kind is "emulator" for Google's, else "firestore".
	Kind string
}

// Firestore returns a server of Firestore's API. See the package comment for where it comes from,
// and for what happens where there is none. ONCEQ_BACKENDS=all does not ask for it, because it
// comes with the Google Cloud CLI, which few machines have; ONCEQ_BACKENDS=firestore does.
func Firestore(t testing.TB) *FirestoreServer {
	t.Helper()
	s := testgcp.OnFirestore(t, firestoreBackend.asked())
	return &FirestoreServer{Addr: s.Addr, Version: s.Version, Kind: s.Kind}
}

// Project returns the id of a project that nobody has used, "onceq-…", of at most 30 letters,
// digits and hyphens. When the test ends, the emulator forgets the documents of its database
// (default).
func (s *FirestoreServer) Project(t testing.TB) string {
	t.Helper()
	return (&testgcp.Firestore{Addr: s.Addr, Kind: s.Kind}).Project(t)
}

// servingFirestore is servingPubSub for Firestore's emulator.
func servingFirestore(ctx context.Context, addrs []string, limit time.Duration) (string, error) {
	return servingEmulator(ctx, addrs, limit, &testgcp.FirestoreBackend, testgcp.FirestoreEmulator)
}
