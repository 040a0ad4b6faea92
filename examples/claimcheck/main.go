// Command claimcheck sends bodies that are too large for a queue, and bodies that nobody may read
// there.
//
// The trap: a body that is unpacked when it is received is unpacked in the dead letter, too. Who
// encrypts a message so that no queue has its clear text finds it in the dead-letter queue, and a
// letter of a large one does not fit there.
//
// The answer: a Sender that packs each body, and a middleware that gives the handler the unpacked
// one. Letters are made of the message as it came, so they hold the pointer, or the sealed bytes,
// and a replay sends these. Nothing is fetched for a duplicate, because the middleware runs after
// the claim. And nothing is deleted after a job: letters and replays need it, so a lifecycle rule
// deletes what is older than both queues keep.
//
//	go run ./examples/claimcheck
package main

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// This file owns the scene: an invoice goes through the queue, and one through its dead letters.
// main and the tests call run. packing.go is what to copy.

// run sends two invoices. The second one's customer is unknown.
func run(ctx context.Context, out io.Writer, f form) (queue, dead *membroker.Broker, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	queue = must(membroker.New(&membroker.Options{Name: "invoices", Preset: membroker.SQSStandard}))
	dead = must(membroker.New(&membroker.Options{Name: "invoices-dead", Preset: membroker.SQSStandard}))
	print := func(_ context.Context, j *onceq.Job) error {
		body := j.Message.Body
		fmt.Fprintf(out, "%s: %d bytes, %q…\n", j.Message.Meta.Key, len(body), body[:min(21, len(body))])
		if bytes.Contains(body, []byte("nobody")) {
			return onceq.Permanent(errors.New("no such customer"))
		}
		return nil
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Chain(onceq.HandlerFunc(print), unpacked(f)),
		Store:   must(memstore.New(nil)), Scope: "invoices", Logger: slog.New(slog.DiscardHandler), Observer: &ender{left: 2, stop: stop},
	})
	if err != nil {
		return nil, nil, err
	}
	// Letters go to the queue itself, because they are packed already.
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 1})
	if err != nil {
		return nil, nil, err
	}
	for i, to := range []string{"card 4111 1111 1111 1111", "nobody's card 4222 2222"} {
		m := broker.Outgoing{Body: []byte(to + strings.Repeat(" .", 200_000)), Meta: &broker.Meta{Key: fmt.Sprintf("invoice-%d", i+1)}}
		if err := onceq.SendOne(ctx, packed{queue, f}, &m); err != nil {
			return nil, nil, err
		}
	}
	return queue, dead, w.Run(ctx)
}

// ender stops the scene when so many deliveries have ended.
type ender struct {
	left int
	stop func()
}

func (e *ender) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (e *ender) JobEnded(context.Context, *onceq.JobReport) {
	if e.left--; e.left == 0 {
		e.stop()
	}
}

func main() {
	dir := must(os.MkdirTemp("", "claimcheck"))
	defer os.RemoveAll(dir)
	key := make([]byte, 32)
	rand.Read(key) // yours comes from a secret store, and outlives the process
	f := chain{zipped{}, sealed{must(cipher.NewGCM(must(aes.NewCipher(key))))}, checked{files(dir), "invoices", 0}}
	_, dead, err := run(context.Background(), os.Stdout, f)
	if err != nil {
		log.Fatal(err)
	}
	ms := must(dead.Receive(context.Background(), broker.ReceiveOptions{Max: 1}))
	fmt.Printf("the letter: %s\n", ms[0].Body)
}

func must[V any](v V, err error) V {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
