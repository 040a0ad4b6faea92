package testgcp

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/testserver"
)

// FirestoreBackend is Firestore, for programs that start none.
var FirestoreBackend = testserver.Backend{Name: "firestore", Version: firestoreVersion}

// FirestoreEmulator begins the version of Google's emulator.
const FirestoreEmulator = "Firestore emulator"

// A Firestore is a server of Firestore's API that all tests of a run share: each has a project of
// its own there, from [Firestore.Project].
type Firestore struct {
	// Addr is its address, host:port, as Google's clients want it in FIRESTORE_EMULATOR_HOST: gRPC
	// without TLS.
	Addr string
	// Version is the server's, such as "Firestore emulator 1.19.9". It is "Firestore emulator"
	// where the environment names one, which does not tell, and "Firestore" for another server.
	Version string
	// Kind is "emulator" for Google's, else "firestore".
	Kind string
}

// NewFirestore returns the server.
func NewFirestore(t testing.TB) *Firestore {
	t.Helper()
	return OnFirestore(t, &FirestoreBackend)
}

// OnFirestore is NewFirestore on what the back end b finds.
func OnFirestore(t testing.TB, b *testserver.Backend) *Firestore {
	t.Helper()
	e := b.Get(t, "")
	s := &Firestore{Addr: e.URL, Version: e.Version, Kind: "firestore"}
	if strings.HasPrefix(e.Version, FirestoreEmulator) {
		s.Kind = "emulator"
	}
	return s
}

// Project returns the id of a project that nobody has used, "onceq-…", for databases of the test's
// own: the emulator has each that is named. When the test ends, the emulator forgets the documents
// of its database (default), because it keeps all in memory.
func (s *Firestore) Project(t testing.TB) string {
	t.Helper()
	id := projectID(t.Name())
	if s.Kind != "emulator" {
		return id
	}
	t.Cleanup(func() {
		// the test's own context has ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		url := fmt.Sprintf("http://%s/emulator/v1/projects/%s/databases/(default)/documents", s.Addr, id)
		if _, err := browse(ctx, http.MethodDelete, url); err != nil {
			t.Errorf("backend firestore: deleting what the test made: %v", err)
		}
	})
	return id
}

// firestoreVersion asks the server at the address what it is, and whether it serves Firestore.
func firestoreVersion(ctx context.Context, addr, _ string) (string, error) {
	return serves(ctx, addr, "google.firestore.v1.Firestore/ListCollectionIds",
		"projects/onceq-start/databases/(default)/documents", FirestoreEmulator, "Firestore")
}
