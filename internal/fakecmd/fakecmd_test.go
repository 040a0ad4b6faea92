package fakecmd_test

import (
	"testing"

	"github.com/onceq/onceq/internal/fakecmd"
)

// A server in a container listens on all addresses, none of which is one to call.
func TestReachable(t *testing.T) {
	for listening, want := range map[string]string{
		"[::]:9324": "localhost:9324", "0.0.0.0:9324": "localhost:9324", "127.0.0.1:9324": "127.0.0.1:9324", "[::1]:9324": "[::1]:9324",
	} {
		if got := fakecmd.Reachable(listening); got != want {
			t.Errorf("%s: %s, want %s", listening, got, want)
		}
	}
}
