package pubsubpush_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	rigs "github.com/onceq/onceq/internal/rig"
)

// pipes is a listener in virtual time.
type pipes struct {
	calls chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// trickle posts a body of 1,000 bytes, one a second, to a server without any timeout. The answer
// comes later.
func (r *rig) trickle() (answer <-chan string) {
	r.Helper()
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	s := &http.Server{Handler: r.handler()} //nolint:gosec // a server without timeouts is the point
	go func() { _ = s.Serve(p) }()
	client, server := net.Pipe()
	p.calls <- server
	go func() {
		_, err := client.Write([]byte("POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"))
		for err == nil {
			rigs.Takes(time.Second)
			_, err = client.Write([]byte(" "))
		}
	}()
	r.Cleanup(func() { rigs.Takes(time.Minute) }) // the client's last write
	text := make(chan string, 1)
	go func() {
		buf := make([]byte, 1000)
		n, _ := client.Read(buf)
		text <- string(buf[:n])
		_ = client.Close()
		_ = s.Close()
	}()
	return text
}

// A client that sends its body slowly is let go when no job could begin any more.
func TestSlowBody(t *testing.T) {
	bubble(t, new(runs).Handle, func(r *rig) {
		begin := time.Now()
		if a := <-r.trickle(); !strings.HasPrefix(a, "HTTP/1.1 503 ") || !strings.HasSuffix(a, "the body comes too slowly\n") {
			r.Errorf("the answer is %q", a)
		}
		r.took(begin, 54*time.Second, 54*time.Second)
	})
}

// It does not hold up a drain, either.
func TestDrainOfASlowBody(t *testing.T) {
	bubble(t, new(runs).Handle, func(r *rig) {
		answer := r.trickle()
		rigs.Takes(3500 * time.Millisecond)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), 9*time.Second)
		defer cancel()
		if err := r.h.Shutdown(ctx); err != nil {
			r.Error(err)
		}
		r.took(begin, 0, 0)
		if a := <-answer; !strings.HasPrefix(a, "HTTP/1.1 503 ") {
			r.Errorf("the answer is %q", a)
		}
	})
}
