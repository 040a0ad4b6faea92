package onceq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// An error means that the job is tried again later: after a backoff that doubles, until MaxAttempts
// are used up.
func ExampleJobOptions() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "mail-7", "")
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return errors.New("the mail server is down")
		}),
		Store: store, Scope: "mails",
		Defaults: onceq.JobOptions{
			MaxAttempts: 3,
			Backoff:     func(attempt int, err error) time.Duration { return time.Duration(attempt) * time.Millisecond },
		},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 3) {
		fmt.Printf("attempt %d: %s: %s\n", r.Attempt, r.Outcome, r.Err)
	}
	fmt.Println("dead letters:", len(lettersErrors(dead)))
	// Output:
	// attempt 1: retried: the mail server is down
	// attempt 2: retried: the mail server is down
	// attempt 3: failed: the mail server is down
	// dead letters: 1
}

// Permanent says that repeating cannot help: the message becomes a dead letter at once.
func ExamplePermanent() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "mail-7", "nobody@example.com")
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return onceq.Permanent(fmt.Errorf("%s: no such mailbox", j.Message.Body))
		}),
		Store: store, Scope: "mails",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	for _, m := range lettersErrors(dead) {
		fmt.Println(m.Meta.Dead.LastErr)
	}
	// Output:
	// failed permanent
	// nobody@example.com: no such mailbox
}

// RetryAfter says when to try again, as an HTTP API does with its Retry-After header.
func ExampleRetryAfter() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "order-7", "")
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				return onceq.RetryAfter(5*time.Millisecond, errors.New("429 Too Many Requests"))
			}
			return nil
		}),
		Store: store, Scope: "payments",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Println("attempt", r.Attempt, r.Outcome, r.Err)
	}
	// Output:
	// attempt 1 retried 429 Too Many Requests
	// attempt 2 done
}

// A step that was stored does not run again: the second attempt goes on with the mail.
func ExampleStep() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "order-7", "")
	workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			charge, err := onceq.Step(ctx, j, "charge", func(context.Context) (string, error) {
				fmt.Println("charge under", j.EffectKey("charge") != "")
				return "ch_1", nil
			})
			if err != nil {
				return err
			}
			_, err = onceq.Step(ctx, j, "mail", func(context.Context) (string, error) {
				if j.Attempt == 1 {
					return "", errors.New("the mail server is down")
				}
				fmt.Println("mail the receipt of", charge)
				return "sent", nil
			})
			return err
		}),
		Store: store, Scope: "orders",
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return time.Millisecond }},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2)
	// Output:
	// charge under true
	// mail the receipt of ch_1
}

// Postpone gives the job back without using an attempt.
func ExamplePostpone() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "order-7", "")
	calls := 0
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if calls++; calls < 3 {
				return onceq.Postpone(5*time.Millisecond, errors.New("429 Too Many Requests"))
			}
			return nil
		}),
		Store: store, Scope: "payments", Defaults: onceq.JobOptions{MaxAttempts: 1},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 3) {
		fmt.Println("attempt", r.Attempt, r.Outcome)
	}
	// Output:
	// attempt 1 postponed
	// attempt 1 postponed
	// attempt 1 done
}

// Sleep holds no slot: the job is given back, and goes on when its time has come.
func ExampleSleep() {
	queue, dead, store := inMemoryErrors()
	sendErrors(queue, "trial-7", "")
	for _, r := range workErrors(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if err := onceq.Sleep(ctx, j, "trial", 20*time.Millisecond); err != nil { // or 40 days
				return err
			}
			fmt.Println("the trial is over")
			return nil
		}),
		Store: store, Scope: "trials",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Println(r.Outcome)
	}
	// Output:
	// the trial is over
	// postponed
	// done
}

// declined is an error of the program's own. Its class goes into records, logs and dead letters, so
// that these can be counted and searched by class.
type declined struct{ reason string }

func (e declined) Error() string      { return "card declined: " + e.reason }
func (e declined) ErrorClass() string { return "declined" }

// An error with a method ErrorClass brings a class of its own, also when it is wrapped.
func ExampleClassOf() {
	fmt.Println(onceq.ClassOf(errors.New("timeout")))
	fmt.Println(onceq.ClassOf(onceq.Permanent(errors.New("no such account"))))
	fmt.Println(onceq.ClassOf(onceq.Permanent(fmt.Errorf("order 7: %w", declined{"no funds"}))))
	// Output:
	// error
	// permanent
	// declined
}

// A mistake is answered before anything runs: the error names the field that cannot be, and the
// limit.
func ExampleConfigError() {
	_, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   onceq.NoStore, Scope: "payments",
		Lease: 24 * time.Hour,
	})
	if bad, ok := errors.AsType[*onceq.ConfigError](err); ok {
		fmt.Println(bad.Field)
	}
	fmt.Println(err)
	// Output:
	// ProcessorConfig.Lease
	// onceq: ProcessorConfig.Lease: 24h0m0s is not within 100ms and 12h0m0s
}

// inMemoryErrors makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryErrors() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustErrors(membroker.New(nil)), mustErrors(membroker.New(nil)), mustErrors(memstore.New(nil))
}

func mustErrors[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workErrors runs a worker with one slot until n deliveries have ended.
func workErrors(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyErrors{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustErrors(onceq.NewProcessor(c))
	if err := mustErrors(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyErrors counts deliveries that have ended.
type tallyErrors struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyErrors) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyErrors) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersErrors takes the dead letters out of their queue.
func lettersErrors(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustErrors(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}

// sendErrors puts one message with the key, or one without where the key is empty.
func sendErrors(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

// Where an effect can neither be repeated nor looked up, a job that was interrupted after its start
// is parked: it is never run again by itself. A person finds out what happened, and resolves the
// dead letter.
func ExampleJobOptions_interrupted() {
	queue, dead, store := inMemoryInterrupted()
	sendInterrupted(queue, "wire-7", "1,000,000")
	for _, r := range workInterrupted(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("telex: wire", string(j.Message.Body))
			return onceq.Unknown(errors.New("paper jam")) // sent, or not?
		}),
		Store: store, Scope: "wires",
		Defaults: onceq.JobOptions{Interrupted: dedupe.Park},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	_, status, err := onceq.Result[string](context.Background(), store, dedupe.Key{Scope: "wires", Key: "wire-7"})
	fmt.Println(status, err)
	fmt.Println("dead letters:", len(lettersInterrupted(dead)))
	// Output:
	// telex: wire 1,000,000
	// parked interrupted
	// parked <nil>
	// dead letters: 1
}

// A plain error is the handler's word that nothing has happened, under Park as well: the job is
// tried again.
func ExampleJobOptions_interruptedRetry() {
	queue, dead, store := inMemoryInterrupted()
	sendInterrupted(queue, "wire-7", "1,000,000")
	for _, r := range workInterrupted(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				return onceq.RetryAfter(0, errors.New("no dial tone"))
			}
			fmt.Println("telex: wire", string(j.Message.Body))
			return nil
		}),
		Store: store, Scope: "wires",
		Defaults: onceq.JobOptions{Interrupted: dedupe.Park},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Println(r.Outcome, r.Err)
	}
	// Output:
	// telex: wire 1,000,000
	// retried no dial tone
	// done
}

// inMemoryInterrupted makes what the examples run on: a queue, a queue for dead letters and a
// store.
func inMemoryInterrupted() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustInterrupted(membroker.New(nil)), mustInterrupted(membroker.New(nil)), mustInterrupted(memstore.New(nil))
}

func mustInterrupted[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workInterrupted runs a worker with one slot until n deliveries have ended.
func workInterrupted(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyInterrupted{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustInterrupted(onceq.NewProcessor(c))
	if err := mustInterrupted(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyInterrupted counts deliveries that have ended.
type tallyInterrupted struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyInterrupted) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyInterrupted) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersInterrupted takes the dead letters out of their queue.
func lettersInterrupted(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustInterrupted(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}

// sendInterrupted puts one message with the key, or one without where the key is empty.
func sendInterrupted(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

// A dead letter is the message as it was, with the reason in its metadata. Sent back unchanged, it
// runs exactly that failure once more. A second copy of it finds the job done.
func Example_deadLetter() {
	ctx := context.Background()
	queue, dead, store := inMemoryDeadletter()
	repaired := false
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if !repaired {
				return onceq.Permanent(errors.New("no price for article 12"))
			}
			return nil
		}),
		Store: store, Scope: "invoices",
	}
	sendDeadletter(queue, "invoice-7", "article 12")
	workDeadletter(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)

	letter := lettersDeadletter(dead)[0]
	d := letter.Meta.Dead
	fmt.Printf("%s: %s: %s (attempts: %d, from %s)\n", letter.Body, d.Class, d.LastErr, d.Attempts, d.Source)

	repaired = true
	for range 2 {
		again := broker.Outgoing{Body: letter.Body, Attributes: letter.Attributes, Meta: letter.Meta, Group: letter.Group}
		if err := onceq.SendOne(ctx, queue, &again); err != nil {
			fmt.Println(err)
		}
		for _, r := range workDeadletter(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome)
		}
	}
	// Output:
	// article 12: permanent: no price for article 12 (attempts: 1, from invoices)
	// done
	// already-done
}

// A job that has failed runs again only by its dead letter, not by a duplicate of its message. The
// duplicate makes sure that there is a letter.
func Example_failedDuplicate() {
	queue, dead, store := inMemoryDeadletter()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return onceq.Permanent(errors.New("no price for article 12"))
		}),
		Store: store, Scope: "invoices",
	}
	for range 2 {
		sendDeadletter(queue, "invoice-7", "article 12")
		for _, r := range workDeadletter(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome, r.ErrClass)
		}
	}
	ls := lettersDeadletter(dead)
	fmt.Println(len(ls), "letters of one failure:", ls[0].Meta.Dead.Fence == ls[1].Meta.Dead.Fence)
	// Output:
	// failed permanent
	// already-failed permanent
	// 2 letters of one failure: true
}

// KeepInQueue leaves what cannot be done to the queue's own redrive. The worker gives it back for
// an hour at a time, and never acks it.
func ExampleKeepInQueue() {
	queue, _, store := inMemoryDeadletter()
	sendDeadletter(queue, "invoice-7", "article 12")
	for _, r := range workDeadletter(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return onceq.Permanent(errors.New("no price for article 12"))
		}),
		Store: store, Scope: "invoices",
	}, queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	fmt.Println("in the queue, hidden:", mustDeadletter(queue.Depth(context.Background())).Delayed)
	// Output:
	// retried permanent
	// in the queue, hidden: 1
}

// inMemoryDeadletter makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryDeadletter() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustDeadletter(membroker.New(nil)), mustDeadletter(membroker.New(nil)), mustDeadletter(memstore.New(nil))
}

func mustDeadletter[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workDeadletter runs a worker with one slot until n deliveries have ended.
func workDeadletter(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyDeadletter{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustDeadletter(onceq.NewProcessor(c))
	if err := mustDeadletter(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyDeadletter counts deliveries that have ended.
type tallyDeadletter struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyDeadletter) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyDeadletter) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersDeadletter takes the dead letters out of their queue.
func lettersDeadletter(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustDeadletter(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}

// sendDeadletter puts one message with the key, or one without where the key is empty.
func sendDeadletter(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

// Batches serve an entry point of your own, where somebody else receives and acks. Here it is a
// function that is called by HTTP with one message, and answers with a status. Each delivery ends
// in a Disposition.
func ExampleBatches_Process() {
	dead, store := inMemoryBatches()
	p := mustBatches(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				return onceq.RetryAfter(time.Minute, errors.New("the ledger is locked"))
			}
			return nil
		}),
		Key: func(m *broker.Message) (dedupe.Key, error) {
			return dedupe.Key{Key: m.Attributes["event-id"]}, nil
		},
		Store: store, Scope: "ledger",
	}))
	batches := mustBatches(p.Batches(onceq.BatchConfig{DeadLetter: dead}))

	push := func(ctx context.Context, event string) (status int) {
		m := &broker.Message{ID: "push", Attributes: map[string]string{"event-id": event}}
		until := time.Now().Add(30 * time.Second) // when the caller gives up
		batches.Process(ctx, []onceq.Delivery{{Message: m, Until: until}}, nil, func(_ int, d onceq.Disposition) {
			fmt.Println(d.Action, d.Delay, d.Claimed, d.Report.Outcome)
			status = 503
			if d.Action == onceq.Ack {
				status = 204
			}
		})
		return status
	}
	for range 3 {
		fmt.Println(push(context.Background(), "event-7"))
	}
	// Output:
	// nack 1m0s won retried
	// 503
	// ack 0s won done
	// 204
	// ack 0s already-done already-done
	// 204
}

// inMemoryBatches makes what the example runs on: a queue for dead letters and a store.
func inMemoryBatches() (dead *membroker.Broker, store *memstore.Store) {
	return mustBatches(membroker.New(nil)), mustBatches(memstore.New(nil))
}

func mustBatches[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
