package onceq_test

import (
	"context"
	"crypto/sha256"
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

// Do runs a function once for a key, without a queue: here for a webhook, which its sender repeats
// until it gets an answer. A Processor that is for Do only needs a Store and a Scope.
func ExampleDo() {
	_, _, store := inMemoryDo()
	p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "webhooks"}))
	api := &chargeAPI{seen: make(map[string]string)}

	webhook := func(ctx context.Context, event string, cents int) (string, error) {
		return onceq.Do(ctx, p, dedupe.Key{Key: event}, nil, func(ctx context.Context, j *onceq.Job) (string, error) {
			// The process may die after the charge and before its record. Then the next call
			// charges with the same key, and the API answers as before.
			return api.charge(j.EffectKey("charge"), cents), nil
		})
	}
	fmt.Println(webhook(context.Background(), "event-7", 995))
	fmt.Println(webhook(context.Background(), "event-7", 995))
	fmt.Println(onceq.Result[string](context.Background(), store, dedupe.Key{Scope: "webhooks", Key: "event-7"}))
	// Output:
	// charge-1: 995 cents
	// charge-1 <nil>
	// charge-1 <nil>
	// charge-1 done <nil>
}

// chargeAPI stands for a payment API that takes an idempotency key, as most do.
type chargeAPI struct{ seen map[string]string }

func (a *chargeAPI) charge(key string, cents int) string {
	if id, ok := a.seen[key]; ok {
		return id
	}
	id := fmt.Sprintf("charge-%d", len(a.seen)+1)
	fmt.Printf("%s: %d cents\n", id, cents)
	a.seen[key] = id
	return id
}

// A cron job runs in several processes, so that any of them may be down, and once for each slot of
// its schedule. Its key is its name with the slot's time. A process that was down catches up by
// going through the last slots.
func ExampleDo_cron() {
	_, _, store := inMemoryDo()
	const every = 24 * time.Hour
	night := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

	var processes sync.WaitGroup
	for range 3 {
		p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "cron"}))
		processes.Go(func() {
			for day := range 2 {
				now := night.Add(time.Duration(day)*every + 3*time.Second) // no two clocks are alike
				slot := now.Truncate(every)
				key := dedupe.Key{Key: "report/" + slot.Format(time.RFC3339)}
				_, err := onceq.Do(context.Background(), p, key, &onceq.DoOptions{Wait: time.Minute},
					func(ctx context.Context, j *onceq.Job) (struct{}, error) {
						fmt.Println("report of", slot.Format(time.DateOnly))
						return struct{}{}, nil
					})
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	processes.Wait()
	// Unordered output:
	// report of 2026-03-01
	// report of 2026-03-02
}

// A key that has failed for good stays failed, whoever calls. When the cause is mended, Reopen
// lifts that failure. It takes the failure's fence, which is in the error and in the record.
func ExampleDoOptions() {
	_, _, store := inMemoryDo()
	p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "exports"}))
	ctx, key := context.Background(), dedupe.Key{Key: "export-7"}
	mended := false
	export := func(context.Context, *onceq.Job) (int, error) {
		if !mended {
			return 0, onceq.Permanent(errors.New("no such table"))
		}
		return 42, nil
	}

	_, err := onceq.Do(ctx, p, key, nil, export)
	fmt.Println(err)
	_, err = onceq.Do(ctx, p, key, nil, export)
	fmt.Println(err)

	mended = true
	_, err = onceq.Do(ctx, p, key, nil, export)
	var failed *onceq.FailedError
	if errors.As(err, &failed) {
		fmt.Println("still failed:", failed.Class)
		rows, err := onceq.Do(ctx, p, key, &onceq.DoOptions{Reopen: failed.Fence}, export)
		fmt.Println(rows, err)
	}
	// Output:
	// no such table
	// onceq: exports/export-7 has failed (permanent): no such table
	// still failed: permanent
	// 42 <nil>
}

// A call that finds its key in progress answers when to ask again. With Wait it waits for the
// result.
func ExampleInProgressError() {
	_, _, store := inMemoryDo()
	p := mustDo(onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "exports"}))
	ctx, key := context.Background(), dedupe.Key{Key: "export-7"}

	begun, finish := make(chan struct{}), make(chan struct{})
	export := func(context.Context, *onceq.Job) (int, error) {
		close(begun)
		<-finish
		return 42, nil
	}
	go onceq.Do(ctx, p, key, nil, export)
	<-begun

	_, err := onceq.Do(ctx, p, key, nil, export)
	var busy *onceq.InProgressError
	fmt.Println(errors.As(err, &busy), busy.RetryAfter)

	time.AfterFunc(10*time.Millisecond, func() { close(finish) })
	fmt.Println(onceq.Do(ctx, p, key, &onceq.DoOptions{Wait: time.Minute}, export))
	// Output:
	// true 1s
	// 42 <nil>
}

// inMemoryDo makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryDo() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustDo(membroker.New(nil)), mustDo(membroker.New(nil)), mustDo(memstore.New(nil))
}

func mustDo[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// A producer that does not use onceq sends no key. ProcessorConfig.Key finds one, in the body or in
// an attribute. Never use the message's id, because the producer's retry has another.
func ExampleProcessorConfig_key() {
	ctx := context.Background()
	queue, dead, store := inMemoryKeys()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Println("running", j.Key())
			return nil
		}),
		Key: func(m *broker.Message) (dedupe.Key, error) {
			var upload struct{ Object, Version string }
			if err := json.Unmarshal(m.Body, &upload); err != nil {
				return dedupe.Key{}, err
			}
			return dedupe.Key{Key: upload.Object + "@" + upload.Version}, nil
		},
		Store: store, Scope: "uploads",
	}
	for _, body := range []string{
		`{"Object":"a.png","Version":"3"}`,
		`{"Object":"a.png","Version":"3"}`, // the bucket tells it twice
		`{"Object":"a.png","Version":"4"}`,
		`hello`,
	} {
		if err := queue.SendRaw(ctx, []byte(body), nil); err != nil {
			fmt.Println(err)
		}
		for _, r := range workKeys(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(r.Outcome)
		}
	}
	// Output:
	// running uploads/a.png@3
	// done
	// already-done
	// running uploads/a.png@4
	// done
	// no-key
}

// A fingerprint finds two jobs that share a key by mistake. The second one becomes a dead letter.
// Without a fingerprint it would count as a duplicate, and nobody would see that it is lost.
func ExampleProcessorConfig_fingerprint() {
	queue, dead, store := inMemoryKeys()
	c := onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
		Fingerprint: func(m *broker.Message) []byte {
			sum := sha256.Sum256(m.Body)
			return sum[:]
		},
		Store: store, Scope: "payments",
	}
	for _, body := range []string{"995 cents", "995 cents", "450 cents"} {
		sendKeys(queue, "order-7", body)
		for _, r := range workKeys(c, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
			fmt.Println(body, r.Outcome)
		}
	}
	// Output:
	// 995 cents done
	// 995 cents already-done
	// 450 cents mismatch
}

// Scopes keep kinds of work apart in one store: the same key in two scopes is two jobs.
func ExampleJob_Key() {
	queue, dead, store := inMemoryKeys()
	for _, scope := range []string{"payments", "mails"} {
		sendKeys(queue, "order-7", "")
		workKeys(onceq.ProcessorConfig{
			Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
				fmt.Println("running", j.Key())
				return nil
			}),
			Store: store, Scope: scope,
		}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1)
	}
	// Output:
	// running payments/order-7
	// running mails/order-7
}

// inMemoryKeys makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryKeys() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustKeys(membroker.New(nil)), mustKeys(membroker.New(nil)), mustKeys(memstore.New(nil))
}

func mustKeys[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workKeys runs a worker with one slot until n deliveries have ended.
func workKeys(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyKeys{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustKeys(onceq.NewProcessor(c))
	if err := mustKeys(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyKeys counts deliveries that have ended.
type tallyKeys struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyKeys) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyKeys) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendKeys puts one message with the key, or one without where the key is empty.
func sendKeys(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}

// payments stands for a payment API that takes an idempotency key, as most do. For a key that it
// has seen, it gives the first answer again.
type payments struct{ seen map[string]string }

func (p *payments) charge(key string, cents int) string {
	if id, ok := p.seen[key]; ok {
		return id
	}
	id := fmt.Sprintf("charge-%d", len(p.seen)+1)
	fmt.Printf("%s: %d cents\n", id, cents)
	p.seen[key] = id
	return id
}

// EffectKey is equal over all attempts of a job. So the API charges once, although the worker does
// not know, after a crash or an error, whether it had charged.
func ExampleJob_EffectKey() {
	api := &payments{seen: make(map[string]string)}
	queue, dead, store := inMemoryEffects()
	sendEffects(queue, "order-7", "")
	for _, r := range workEffects(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			id := api.charge(j.EffectKey("charge"), 995)
			if j.Attempt == 1 {
				return onceq.RetryAfter(0, errors.New("no answer"))
			}
			fmt.Println("attempt", j.Attempt, "has", id)
			return nil
		}),
		Store: store, Scope: "payments",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2) {
		fmt.Println(r.Outcome)
	}
	// Output:
	// charge-1: 995 cents
	// attempt 2 has charge-1
	// retried
	// done
}

// The key of an effect can be made without the job, for example in a support tool that looks up a
// charge. It depends on the step, so that a job can have several effects. Its value never changes.
func ExampleEffectKey() {
	k := dedupe.Key{Scope: "payments", Key: "order-7"}
	fmt.Println(onceq.EffectKey(k, "charge"))
	fmt.Println(onceq.EffectKey(k, "mail"))
	// Output:
	// bfcb27719bfae15e86d71f9bbd3be95a
	// dd06b802a42137e15a1b17a3504fc664
}

// A fence rises with every claim of a key. Where the effect's own database can compare fences, a
// worker that was overtaken changes nothing, although it does not know that it was.
func ExampleJob_Fence() {
	var row struct {
		fence uint64
		state string
	}
	// This does what UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence <= $2 does.
	update := func(state string, fence uint64) {
		if fence >= row.fence {
			row.state, row.fence = state, fence
		}
	}
	queue, dead, store := inMemoryEffects()
	sendEffects(queue, "order-7", "")
	var first uint64
	workEffects(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			if j.Attempt == 1 {
				first = j.Fence()
				return onceq.RetryAfter(0, errors.New("interrupted"))
			}
			update("shipped", j.Fence())
			update("packed", first) // a late write of the first attempt
			return nil
		}),
		Store: store, Scope: "orders",
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 2)
	fmt.Println(row.state)
	// Output:
	// shipped
}

// A timeout ends the handler's context. context.Cause answers which end it was.
func ExampleErrTimeout() {
	queue, dead, store := inMemoryEffects()
	sendEffects(queue, "report-7", "")
	for _, r := range workEffects(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			<-ctx.Done() // a query that takes too long
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, onceq.ErrTimeout):
				fmt.Println("too slow")
			case errors.Is(cause, onceq.ErrLeaseLost):
				fmt.Println("somebody else may work on this job now")
			case errors.Is(cause, onceq.ErrDraining):
				fmt.Println("the worker stops")
			}
			return ctx.Err()
		}),
		Store: store, Scope: "reports",
		Defaults: onceq.JobOptions{Timeout: 10 * time.Millisecond, MaxAttempts: 1},
	}, queue, onceq.WorkerConfig{DeadLetter: dead}, 1) {
		fmt.Println(r.Outcome, r.ErrClass)
		fmt.Println(r.Err)
	}
	// Output:
	// too slow
	// failed timeout
	// context canceled (cut off: onceq: job timeout)
}

// inMemoryEffects makes what the examples run on: a queue, a queue for dead letters and a store.
func inMemoryEffects() (queue, dead *membroker.Broker, store *memstore.Store) {
	return mustEffects(membroker.New(nil)), mustEffects(membroker.New(nil)), mustEffects(memstore.New(nil))
}

func mustEffects[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// workEffects runs a worker with one slot until n deliveries have ended.
func workEffects(c onceq.ProcessorConfig, queue broker.Receiver, w onceq.WorkerConfig, n int) []onceq.JobReport {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &tallyEffects{Observer: c.Observer, want: n, reached: stop}
	c.Observer, w.Concurrency = t, 1
	p := mustEffects(onceq.NewProcessor(c))
	if err := mustEffects(p.Worker(queue, w)).Run(ctx); err != nil {
		log.Fatal(err)
	}
	return t.records[:n]
}

// tallyEffects counts deliveries that have ended.
type tallyEffects struct {
	onceq.Observer // may be nil
	want           int
	reached        func()

	mu      sync.Mutex
	records []onceq.JobReport
}

func (t *tallyEffects) JobStarted(ctx context.Context, j *onceq.Job) context.Context {
	if t.Observer == nil {
		return ctx
	}
	return t.Observer.JobStarted(ctx, j)
}

func (t *tallyEffects) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if t.Observer != nil {
		t.Observer.JobEnded(ctx, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.records = append(t.records, *r); len(t.records) == t.want {
		t.reached()
	}
}

// sendEffects puts one message with the key, or one without where the key is empty.
func sendEffects(queue broker.Sender, key, body string) {
	m := broker.Outgoing{Body: []byte(body), Meta: &broker.Meta{Key: key}}
	if err := onceq.SendOne(context.Background(), queue, &m); err != nil {
		log.Fatal(err)
	}
}
