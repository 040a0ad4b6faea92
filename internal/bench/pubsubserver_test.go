package bench

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
)

// servePubSub serves Pub/Sub behind a line on which a round trip takes so long: each way takes
// half. A delay of the calls alone would let a stream, which nobody asks, answer at once.
func servePubSub(ln net.Listener, trip time.Duration, gone <-chan struct{}) error {
	s := pubsubfake.New(&pubsubfake.Options{LogSize: -1})
	if trip > 0 {
		near, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		go relay(ln, near.Addr().String(), trip/2)
		defer ln.Close()
		if _, err := fmt.Println(ln.Addr()); err != nil {
			return err
		}
		ln = near
	} else if _, err := fmt.Println(ln.Addr()); err != nil {
		return err
	}
	go func() {
		<-gone
		s.Close()
	}()
	return s.Serve(ln)
}

// relay passes on what comes to ln, each way after a delay.
func relay(ln net.Listener, to string, delay time.Duration) {
	for {
		from, err := ln.Accept()
		if err != nil {
			return
		}
		conn, err := net.Dial("tcp", to)
		if err != nil {
			from.Close()
			continue
		}
		go trail(conn, from, delay)
		go trail(from, conn, delay)
	}
}

// trail copies what src says to dst, each piece so much later.
func trail(dst, src net.Conn, delay time.Duration) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 4096)
	var both sync.WaitGroup
	both.Go(func() {
		defer close(pieces)
		for {
			b := make([]byte, 64<<10)
			n, err := src.Read(b)
			if n > 0 {
				pieces <- piece{time.Now().Add(delay), b[:n]}
			}
			if err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer func() { _, _ = io.Copy(io.Discard, src) }()
		defer dst.Close()
		for p := range pieces {
			<-time.After(time.Until(p.at))
			if _, err := dst.Write(p.data); err != nil {
				src.Close()
			}
		}
	})
	both.Wait()
}
