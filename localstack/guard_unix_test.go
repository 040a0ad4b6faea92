//go:build unix

package localstack

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestListen: from the look for a port to the server's own listening nobody else can take it; when
// the server has ended, nobody answers there.
func TestListen(t *testing.T) {
	socket, addr, err := listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	taken := func() error {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		if err == nil {
			l.Close()
		}
		return err
	}
	if taken() == nil {
		t.Error("another has taken the port")
	}
	s := &site{dir: t.TempDir()}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read go; echo it fell; exit 3")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdin, cmd.ExtraFiles = in, []*os.File{socket}
	_, ended, err := s.serve(t.Context(), cmd, syscall.SIGKILL, func(ctx context.Context) (string, error) {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
		if taken() == nil {
			t.Error("another has taken the port of a server that starts")
		}
		out.Close() // now it may go on
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	if !ended || err == nil || !strings.Contains(err.Error(), "it fell") {
		t.Errorf("ended %v, %v", ended, err)
	}
	s.close()
	if err := taken(); err != nil {
		t.Errorf("the port is not free again: %v", err)
	}
}
