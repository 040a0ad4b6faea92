package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/examples/internal/scene"
	"github.com/onceq/onceq/internal/child"
)

// This file owns the processes: the worker that each of them is, the crew that is killed, and the
// count at the end. run is called from one goroutine. A kill may come from the clock's goroutine or
// from a request's, and the crew's lock lets one come after the other. What the processes say is
// counted atomically.

// settings are a run's.
type settings struct {
	way
	Jobs, Workers int
	Seed          uint64        // draws who is killed, and when
	Every         time.Duration // a kill, about; 0 = none by the clock
	Think         time.Duration // of the model
	Most          int           // calls at once that the model takes
	Store         string
	Lease         time.Duration // after a kill nobody goes on for as long
	// OnCall is told each paid call while the model thinks, with its number and the worker's.
	OnCall func(c *crew, n, worker int)
}

// assignment is what a worker's process is told.
type assignment struct {
	Way                  way
	Worker               int
	Model, Server, Queue string
	Place                place
	Lease                time.Duration
}

const lineKept = "kept"

// play is a worker's process, until ctx ends.
func play(ctx context.Context, a assignment) error {
	store, done, err := a.Place.open()
	if err != nil {
		return err
	}
	defer done()
	queue, err := openQueue(a.Server, a.Queue)
	if err != nil {
		return err
	}
	w, err := newWorker(queue, store, &agent{modelClient{a.Model, fmt.Sprint(a.Worker), http.DefaultClient}, a.Way}, a.Lease)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func newWorker(queue broker.Broker, store dedupe.Store, a *agent, lease time.Duration) (*onceq.Worker, error) {
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: tellKept(onceq.JSONResult(a.answer)), Store: store, Scope: "agent", Lease: lease,
		// Each kill -9 is an attempt. Here they are many, and no job is to blame.
		Defaults: onceq.JobOptions{MaxAttempts: 1000},
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 4, Visibility: lease})
}

// tellKept tells the scene how many steps an attempt finds saved.
func tellKept(h onceq.Handler) onceq.Handler {
	return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		for _, stage := range stages {
			if _, kept, err := onceq.Saved[string](j, stage); kept && err == nil {
				child.Tell(lineKept)
			}
		}
		return h.Handle(ctx, j)
	})
}

func openQueue(server, queue string) (*awssqs.Broker, error) {
	return awssqs.New(sqs.New(sqs.Options{
		BaseEndpoint: &server, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}), queue, &awssqs.Options{LongPoll: time.Second})
}

// tally is what came of a run.
type tally struct {
	ledger
	Jobs, Done             int
	Wrong                  int // calls that were not paid, or more than once
	Kept, Kills, Processes int
	Took                   time.Duration
}

// Holds reports whether each job is done, and each of its calls was paid once.
func (t *tally) Holds() bool { return t.Done == t.Jobs && t.Wrong == 0 }

// run sends the jobs, kills the workers at random, and reads the bill when the queue is empty.
func run(ctx context.Context, o *settings, out, errs io.Writer) (t *tally, err error) {
	began := time.Now()
	p, drop, err := makePlace(ctx, o.Store)
	if drop != nil {
		defer func() { err = errors.Join(err, drop()) }()
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%d questions, three paid calls each; %d worker processes on SQS and %s; kill -9 every %v (-seed %d)\n\n",
		o.Jobs, o.Workers, o.Store, o.Every, o.Seed)
	server, queueURL, stop, err := scene.SQS(ctx, "questions")
	if err != nil {
		return nil, err
	}
	defer stop()
	queue, err := openQueue(server, queueURL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &crew{errs: errs, failed: cancel, all: make([]*child.Child, o.Workers)}
	m := newModel(o.Think, o.Most)
	if o.OnCall != nil {
		m.began = func(r *http.Request, paid int) {
			var worker int
			_, _ = fmt.Sscan(r.UserAgent(), &worker)
			o.OnCall(c, paid, worker)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	defer h.Close()
	go func() { _ = h.Serve(l) }()
	c.a = assignment{Way: o.way, Model: "http://" + l.Addr().String(), Server: server, Queue: queueURL, Place: p, Lease: o.Lease}

	keys, err := send(ctx, queue, o.Jobs)
	if err != nil {
		return nil, err
	}
	if err := c.work(ctx, o, queue, func(worker int) {
		b := m.bill()
		fmt.Fprintf(out, "%6.1f s  kill -9 of worker %d; the bill so far: %d calls\n", time.Since(began).Seconds(), worker+1, b.Sum)
	}); err != nil {
		return nil, err
	}
	t = &tally{ledger: m.bill(), Jobs: o.Jobs, Kept: int(c.kept.Load()), Kills: c.kills, Processes: c.processes, Took: time.Since(began)}
	for _, k := range keys {
		for _, stage := range stages {
			if t.Paid[k.Key+"/"+stage] != 1 {
				t.Wrong++
			}
		}
	}
	t.Done, err = countDone(ctx, p, keys)
	return t, err
}

// send puts the jobs into the queue.
func send(ctx context.Context, queue broker.Sender, n int) (keys []dedupe.Key, err error) {
	var ms []broker.Outgoing
	for i := range n {
		k := dedupe.Key{Scope: "agent", Key: fmt.Sprintf("question-%d", i+1)}
		body, err := json.Marshal(question{"Why is " + k.Key + " asked?"})
		if err != nil {
			return nil, err
		}
		keys, ms = append(keys, k), append(ms, onceq.Message("question", k.Key, body))
	}
	return keys, onceq.Send(ctx, queue, ms)
}

// countDone asks the store.
func countDone(ctx context.Context, p place, keys []dedupe.Key) (done int, err error) {
	s, closed, err := p.open()
	if err != nil {
		return 0, err
	}
	defer closed()
	for len(keys) > 0 {
		n := min(len(keys), s.Limits().MaxBatch)
		rs, err := s.Get(ctx, keys[:n])
		if err != nil {
			return 0, err
		}
		for _, r := range rs {
			if r != nil && r.Status == dedupe.Done {
				done++
			}
		}
		keys = keys[n:]
	}
	return done, nil
}

// crew are the processes of the workers.
type crew struct {
	a      assignment
	errs   io.Writer
	failed func(error)
	kept   atomic.Int64

	mu               sync.Mutex
	all              []*child.Child
	closed           bool
	kills, processes int
}

// work lets the workers work until the queue is empty, and kills one now and then.
func (c *crew) work(ctx context.Context, o *settings, queue broker.Broker, killed func(worker int)) error {
	for i := range c.all {
		if err := c.start(i); err != nil {
			c.end(ctx)
			return err
		}
	}
	killing, stop := context.WithCancel(ctx)
	var clock sync.WaitGroup
	if o.Every > 0 {
		clock.Go(func() { c.killAtRandom(killing, o, killed) })
	}
	err := scene.Quiet(ctx, queue)
	stop()
	clock.Wait()
	c.end(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// killAtRandom kills a worker at a random moment of each span.
func (c *crew) killAtRandom(ctx context.Context, o *settings, killed func(worker int)) {
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	for span := time.Now(); ; span = span.Add(o.Every) {
		at, worker := span.Add(time.Duration(rng.Int64N(int64(o.Every)))), rng.IntN(len(c.all))
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return
		}
		if c.Kill(worker) {
			killed(worker)
		}
	}
}

// Kill kills a worker's process, and starts another one in its place.
func (c *crew) Kill(worker int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.all[worker].Kill() {
		return false
	}
	<-c.all[worker].Done()
	c.kills++
	if err := c.startLocked(worker); err != nil {
		c.failed(err)
	}
	return true
}

func (c *crew) start(worker int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.startLocked(worker)
}

// startLocked starts this program as a worker.
func (c *crew) startLocked(worker int) error {
	a := c.a
	a.Worker = worker
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, string(text)) //nolint:gosec,noctx // this program; how it ends is told by child
	cmd.Stderr = c.errs
	p, err := child.Start(cmd, func(line string) {
		if line == lineKept {
			c.kept.Add(1)
		}
	})
	if err != nil {
		return err
	}
	c.all[worker] = p
	c.processes++
	go func() {
		if err := p.Err(); err != nil && !p.Killed() {
			c.failed(fmt.Errorf("worker %d has ended: %w", worker+1, err))
		}
	}()
	return nil
}

// end lets the workers end in good order, or kills them where ctx has ended.
func (c *crew) end(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, p := range c.all {
		if p == nil {
			continue
		}
		if ctx.Err() != nil {
			p.Kill()
			<-p.Done()
			continue
		}
		limit, cancel := context.WithTimeout(ctx, 30*time.Second)
		if err := p.Drain(limit); err != nil {
			c.failed(err)
		}
		cancel()
	}
}
