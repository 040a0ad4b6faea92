// Command payment charges cards over an API that takes an idempotency key.
//
// The trap: an answer that does not come says nothing about the charge. If the worker asks again
// under a new key, or under one made for each attempt, it charges twice. If it does not ask again,
// it may never charge.
//
// The answer: job.EffectKey("charge"), equal over all attempts, crashes and replays of the job. A
// timeout is a plain error: the next attempt sends the same key and gets the first answer. 429 says
// when to come back: RetryAfter. 402 will not change: Permanent, and a dead letter. The API forgets
// a key after a day, so the jobs expire before: Meta.Expires.
//
// Beware: the API keeps a decline with its key, as others do. A replay after the customer has given
// another card gets the old decline. There the card belongs into the step: EffectKey("charge/" +
// card).
//
//	go run ./examples/payment
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/examples/internal/screen"
)

// This file owns the handler that charges, and the scene. main and the tests call run, and the
// worker calls charge, one at a time. Nothing is locked here: api.go, the server that remembers
// keys, has a lock of its own.

type order struct {
	Customer string
	Cents    int
}

type receipt struct{ Charge string }

// callTimeout bounds one call of the API.
const callTimeout = 100 * time.Millisecond

// charger is the program's own work.
type charger struct {
	url    string
	client *http.Client
	key    func(*onceq.Job) string
}

// effectKey is the key as it should be.
func effectKey(j *onceq.Job) string { return j.EffectKey("charge") }

// freshKey is the naive one: it protects from a proxy that repeats a request, and from nothing
// else.
func freshKey(*onceq.Job) string { return rand.Text() }

func (c *charger) charge(ctx context.Context, j *onceq.Job, o order) (r receipt, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(o)
	if err != nil {
		return r, onceq.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return r, onceq.Permanent(err)
	}
	req.Header.Set("Idempotency-Key", c.key(j))
	resp, err := c.client.Do(req)
	if err != nil {
		return r, fmt.Errorf("charged or not? %w", err) // the next attempt asks, by the same key
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		err := json.NewDecoder(resp.Body).Decode(&r) // an answer cut short is no answer: asked again
		return r, err
	case code == http.StatusPaymentRequired:
		return r, onceq.Permanent(declined{o.Customer})
	case code == http.StatusTooManyRequests, code == http.StatusConflict: // too many; or the first call still runs
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return r, onceq.RetryAfter(time.Duration(max(1, seconds))*time.Second, fmt.Errorf("the API answered %s", resp.Status))
	case code >= 500:
		return r, fmt.Errorf("the API answered %s", resp.Status)
	default:
		return r, onceq.Permanent(fmt.Errorf("the API answered %s", resp.Status))
	}
}

// declined has a class of its own, so that dead letters can be counted and replayed by it.
type declined struct{ customer string }

func (d declined) Error() string    { return d.customer + "'s card was declined" }
func (declined) ErrorClass() string { return "declined" }

// orders are what is charged; ann's is sent twice.
var orders = []order{{"ann", 1250}, {"slow", 800}, {"busy", 500}, {"poor", 99000}, {"ann", 1250}}

// message is an order's. The job gives up long before the API forgets its key.
func message(o order) broker.Outgoing {
	now := time.Now()
	return broker.Outgoing{
		Body: must(json.Marshal(o)),
		Meta: &broker.Meta{Key: o.Customer + "/7", Created: now, Expires: now.Add(keysLive - time.Hour)},
	}
}

// scene charges the orders.
func scene(ctx context.Context, out io.Writer, c *charger) {
	queue, dead, store := must(membroker.New(nil)), must(membroker.New(nil)), must(memstore.New(nil))
	for _, o := range orders {
		m := message(o)
		check(onceq.SendOne(ctx, queue, &m))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSONResult(c.charge), Store: store, Scope: "payments",
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return callTimeout }},
		Logger:   slog.New(slog.DiscardHandler), Observer: &screen.Screen{Out: out, Left: len(orders), Last: stop, Line: line},
	}))
	w := must(p.Worker(queue, onceq.WorkerConfig{
		DeadLetter:  dead,
		Concurrency: 1, // one after the other, so that the screen is easy to read
	}))
	check(w.Run(ctx))
	ctx = context.WithoutCancel(ctx)
	r, status, err := onceq.Result[receipt](ctx, store, dedupe.Key{Scope: "payments", Key: "slow/7"})
	check(err)
	fmt.Fprintf(out, "  record:  slow/7 is %s, its receipt %s\n", status, cmp.Or(r.Charge, "missing"))
}

// run shows both ways, each against an API of its own, which it answers.
func run(ctx context.Context, out io.Writer, serve func(*api) (url string, client *http.Client)) (naive, keyed *api) {
	naive, keyed = newAPI(), newAPI()
	fmt.Fprintln(out, "a new key for each call")
	url, client := serve(naive)
	scene(ctx, out, &charger{url, client, freshKey})
	naive.report(out)
	fmt.Fprintln(out, "\nthe job's EffectKey")
	url, client = serve(keyed)
	scene(ctx, out, &charger{url, client, effectKey})
	keyed.report(out)
	return naive, keyed
}

func main() {
	run(context.Background(), os.Stdout, func(a *api) (string, *http.Client) {
		s := httptest.NewServer(a)
		return s.URL, s.Client()
	})
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
