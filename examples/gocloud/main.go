// Command gocloud ships the orders of a queue. It is written against gocloud.dev, and becomes a
// once-only worker by three calls: before.go has it as it was, after.go as it is with onceq.
//
// The trap: a publisher sends an order again because the first answer was lost, and an order takes
// longer than the queue's ack deadline. Both are delivered twice, and shipped twice.
//
// The answer: the worker takes the key that the publisher gives in the metadata "onceq-key", and
// does each key once. The publisher stays as it is, and so do the queue and the drivers.
//
//	go run ./examples/gocloud
//	go run ./examples/gocloud -before
//
// The queue is gocloud's own in memory. With another one, the URL is all that changes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/mempubsub"
)

const scene = 3 * time.Second

func main() {
	before := flag.Bool("before", false, "run the program as it was before onceq")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *before); err != nil {
		log.Fatal(err)
	}
}

// run is the whole scene: the publisher, and a worker for as long as it takes.
func run(ctx context.Context, out io.Writer, before bool) error {
	topic := mempubsub.NewTopic()
	orders := mempubsub.NewSubscription(topic, deadline)
	for _, order := range []string{"A-1", "B-2", "A-1", "slow-3"} {
		m := &pubsub.Message{Body: []byte(order), Metadata: map[string]string{"onceq-key": order}}
		if err := topic.Send(ctx, m); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, scene)
	defer cancel()
	port := &port{out: &lines{Writer: out}, shipped: map[string]int{}}
	work := after
	if before {
		work = receive
	}
	if err := work(ctx, orders, port.ship); err != nil && ctx.Err() == nil {
		return err
	}
	fmt.Fprintln(out, port)
	end, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	return topic.Shutdown(end)
}

// lines is a writer for many goroutines.
type lines struct {
	io.Writer

	mu sync.Mutex // held during a write
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Writer.Write(b)
}

// port is where the orders leave.
type port struct {
	out io.Writer

	mu      sync.Mutex // guards shipped
	shipped map[string]int
}

// ship is the program's own work. It knows no queue.
func (p *port) ship(ctx context.Context, order string) error {
	fmt.Fprintln(p.out, "  ships", order)
	p.mu.Lock()
	p.shipped[order]++
	p.mu.Unlock()
	if order == "slow-3" {
		select {
		case <-time.After(2 * deadline):
		case <-ctx.Done():
			return errors.Join(errors.New("the crane stands still"), context.Cause(ctx))
		}
	}
	return nil
}

// String tells what has left, and how often.
func (p *port) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("shipped: A-1 %d, B-2 %d, slow-3 %d", p.shipped["A-1"], p.shipped["B-2"], p.shipped["slow-3"])
}
