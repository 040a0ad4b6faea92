package cli

import (
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/must"
)

// A stranger is a server that a stranger's file names. It counts who calls, and answers nobody.
type stranger struct {
	net.Listener
	calls atomic.Int64
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	s := &stranger{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.calls.Add(1)
			_ = c.Close()
		}
	}()
	return s
}

// called is how many have called by now. Calls are taken in their order, so the last is our own.
func (s *stranger) called(t *testing.T) int64 {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Read(make([]byte, 1)) // until it was taken
	_ = c.Close()
	return s.calls.Add(-1)
}

// TestFileOfTheFolder: a file that came with the folder sends nobody's secrets anywhere: neither a
// command nor a key pressed in a shell believes it, and the words say how to ask for it.
func TestFileOfTheFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("PGPASSWORD", "operators-secret")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIA")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	s := newStranger(t)
	text := "profiles:\n  production:\n    store: postgres://app@ADDR/orders?sslmode=disable\n    queues:\n      orders: sqs+http://ADDR/orders\n"
	if err := os.WriteFile("onceq.yaml", []byte(strings.ReplaceAll(text, "ADDR", s.Addr().String())), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, env: map[string]string{}, dir: t.TempDir(), now: time.Now, patience: 10 * time.Second}
	for _, words := range [][]string{
		{"workers", "orders"},
		{"queue", "ls"},
		{"queue", "show", "orders"},
		{"key", "show", "A-1"},
		{"top"},
		{"dlq", "ls", "orders"},
		{"--yes", "queue", "pause", "orders", "--for", "1h", "--reason", "x"},
		{"-p", "production", "audit"},
	} {
		r.run(words...).want(2, "this folder has a file onceq.yaml", "set ONCEQ_CONFIG=./onceq.yaml to use it")
	}
	tabs := [][]string{
		{"workers", ""},
		{"workers", "orders", ""},
		{"key", "show", ""},
		{"queue", "pause", ""},
		{"queue", "pause", "orders", "--type", ""},
		{"queue", "resume", "orders", ""},
		{"key", "show", "--queue", ""},
		{"queue", "show", ""},
		{"dlq", "ls", ""},
		{"-p", ""},
	}
	for _, words := range tabs {
		r.wantOffers("", words...)
	}
	if n := s.called(t); n != 0 {
		t.Errorf("%d connections to the stranger, by nobody's word", n)
	}

	r.env["ONCEQ_CONFIG"] = "./onceq.yaml" // it may have been set in another folder
	for _, words := range tabs {
		r.completed(words...)
	}
	r.wantOffers("orders", "workers", "")
	if n := s.called(t); n != 0 {
		t.Errorf("%d connections to the stranger, for a key that was pressed", n)
	}
	r.run("workers", "orders").want(3)
	if s.called(t) == 0 {
		t.Error("the file was asked for, and its store was not: the test sees nothing")
	}
}
