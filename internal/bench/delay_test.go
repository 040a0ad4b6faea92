package bench

import (
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

// delayed returns addr, the URL of a server, by way of a proxy that adds half of roundTrip to each
// direction, whatever the throughput.
func delayed(tb testing.TB, addr string, roundTrip time.Duration) string {
	tb.Helper()
	u, err := url.Parse(addr)
	if err != nil {
		tb.Fatal(err)
	}
	server := u.Host
	ln, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ln.Close() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := new(net.Dialer).DialContext(tb.Context(), "tcp", server)
			if err != nil {
				in.Close()
				continue
			}
			go late(out, in, roundTrip/2)
			go late(in, out, roundTrip/2)
		}
	}()
	u.Host = ln.Addr().String()
	return u.String()
}

// late copies what comes from src to dst, each piece d after it came.
func late(dst io.WriteCloser, src io.Reader, d time.Duration) {
	type piece struct {
		b  []byte
		at time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer dst.Close()
		for p := range pieces {
			<-time.After(time.Until(p.at))
			if _, err := dst.Write(p.b); err != nil {
				break
			}
		}
		for range pieces { // the reader must not block
		}
	}()
	defer close(pieces)
	for {
		b := make([]byte, 32<<10)
		n, err := src.Read(b)
		if n > 0 {
			pieces <- piece{b[:n], time.Now().Add(d)}
		}
		if err != nil {
			return
		}
	}
}
