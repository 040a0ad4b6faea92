package onceq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/onceqtest"
)

// payment is what the producer puts into a message's body, as JSON.
type payment struct {
	Order string
	Cents int
}

// A first program: one queue, one handler. A real program takes its context from
// signal.NotifyContext, its queue from a driver of a service, and a store that outlives the
// process.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	dead, err := membroker.New(&membroker.Options{Name: "dead letters"})
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}

	charge := func(ctx context.Context, j *onceq.Job, p payment) error {
		fmt.Printf("%s: charged %d cents\n", p.Order, p.Cents)
		if p.Order == "order-2" {
			stop() // the last one: Run settles what it has, and returns
		}
		return nil
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(charge),
		Store:   store,
		Scope:   "payments",
	})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := p.Worker(queue, onceq.WorkerConfig{
		DeadLetter:  dead,
		Concurrency: 1, // only so that the lines below come in order
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := onceq.Send(ctx, queue, []broker.Outgoing{
		{Body: []byte(`{"Order":"order-1","Cents":995}`), Meta: &broker.Meta{Key: "order-1"}},
		{Body: []byte(`{"Order":"order-2","Cents":450}`), Meta: &broker.Meta{Key: "order-2"}},
	}); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order-1: charged 995 cents
	// order-2: charged 450 cents
}

// Refund is the payload of a kind of job.
type Refund struct {
	Order string
	Cents int
}

// Refunds is that kind: what producers and workers agree on.
var Refunds = onceq.Kind[Refund]{
	Type: "refund",
	Key:  func(r Refund) string { return r.Order }, // one refund for an order, whoever asks for it
}

// A Kind is one declaration for producers and workers. Here two clicks on a button send two
// messages, and they are one job.
func ExampleKind() {
	queue, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	dead, err := membroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// The producer.
	for range 2 {
		if err := Refunds.Send(ctx, queue, Refund{Order: "A-1", Cents: 995}); err != nil {
			log.Fatal(err)
		}
	}

	// The worker.
	var mux onceq.Mux
	Refunds.On(&mux, func(ctx context.Context, j *onceq.Job, r Refund) error {
		fmt.Printf("refunding %d cents of order %s\n", r.Cents, r.Order)
		stop() // a real one goes on; Run drains when its context ends
		return nil
	})
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Store: store, Scope: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// refunding 995 cents of order A-1
}

// An outbox stores messages in the transaction that makes their jobs, and sends them later. Fill
// gives them their ids before they are stored: however often the outbox sends one, it is the same
// job.
func ExampleFill() {
	ms := []broker.Outgoing{onceq.Message("mail", "", []byte(`{"to":"ada@example.com"}`))}
	if err := onceq.Fill(ms); err != nil {
		log.Fatal(err)
	}
	row, err := json.Marshal(ms[0]) // what the table of the outbox holds
	if err != nil {
		log.Fatal(err)
	}

	var first, second broker.Outgoing // two tries of the relay
	for _, m := range []*broker.Outgoing{&first, &second} {
		if err := json.Unmarshal(row, m); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("the same job:", first.Meta.ID != "" && first.Meta.ID == second.Meta.ID && first.Meta.Key == second.Meta.Key)
	// Output:
	// the same job: true
}

// Send fills in what is missing, in the caller's own slice. So a caller that sends the slice once
// more after an error sends the same jobs.
func ExampleSend() {
	ctx := context.Background()
	queue, dead, store := inMemorySend()
	var producer onceqtest.Process // whose first send is taken, and its answer lost
	producer.At(onceqtest.Fault{Op: onceqtest.Send, Kind: onceqtest.LoseReply})
	to := producer.Producer(queue)
	ms := []broker.Outgoing{{Body: []byte("order 1")}, {Body: []byte("order 2")}}
	fmt.Println(onceq.Send(ctx, to, ms) != nil)
	id := ms[0].Meta.ID
	fmt.Println(onceq.Send(ctx, to, ms) != nil)
	fmt.Println("the same job:", ms[0].Meta.ID == id && ms[0].Meta.Key == id)
	fmt.Println("in the queue:", mustSend(queue.Depth(ctx)).Visible)

	runs := 0
	workSend(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { runs++; return nil }),
		Store:   store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 4)
	fmt.Println("runs:", runs)
	// Output:
	// true
	// false
	// the same job: true
	// in the queue: 4
	// runs: 2
}

// The key says which messages are one job. Take it from what the job is about. Then it also finds
// duplicates that the producer does not know of, such as two clicks on a button.
func ExampleSend_key() {
	queue, dead, store := inMemorySend()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("refunding", j.Key().Key)
			return nil
		}),
		Store: store, Scope: "refunds",
	}
	for range 2 {
		if err := onceq.Send(context.Background(), queue, []broker.Outgoing{{
			Meta: &broker.Meta{Key: "order-7", CorrelationID: "request-12"},
		}}); err != nil {
			fmt.Println(err)
		}
		workSend(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	// Output:
	// refunding order-7
}

// A delay hides the message at first. How long it may be is the broker's limit.
func ExampleSendOne() {
	ctx := context.Background()
	queue := mustSend(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
	reminder := broker.Outgoing{Body: []byte("order 7"), Delay: 10 * time.Minute}
	if err := onceq.SendOne(ctx, queue, &reminder); err != nil {
		fmt.Println(err)
	}
	fmt.Println("delayed:", mustSend(queue.Depth(ctx)).Delayed)

	reminder.Delay = 24 * time.Hour
	err := onceq.SendOne(ctx, queue, &reminder)
	fmt.Println(errors.Is(err, broker.ErrUnsupported), "the limit is", queue.Limits().MaxDelay)
	// Output:
	// delayed: 1
	// true the limit is 15m0s
}

// NotBefore reaches further than a broker's delays. A message that comes early is given back, as
// often as needed. It is not claimed, and no attempt is counted.
func ExampleSend_notBefore() {
	queue, dead, store := inMemorySend()
	tomorrow := time.Now().Add(24 * time.Hour)
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Key: "order-7", NotBefore: tomorrow}})
	for _, r := range workSend(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   store, Scope: "reminders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.Attempt)
	}
	// Output:
	// early 0
}

// A job with Expires does not start when it is late. It is not dropped: it becomes a dead letter.
func ExampleSend_expires() {
	queue, dead, store := inMemorySend()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{
		Body: []byte("your taxi is here"),
		Meta: &broker.Meta{Key: "ride-7", Expires: time.Now().Add(-time.Second)},
	})
	for _, r := range workSend(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Store:   store, Scope: "pushes",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
	}
	// Output:
	// expired expired
}

// inMemorySend makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemorySend() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustSend(membroker.New(nil)), mustSend(membroker.New(nil)), mustSend(memstore.New(nil))
}

func mustSend[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workSend runs a worker with one slot until n deliveries have ended.
func workSend(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallySend{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustSend(onceq.NewProcessor(c))
	if err := mustSend(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallySend counts deliveries that have ended.
type tallySend struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallySend) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallySend) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// A relay is a Worker whose Handler sends on. Here the outbox is a queue in memory; it does its
// work where it is a table of the business's own database.
func ExampleForward() {
	outbox, queue := mustForward(membroker.New(nil)), mustForward(membroker.New(nil))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// The producer, in the transaction that stores the order.
	if err := onceq.Send(ctx, outbox, []broker.Outgoing{
		onceq.Message("mail", "A-1", []byte("thank you")), onceq.Message("ship", "A-1", []byte("to Ada")),
	}); err != nil {
		log.Fatal(err)
	}

	// The relay, in any process, and in any number of them.
	relay := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Forward(queue), Store: onceq.NoStore, Scope: "outbox",
	}))
	relays := mustForward(relay.Worker(outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 100}))

	// The worker, which knows nothing of the outbox.
	var mux onceq.Mux
	var done sync.WaitGroup
	done.Add(2)
	for _, typ := range []string{"mail", "ship"} {
		mux.On(typ, onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			defer done.Done()
			return nil
		}), nil)
	}
	seen := new(forwardedKeys)
	jobs := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: &mux, Store: mustForward(memstore.New(nil)), Scope: "orders", Observer: seen,
	}))
	worker := mustForward(jobs.Worker(queue, onceq.WorkerConfig{DeadLetter: mustForward(membroker.New(nil))}))

	var all sync.WaitGroup
	for _, w := range []*onceq.Worker{relays, worker} {
		all.Go(func() {
			if err := w.Run(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	done.Wait()
	stop()
	all.Wait()
	fmt.Println(seen.mail, seen.ship)
	// Output:
	// orders:mail/A-1 is done orders:ship/A-1 is done
}

// forwardedKeys notes how the jobs of the example ended.
type forwardedKeys struct {
	mu         sync.Mutex
	mail, ship string
}

func (k *forwardedKeys) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (k *forwardedKeys) JobEnded(_ context.Context, r *onceq.JobReport) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := fmt.Sprintf("%v is %v", r.Key, r.Outcome)
	if r.Type == "mail" {
		k.mail = text
	} else {
		k.ship = text
	}
}

// A function that stores rows does a batch in one call. One bad row fails alone.
func ExampleBulk() {
	queue, dead := mustForward(membroker.New(nil)), mustForward(membroker.New(nil))
	ctx, stop := context.WithCancel(context.Background())
	var ms []broker.Outgoing
	for _, row := range []string{"1", "2", "?", "4"} {
		ms = append(ms, onceq.Message("", "row-"+row, []byte(row)))
	}
	if err := onceq.Send(ctx, queue, ms); err != nil {
		log.Fatal(err)
	}
	store := func(_ context.Context, js []*onceq.Job) []error {
		defer stop()
		errs := make([]error, len(js))
		stored := 0
		for i, j := range js {
			if string(j.Message.Body) == "?" {
				errs[i] = onceq.Permanent(fmt.Errorf("%q is no number", j.Message.Body))
				continue
			}
			stored++
		}
		fmt.Println(len(js), "jobs,", stored, "rows stored in one statement")
		return errs
	}
	p := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Bulk(onceq.BulkOptions{Max: 4, Linger: 10 * time.Second}, store),
		Store:   mustForward(memstore.New(nil)), Scope: "rows",
	}))
	w := mustForward(p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead, Concurrency: 8}))
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	d, err := dead.Depth(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Visible, "dead letter")
	// Output:
	// 4 jobs, 3 rows stored in one statement
	// 1 dead letter
}

// Where one message can never be sent, and holds its group, a middleware skips it.
func ExampleForward_skip() {
	outbox, queue := mustForward(membroker.New(nil)), mustForward(membroker.New(&membroker.Options{Preset: membroker.SQSStandard}))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ms := []broker.Outgoing{
		{Body: make([]byte, 2<<20), Group: "order-7", Meta: &broker.Meta{ID: "too-large"}},
		{Body: []byte("paid"), Group: "order-7", Meta: &broker.Meta{ID: "next"}},
	}
	if err := onceq.Send(ctx, outbox, ms); err != nil {
		log.Fatal(err)
	}
	skip := func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.ID() == "too-large" {
				fmt.Println("skipped", j.ID())
				return nil
			}
			defer stop()
			return next.Handle(ctx, j)
		})
	}
	p := mustForward(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Chain(onceq.Forward(queue), skip), Store: onceq.NoStore, Scope: "outbox",
	}))
	if err := mustForward(p.Worker(outbox, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})).Run(ctx); err != nil {
		log.Fatal(err)
	}
	got, err := queue.Receive(context.Background(), broker.ReceiveOptions{Max: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("sent", got[0].Meta.ID)
	// Output:
	// skipped too-large
	// sent next
}

func mustForward[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
