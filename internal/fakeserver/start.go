package fakeserver

import (
	"context"
	"net"
	"testing"
)

// Listen listens on a port of the loopback interface, for a test; name is the server's.
func Listen(t testing.TB, name string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return l
}

// Serve runs serve, which serves s, until the test ends. After Close it must return, with nil. If
// the test has failed it tells the seed.
func Serve(t testing.TB, name string, s interface {
	Seed() uint64
	Close()
}, serve func() error,
) {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: what was random plays again with Options.Seed %d", name, s.Seed())
		}
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}
