package onceq_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A producer that got no answer sends its job again. The second message is acked without a run.
func ExampleWorker() {
	queue, dead, store := inMemoryWorker()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Printf("mail about %s\n", j.Message.Body)
			return nil
		}),
		Store: store, Scope: "mails",
	}
	for range 2 {
		sendWorker(queue, "mail-7", "order 7")
		for _, r := range workWorker(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Key.Key, r.Outcome)
		}
	}
	// Output:
	// mail about order 7
	// mail-7 done
	// mail-7 already-done
}

// When its context ends, Run receives nothing more, and lets the running handlers end. It settles
// and acks what they have done before it returns.
func ExampleWorker_Run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			stop() // such as SIGTERM, in the middle of a job
			fmt.Println("goes on:", ctx.Err() == nil)
			return nil
		}),
		Store: store, Scope: "mails",
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, DrainTimeout: time.Minute}))
	sendWorker(queue, "mail-7", "order 7")
	fmt.Println("Run:", worker.Run(ctx))
	depth := mustWorker(queue.Depth(context.Background()))
	fmt.Println("left in the queue:", depth.Visible+depth.InFlight)
	// Output:
	// goes on: true
	// Run: <nil>
	// left in the queue: 0
}

// A handler that runs on after DrainTimeout is told by its context. The worker hands back what the
// handler has not done, and counts no attempt.
func ExampleWorkerConfig_drainTimeout() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			stop()
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			return context.Cause(ctx)
		}),
		Store: store, Scope: "exports",
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{
		DeadLetter:   dead,
		DrainTimeout: -1, // no time at all
	}))
	sendWorker(queue, "export-1", "")
	fmt.Println("Run:", worker.Run(ctx))
	depth := mustWorker(queue.Depth(context.Background()))
	fmt.Println("for the next worker:", depth.Visible)
	// Output:
	// onceq: worker is draining
	// Run: <nil>
	// for the next worker: 1
}

// A handler that does not listen to its context is abandoned at the hard end. Run names its job,
// which will be delivered again when its leases have run out.
func ExampleDrainError() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	forever := make(chan struct{})
	defer close(forever)
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			stop()
			<-forever
			return nil
		}),
		Store: store, Scope: "exports",
		SettleTimeout: 10 * time.Millisecond,
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, DrainTimeout: -1}))
	m := broker.Outgoing{Meta: &broker.Meta{ID: "export-1"}}
	_ = onceq.SendOne(ctx, queue, &m)

	err := worker.Run(ctx)
	if late, ok := errors.AsType[*onceq.DrainError](err); ok {
		fmt.Println("unfinished:", late.Jobs)
	}
	// Output:
	// unfinished: [export-1]
}

// During a pause running handlers go on, and nothing new starts. What was received goes back to
// the queue.
func ExampleWorker_Pause() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, dead, store := inMemoryWorker()
	p := mustWorker(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("done:", j.Key().Key)
			stop()
			return nil
		}),
		Store: store, Scope: "mails",
	}))
	worker := mustWorker(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	worker.Pause() // such as while the mail server is down; Run may be under way
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	sendWorker(queue, "mail-7", "order 7")
	fmt.Println("paused, and in the queue:", mustWorker(queue.Depth(ctx)).Visible)

	worker.Resume()
	fmt.Println("Run:", <-ended)
	// Output:
	// paused, and in the queue: 1
	// done: mail-7
	// Run: <nil>
}

// inMemoryWorker makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryWorker() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustWorker(membroker.New(nil)), mustWorker(membroker.New(nil)), mustWorker(memstore.New(nil))
}

func mustWorker[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workWorker runs a worker with one slot until n deliveries have ended.
func workWorker(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyWorker{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustWorker(onceq.NewProcessor(c))
	if err := mustWorker(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyWorker counts deliveries that have ended.
type tallyWorker struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyWorker) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyWorker) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendWorker puts one message with the key, or one without where the key is empty.
func sendWorker(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

// One Processor serves two queues and an HTTP handler's calls. They share the keys: an order that
// was charged by a call is not charged again by a message. Each queue has its own limits and its
// own dead-letter queue.
func ExampleProcessor() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	web, webDead := queueProcessor("web"), queueProcessor("web-dead")
	bulk, bulkDead := queueProcessor("bulk"), queueProcessor("bulk-dead")

	var left sync.WaitGroup
	left.Add(2)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			left.Done()
			return nil
		}),
		Store: store, Scope: "charges",
	})
	if err != nil {
		log.Fatal(err)
	}
	fast, err := p.Worker(web, onceq.WorkerConfig{Name: "web", DeadLetter: webDead, Concurrency: 20})
	if err != nil {
		log.Fatal(err)
	}
	slow, err := p.Worker(bulk, onceq.WorkerConfig{Name: "bulk", DeadLetter: bulkDead, Concurrency: 2})
	if err != nil {
		log.Fatal(err)
	}

	// An HTTP handler charges order-1 while the queues are worked on.
	charge := func(context.Context, *onceq.Job) (string, error) { return "receipt 1", nil }
	receipt, err := onceq.Do(ctx, p, dedupe.Key{Key: "order-1"}, nil, charge)
	fmt.Println(receipt, err)

	sendProcessor(web, "order-1") // a duplicate of what the call has done
	sendProcessor(web, "order-2")
	sendProcessor(bulk, "order-3")
	go func() { left.Wait(); stop() }()
	var workers sync.WaitGroup
	for _, w := range []*onceq.Worker{fast, slow} {
		workers.Go(func() {
			if err := w.Run(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	workers.Wait()
	for _, order := range []string{"order-1", "order-2", "order-3"} {
		_, status, err := onceq.Result[string](context.Background(), store, dedupe.Key{Scope: "charges", Key: order})
		fmt.Println(order, status, err)
	}
	// Output:
	// receipt 1 <nil>
	// order-1 done <nil>
	// order-2 done <nil>
	// order-3 done <nil>
}

func queueProcessor(name string) *membroker.Broker {
	q, err := membroker.New(&membroker.Options{Name: name})
	if err != nil {
		log.Fatal(err)
	}
	return q
}

func sendProcessor(queue broker.Sender, key string) {
	if err := onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Key: key}}); err != nil {
		log.Fatal(err)
	}
}

// eventMeter is an Observer that is told of the worker as well.
type eventMeter struct{}

func (m *eventMeter) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (m *eventMeter) JobEnded(context.Context, *onceq.JobReport)                   {}

func (m *eventMeter) WorkerEvent(_ context.Context, e *onceq.WorkerEvent) {
	fmt.Printf("%s: %s %q\n", e.Queue, e.Kind, e.Reason)
}

// An Observer with WorkerEvent hears of starts, pauses, outages and drains.
func ExampleWorkerObserver() {
	queue, dead, store := inMemoryHealth()
	p := mustHealth(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler:  onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Observer: &eventMeter{},
		Store:    store, Scope: "mails", Queue: "mails",
	}))
	worker := mustHealth(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	worker.Pause()
	ctx, stop := context.WithCancel(context.Background())
	stop()
	fmt.Println(worker.Run(ctx))
	// Output:
	// mails: started ""
	// mails: paused "local"
	// mails: draining ""
	// mails: drained ""
	// <nil>
}

// Stats counts what is under way. Metrics and pages show it.
func ExampleWorker_Stats() {
	queue, dead, store := inMemoryHealth()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	begun, end := make(chan struct{}), make(chan struct{})
	p := mustHealth(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
			close(begun)
			<-end
			return nil
		}),
		Store: store, Scope: "mails",
	}))
	worker := mustHealth(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 4}))
	if err := onceq.Send(ctx, queue, []broker.Outgoing{{Meta: &broker.Meta{Key: "mail-7"}}}); err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	<-begun
	s := worker.Stats()
	fmt.Println(s.Busy, "of", s.Slots, "slots are busy")
	close(end)
	stop()
	fmt.Println(<-ended, worker.Stats().Outcomes)
	// Output:
	// 1 of 4 slots are busy
	// <nil> map[done:1]
}

// Health is for probes. adapters/healthonceq answers them over HTTP.
func ExampleWorker_Health() {
	queue, dead, store := inMemoryHealth()
	p := mustHealth(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   store, Scope: "mails",
	}))
	worker := mustHealth(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead}))
	h := worker.Health()
	fmt.Println(h.State)
	fmt.Println("live:", h.Live(nil))
	fmt.Println("ready:", h.Ready(30*time.Second))
	// Output:
	// stopped
	// live: <nil>
	// ready: stopped: Run is not under way
}

// inMemoryHealth makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryHealth() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustHealth(membroker.New(nil)), mustHealth(membroker.New(nil)), mustHealth(memstore.New(nil))
}

func mustHealth[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// A job may take much longer than the visibility timeout: the heartbeat keeps its message hidden
// and its key claimed, without any configuration. Here the ten minutes are virtual.
func Example_longJob() {
	inBubble(func() {
		queue, dead, store := inMemoryLong()
		sendLong(queue, "video-7", "")
		for _, r := range workLong(onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				<-time.After(10 * time.Minute) // transcoding
				return ctx.Err()
			}),
			Store: store, Scope: "videos",
		}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome, "after", r.Process, "with a timeout of", r.Visibility)
			fmt.Println("deliveries:", r.Receives)
			fmt.Println("heartbeat:", r.Beats > 20)
		}
	})
	// Output:
	// done after 10m0s with a timeout of 30s
	// deliveries: 1
	// heartbeat: true
}

// inBubble runs f in virtual time. A test needs only synctest.Test for that; an example has no
// *testing.T. The flags -v, -count and -cpu are set aside meanwhile, because they would show in the
// example's output.
func inBubble(f func()) {
	verbose := flag.Lookup("test.v").Value
	defer func(was string) { _ = verbose.Set(was) }(verbose.String())
	_ = verbose.Set("false")
	var once sync.Once
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "example", F: func(t *testing.T) {
			t.Helper()
			once.Do(func() { synctest.Test(t, func(*testing.T) { f() }) })
		},
	}})
}

// inMemoryLong makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryLong() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustLong(membroker.New(nil)), mustLong(membroker.New(nil)), mustLong(memstore.New(nil))
}

func mustLong[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workLong runs a worker with one slot until n deliveries have ended.
func workLong(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyLong{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustLong(onceq.NewProcessor(c))
	if err := mustLong(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyLong counts deliveries that have ended.
type tallyLong struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyLong) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyLong) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendLong puts one message with the key, or one without where the key is empty.
func sendLong(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
