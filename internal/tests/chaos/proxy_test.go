//go:build unix

package chaos

import (
	"io"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/must"
)

// This file owns the proxies between the workers and their servers. Each worker has one to its
// queue and one to its store. proxy.mu guards the weather and the connections.

// weather is what becomes of the bytes that pass a proxy.
type weather string

const (
	clear  weather = ""
	cuts   weather = "cut"   // each connection is closed, and none is let in
	loses  weather = "lose"  // requests pass; the first bytes of an answer are dropped, and the connection with them
	stalls weather = "stall" // nothing passes until it is over; then all of it does
	delays weather = "delay" // all passes late
	shifts weather = "shift" // the Date of each answer is another
)

// late is how long a delayed piece takes.
const late = 100 * time.Millisecond

type proxy struct {
	l      net.Listener
	target string

	mu      sync.Mutex
	now     weather
	by      time.Duration // of shifts
	spare   int           // pieces that pass before the weather is felt
	changed chan struct{} // is closed when the weather changes
	open    map[net.Conn]bool
	touched int // pieces and connections that did not pass as they came
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	p := &proxy{l: l, target: target, changed: make(chan struct{}), open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.set(cuts, 0)
		all.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.l.Addr().String() }

// set changes the weather.
func (p *proxy) set(w weather, by time.Duration) { p.setAfter(0, w, by) }

// setAfter lets so many pieces pass before the weather is felt.
func (p *proxy) setAfter(pieces int, w weather, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.by, p.spare = w, by, pieces
	close(p.changed)
	p.changed = make(chan struct{})
	for c := range p.open {
		if w == cuts {
			_ = c.Close()
			p.touched++
		}
	}
}

// met reports whether the weather was felt since the last take.
func (p *proxy) met() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.touched > 0
}

// take tells how much was touched since the last call.
func (p *proxy) take() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, p.touched = p.touched, 0
	return n
}

// keep has a connection closed when the weather cuts it, if it does not already.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == cuts {
		p.touched++
		return false
	}
	p.open[c] = true
	return true
}

// drop closes a connection.
func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *proxy) serve(c net.Conn) {
	defer p.drop(c)
	if !p.keep(c) {
		return
	}
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(to)
	if !p.keep(to) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.pump(to, c, false)
	}()
	p.pump(c, to, true)
	<-done
}

// pump passes bytes on, as the weather lets it, until one end is closed. Then it closes both.
func (p *proxy) pump(dst, src net.Conn, answers bool) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			piece, ok := p.pass(buf[:n], answers)
			if !ok {
				return
			}
			if _, err := dst.Write(piece); err != nil {
				return
			}
		}
		if err != nil {
			return // of a half that is closed nobody here makes use
		}
	}
}

// pass answers what is to be passed on of a piece, when it is time; false closes the connection.
func (p *proxy) pass(piece []byte, answers bool) ([]byte, bool) {
	for {
		p.mu.Lock()
		now, by, changed := p.now, p.by, p.changed
		if now != clear && p.spare > 0 {
			p.spare--
			now = clear
		}
		hit := now == stalls || now == delays || now == loses && answers
		if now == shifts && answers && date.Match(piece) {
			hit, piece = true, shift(piece, by)
		}
		if hit {
			p.touched++
		}
		p.mu.Unlock()
		switch {
		case now == stalls:
			<-changed
			continue
		case now == delays:
			select {
			case <-time.After(late):
			case <-changed:
			}
		case now == loses && answers:
			return nil, false
		}
		return piece, true
	}
}

// date is HTTP's, whose length never changes.
var date = regexp.MustCompile(`(?i)\r\nDate: ([^\r]{29})\r\n`)

// shift puts the first Date of a piece off.
func shift(piece []byte, by time.Duration) []byte {
	at := date.FindSubmatchIndex(piece)
	text := piece[at[2]:at[3]]
	if t, err := time.Parse(time.RFC1123, string(text)); err == nil {
		copy(text, t.UTC().Add(by).Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	}
	return piece
}

// TestProxy: each weather does to a call what it says, and a call after it passes.
func TestProxy(t *testing.T) {
	for _, w := range []weather{clear, cuts, loses, stalls, delays, shifts} {
		t.Run("weather "+string(w), func(t *testing.T) {
			l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
			defer l.Close()
			asked := make(chan struct{}, 10)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						buf := make([]byte, 10)
						for {
							if _, err := c.Read(buf); err != nil {
								return
							}
							asked <- struct{}{}
							if _, err := c.Write([]byte(head)); err != nil {
								return
							}
						}
					}()
				}
			}()
			p := newProxy(t, l.Addr().String())
			if got := call(t, p); got != head {
				t.Fatalf("in clear weather the answer is %q", got)
			}
			<-asked
			p.take()
			p.set(w, time.Hour)
			want := map[weather]string{clear: head, delays: head, shifts: hourLater}[w]
			began := time.Now()
			if w == stalls {
				time.AfterFunc(late, func() { p.set(clear, 0) })
				want = head
			}
			if got := call(t, p); got != want {
				t.Errorf("the answer is %q, want %q", got, want)
			}
			if took := time.Since(began); (w == stalls || w == delays) && took < late {
				t.Errorf("it took %v", took)
			}
			if n := p.take(); (n > 0) != (w != clear) {
				t.Errorf("%d pieces were touched", n)
			}
			if w != cuts {
				<-asked // the request came through, also where its answer did not
			} else if len(asked) > 0 {
				t.Error("a request came through")
			}
			p.set(clear, 0)
			if got := call(t, p); got != head {
				t.Errorf("afterwards the answer is %q", got)
			}
		})
	}
}

const (
	head      = "HTTP/1.1 200 OK\r\nDate: Sat, 28 Nov 2026 23:15:18 GMT\r\n\r\n"
	hourLater = "HTTP/1.1 200 OK\r\nDate: Sun, 29 Nov 2026 00:15:18 GMT\r\n\r\n"
)

// call asks through a proxy, over a connection of its own.
func call(t *testing.T, p *proxy) string {
	t.Helper()
	c, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("ask")); err != nil {
		return ""
	}
	buf := make([]byte, len(head))
	n, _ := io.ReadFull(c, buf)
	return string(buf[:n])
}
