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
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// One queue carries jobs of several types. Each type has its own handler, options and scope of
// keys.
func ExampleMux() {
	mux := new(onceq.Mux)
	mux.On("mail", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		fmt.Println("mail", j.Key())
		return nil
	}), nil)
	mux.On("charge", onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
		deadline, _ := ctx.Deadline()
		fmt.Println("charge", j.Key(), "with a deadline:", !deadline.IsZero())
		return nil
	}), &onceq.JobOptions{
		MaxAttempts: 3,
		Timeout:     time.Minute,
		Interrupted: dedupe.Park, // a charge in doubt is for a person to decide
	})
	fmt.Println(mux.Types())

	queue, dead, store := inMemoryMux()
	if err := onceq.Send(context.Background(), queue, []broker.Outgoing{
		{Meta: &broker.Meta{Type: "mail", Key: "order-7"}},
		{Meta: &broker.Meta{Type: "charge", Key: "order-7"}},
	}); err != nil {
		fmt.Println(err)
	}
	workMux(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2)
	// Output:
	// [charge mail]
	// mail shop:mail/order-7
	// charge shop:charge/order-7 with a deadline: true
}

// A type that this worker does not know is given back: during a rolling deploy another worker may
// know it.
func ExampleMux_Handle() {
	mux := new(onceq.Mux)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)

	queue, dead, store := inMemoryMux()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Type: "invoice", Key: "order-7"}})
	for _, r := range workMux(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
		fmt.Println(r.Err)
	}
	// Output:
	// retried no-handler
	// onceq: no handler for type "invoice"
}

// noted is a middleware: it gets the handler to wrap and answers the wrapped one.
func noted(name string) onceq.Middleware {
	return func(next onceq.Handler) onceq.Handler {
		return onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println(name, "begins", j.Key().Key)
			err := next.Handle(ctx, j)
			fmt.Println(name, "ends:", err)
			return err
		})
	}
}

// Use puts middleware around all handlers of a Mux, those that were set before included.
func ExampleMux_Use() {
	mux := new(onceq.Mux)
	mux.On("mail", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)
	mux.Use(noted("outer"), noted("inner"))

	queue, dead, store := inMemoryMux()
	_ = onceq.SendOne(context.Background(), queue, &broker.Outgoing{Meta: &broker.Meta{Type: "mail", Key: "mail-7"}})
	workMux(onceq.ProcessorConfig{Handler: mux, Store: store, Scope: "shop"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	// Output:
	// outer begins mail-7
	// inner begins mail-7
	// inner ends: <nil>
	// outer ends: <nil>
}

// Chain wraps one handler. The first middleware is the outermost.
func ExampleChain() {
	queue, dead, store := inMemoryMux()
	handler := onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error { return nil })
	sendMux(queue, "mail-7", "")
	workMux(onceq.ProcessorConfig{
		Handler: onceq.Chain(handler, noted("timer")),
		Store:   store, Scope: "mails",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	// Output:
	// timer begins mail-7
	// timer ends: <nil>
}

// inMemoryMux makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryMux() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustMux(membroker.New(nil)), mustMux(membroker.New(nil)), mustMux(memstore.New(nil))
}

func mustMux[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workMux runs a worker with one slot until n deliveries have ended.
func workMux(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyMux{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustMux(onceq.NewProcessor(c))
	if err := mustMux(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyMux counts deliveries that have ended.
type tallyMux struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyMux) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyMux) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendMux puts one message with the key, or one without where the key is empty.
func sendMux(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

// A queue of bare messages, of a producer that does not use onceq, goes over from one handler to a
// Mux and a Kind. The Kind says whose place it takes: so order A-1, which the handler has charged,
// is not charged again, neither as a bare message nor as the Kind's.
func ExampleMux_Untyped() {
	queue, dead, store := inMemoryMux()
	type order struct{ OrderID string }
	charge := func(_ context.Context, j *onceq.Job, o order) error {
		fmt.Println("charge", o.OrderID, "under", j.Key())
		return nil
	}
	key := func(m *broker.Message) (dedupe.Key, error) {
		if m.Meta != nil && m.Meta.Key != "" {
			return dedupe.Key{Key: m.Meta.Key}, nil
		}
		var o order
		if err := json.Unmarshal(m.Body, &o); err != nil || o.OrderID == "" {
			return dedupe.Key{}, errors.New("no OrderID in the body")
		}
		return dedupe.Key{Key: o.OrderID}, nil
	}
	bare := func(id string) {
		if _, err := queue.Send(context.Background(), []broker.Outgoing{{Body: []byte(`{"OrderID":"` + id + `"}`)}}); err != nil {
			log.Fatal(err)
		}
	}

	bare("A-1")
	workMux(onceq.ProcessorConfig{Handler: onceq.JSON(charge), Key: key, Store: store, Scope: "orders"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)

	orders := onceq.Kind[order]{
		Type: "order", Key: func(o order) string { return o.OrderID },
		Options: onceq.JobOptions{Was: onceq.OneHandler},
	}
	var mux onceq.Mux
	orders.On(&mux, charge)
	mux.Untyped("order") // bare messages are orders
	bare("A-1")
	bare("A-2")
	if err := orders.Send(context.Background(), queue, order{"A-1"}, order{"A-2"}); err != nil {
		log.Fatal(err)
	}
	workMux(onceq.ProcessorConfig{Handler: &mux, Key: key, Store: store, Scope: "orders"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 4)
	// Output:
	// charge A-1 under orders/A-1
	// charge A-2 under orders/A-2
}

// Types that were one handler's share its scope, so their keys must tell them apart.
func ExampleMux_OneScope() {
	queue, dead, store := inMemoryMux()
	var mux onceq.Mux
	for _, typ := range []string{"charge", "mail"} {
		mux.On(typ, onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			fmt.Println(j.Type(), "under", j.Key())
			return nil
		}), nil)
	}
	mux.OneScope()
	for _, m := range []broker.Outgoing{onceq.Message("charge", "charge/7", nil), onceq.Message("mail", "mail/7", nil)} {
		if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
			log.Fatal(err)
		}
		workMux(onceq.ProcessorConfig{Handler: &mux, Store: store, Scope: "orders"}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	// Output:
	// charge under orders/charge/7
	// mail under orders/mail/7
}

// JSON decodes the body. One that does not decode is a dead letter at once: repeating would not
// change it.
func ExampleJSON() {
	type mail struct{ To string }
	queue, dead, store := inMemoryTyped()
	sendTyped(queue, "mail-7", `{"To":"ada@example.com"}`)
	sendTyped(queue, "mail-8", `{"To":`)
	for _, r := range workTyped(onceq.ProcessorConfig{
		Handler: onceq.JSON(func(ctx context.Context, j *onceq.Job, m mail) error {
			fmt.Println("to", m.To)
			return nil
		}),
		Store: store, Scope: "mails",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Printf("%s: %s %q\n", r.Key.Key, r.Outcome, r.ErrClass)
	}
	// Output:
	// to ada@example.com
	// mail-7: done ""
	// mail-8: failed "decode"
}

// JSONResult keeps what the handler returns with the key, for whoever asks later.
func ExampleJSONResult() {
	type order struct{ Cents int }
	type receipt struct{ Number string }
	queue, dead, store := inMemoryTyped()
	c := onceq.ProcessorConfig{
		Handler: onceq.JSONResult(func(ctx context.Context, j *onceq.Job, o order) (receipt, error) {
			fmt.Println("charging", o.Cents)
			return receipt{"R-1"}, nil
		}),
		Store: store, Scope: "payments",
	}
	for range 2 { // the second time, the producer tries again
		sendTyped(queue, "order-7", `{"Cents":995}`)
		for _, r := range workTyped(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Printf("%s %s\n", r.Outcome, r.Result)
		}
	}
	// Output:
	// charging 995
	// done {"Number":"R-1"}
	// already-done {"Number":"R-1"}
}

// Result reads what became of a job: here, a web page that polls for its receipt.
func ExampleResult() {
	type receipt struct{ Number string }
	ctx := context.Background()
	queue, dead, store := inMemoryTyped()
	key := dedupe.Key{Scope: "payments", Key: "order-7"}

	_, status, err := onceq.Result[receipt](ctx, store, key)
	fmt.Println(status, err)

	sendTyped(queue, "order-7", `{}`)
	workTyped(onceq.ProcessorConfig{
		Handler: onceq.JSONResult(func(context.Context, *onceq.Job, struct{}) (receipt, error) {
			return receipt{"R-1"}, nil
		}),
		Store: store, Scope: "payments",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	r, status, err := onceq.Result[receipt](ctx, store, key)
	fmt.Println(status, r.Number, err)
	// Output:
	// none <nil>
	// done R-1 <nil>
}

// Wait waits for the result of a job that somebody else runs, as an HTTP handler does. A second
// SendOnce of the job finds it done, and sends nothing.
func ExampleWait() {
	queue, dead, store := inMemoryTyped()
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSONResult(func(context.Context, *onceq.Job, struct{}) (string, error) { return "R-1", nil }),
		Store:   store, Scope: "payments",
	})
	if err != nil {
		log.Fatal(err)
	}
	w, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()

	key := dedupe.Key{Scope: "payments", Key: "order-7"}
	m := onceq.Message("", "", []byte(`{}`))
	found, err := onceq.SendOnce(ctx, store, queue, key, &m)
	fmt.Println(found == nil, err)
	fmt.Println(onceq.Wait[string](ctx, store, key))
	found, err = onceq.SendOnce(ctx, store, queue, key, &m)
	fmt.Println(found.Status, err)

	stop()
	<-ended
	// Output:
	// true <nil>
	// R-1 <nil>
	// done <nil>
}

// SetResult keeps any bytes with the key.
func ExampleJob_SetResult() {
	queue, dead, store := inMemoryTyped()
	sendTyped(queue, "thumb-7", "")
	for _, r := range workTyped(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			return j.SetResult([]byte("s3://thumbs/7.png"))
		}),
		Store: store, Scope: "thumbs",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Printf("%s %s\n", r.Outcome, r.Result)
	}
	// Output:
	// done s3://thumbs/7.png
}

// NoStore says aloud that there is no store: each job runs at least once, and what needs a record
// fails.
func ExampleNoStore() {
	queue, dead, _ := inMemoryTyped()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("cache warmed, fence", j.Fence())
			return nil
		}),
		Store: onceq.NoStore, Scope: "cache",
	}
	for range 2 {
		sendTyped(queue, "page-7", "")
		workTyped(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	_, _, err := onceq.Result[string](context.Background(), onceq.NoStore, dedupe.Key{Scope: "cache", Key: "page-7"})
	fmt.Println(errors.Is(err, onceq.ErrNoStore))
	// Output:
	// cache warmed, fence 0
	// cache warmed, fence 0
	// true
}

// inMemoryTyped makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryTyped() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustTyped(membroker.New(nil)), mustTyped(membroker.New(nil)), mustTyped(memstore.New(nil))
}

func mustTyped[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workTyped runs a worker with one slot until n deliveries have ended.
func workTyped(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyTyped{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustTyped(onceq.NewProcessor(c))
	if err := mustTyped(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyTyped counts deliveries that have ended.
type tallyTyped struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyTyped) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyTyped) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendTyped puts one message with the key, or one without where the key is empty.
func sendTyped(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

// Messages of one group run one after the other, in their order, however many slots there are;
// groups do not wait for each other. A message that has failed for good lets the rest of its group
// go on.
func Example_groups() {
	fifo := &membroker.Options{Preset: membroker.SQSFIFO}
	queue, dead, store := mustGroups(membroker.New(fifo)), mustGroups(membroker.New(fifo)), mustGroups(memstore.New(nil))
	var events []broker.Outgoing
	for _, e := range []string{"opened", "paid", "???", "shipped"} {
		events = append(events, broker.Outgoing{
			Body: []byte(e), Group: "order-7", DedupID: "order-7 " + e,
			Meta: &broker.Meta{Key: "order-7 " + e},
		})
	}
	if err := onceq.Send(context.Background(), queue, events); err != nil {
		fmt.Println(err)
	}
	for _, r := range workGroups(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if string(j.Message.Body) == "???" {
				return onceq.Permanent(errors.New("unknown event"))
			}
			return nil
		}),
		Store: store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 4) {
		fmt.Println(r.Key.Key, r.Outcome)
	}
	// Output:
	// order-7 opened done
	// order-7 paid done
	// order-7 ??? failed
	// order-7 shipped done
}

// HoldGroup is for groups whose order is sacred: nothing overtakes a message that cannot be done.
// It stays at the head of its group, and the others behind it.
func ExampleWorkerConfig_holdGroup() {
	fifo := &membroker.Options{Preset: membroker.SQSFIFO}
	queue, dead, store := mustGroups(membroker.New(fifo)), mustGroups(membroker.New(fifo)), mustGroups(memstore.New(nil))
	if err := onceq.Send(context.Background(), queue, []broker.Outgoing{
		{Body: []byte("???"), Group: "order-7", Meta: &broker.Meta{Key: "event-1"}},
		{Body: []byte("shipped"), Group: "order-7", Meta: &broker.Meta{Key: "event-2"}},
	}); err != nil {
		fmt.Println(err)
	}
	for _, r := range workGroups(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Printf("running %s\n", j.Message.Body)
			return onceq.Permanent(errors.New("unknown event"))
		}),
		Store: store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead, HoldGroup: true}, 2) {
		fmt.Println(r.Outcome)
	}
	fmt.Println("dead letters:", len(lettersGroups(dead)))
	// Output:
	// running ???
	// retried
	// handed-back
	// dead letters: 0
}

func mustGroups[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workGroups runs a worker with one slot until n deliveries have ended.
func workGroups(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyGroups{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustGroups(onceq.NewProcessor(c))
	if err := mustGroups(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyGroups counts deliveries that have ended.
type tallyGroups struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyGroups) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyGroups) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// lettersGroups takes the dead letters out of their queue.
func lettersGroups(dead *membroker.Broker) []*broker.Message {
	ctx := context.Background()
	ms := mustGroups(dead.Receive(ctx, broker.ReceiveOptions{Max: 10}))
	for _, m := range ms {
		if err := dead.Ack(ctx, []broker.Receipt{m.Receipt}); err != nil {
			log.Fatal(err)
		}
	}
	return ms
}
