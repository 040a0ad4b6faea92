// Command priorities works on three queues with twenty slots: what pays first, what mails, and what
// may wait.
//
// The trap: with strict priorities the low ones wait for ever while there are high ones. With
// weights by which the next start is drawn, long jobs of a small weight hold nearly all slots after
// a while, because what is drawn is starts, and not slots.
//
// The answer: a queue a class, a Worker for each on one Processor, and each second the slots are
// divided anew: by weights 6:3:1, or strictly, with one slot that each class always has. What a
// class does not use the others have.
//
//	go run ./examples/priorities
//	go run ./examples/priorities -strict
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// This file owns the scene: three queues with so many jobs each. main and the tests call run;
// handlers count under a lock.

const (
	slots   = 20
	jobTime = 100 * time.Millisecond
	tick    = 50 * time.Millisecond // a second where jobs take a second
)

var names = []string{"charges", "mails", "reports"}

// counts are what the handlers have seen.
type counts struct {
	mu          sync.Mutex
	now, most   int
	done        map[string]int
	first, last map[string]time.Time
}

func (c *counts) handle(ctx context.Context, j *onceq.Job) error {
	queue := j.Message.Attributes["queue"]
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	if c.first[queue].IsZero() {
		c.first[queue] = time.Now()
	}
	c.mu.Unlock()
	select {
	case <-time.After(jobTime):
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	c.done[queue]++
	c.last[queue] = time.Now()
	return nil
}

// run works for so long on queues with so many jobs, of which those that are no reports come late.
// It answers what was done.
func run(ctx context.Context, out io.Writer, strict bool, d, late time.Duration, jobs [3]int) (*counts, error) {
	c := &counts{done: map[string]int{}, first: map[string]time.Time{}, last: map[string]time.Time{}}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(c.handle), Store: must(memstore.New(nil)), Scope: "shop", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	weights := []int{6, 3, 1}
	if strict {
		weights = []int{1000, 30, 1}
	}
	var classes []class
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	var all sync.WaitGroup
	for i, name := range names {
		q, dead := must(membroker.New(&membroker.Options{Name: name})), must(membroker.New(nil))
		if name == "reports" {
			late = 0
		}
		var ms []broker.Outgoing
		for n := range jobs[i] {
			key := fmt.Sprintf("%s-%d", name, n)
			ms = append(ms, broker.Outgoing{Meta: &broker.Meta{Key: key}, Attributes: map[string]string{"queue": name}, Delay: late})
		}
		if err := onceq.Send(ctx, q, ms); err != nil {
			return nil, err
		}
		w, err := p.Worker(q, onceq.WorkerConfig{Name: name, DeadLetter: dead, Concurrency: slots})
		if err != nil {
			return nil, err
		}
		w.Limit(1)
		classes = append(classes, class{w, weights[i]})
		all.Go(func() {
			if err := w.Run(ctx); err != nil {
				log.Print(err)
			}
		})
	}
	for t := time.NewTicker(tick); ctx.Err() == nil; {
		select {
		case <-t.C:
			share(slots, classes)
		case <-ctx.Done():
			t.Stop()
		}
	}
	all.Wait()
	for i, name := range names {
		fmt.Fprintf(out, "%-8s %5d of %d\n", name, c.done[name], jobs[i])
	}
	fmt.Fprintf(out, "at most %d at once\n", c.most)
	return c, nil
}

func main() {
	strict := flag.Bool("strict", false, "charges before mails before reports, with a floor of one slot each")
	flag.Parse()
	if _, err := run(context.Background(), os.Stdout, *strict, 3*time.Second, 0, [3]int{2000, 2000, 2000}); err != nil {
		log.Fatal(err)
	}
}

func must[V any](v V, err error) V {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
