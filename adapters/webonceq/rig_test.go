package webonceq

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/ops"
)

// This file has what the tests of the page share: a night in memory, and somebody who looks.

// A night is what an outage leaves: jobs that failed, with their letters, and workers that live.
type night struct {
	t            testing.TB
	store        *memstore.Store
	orders, dead *membroker.Broker
	ops          *ops.Ops
	page         *Page
	n            int
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func newNight(t testing.TB, o *Options) *night {
	t.Helper()
	n := &night{t: t, store: must(memstore.New(nil)), orders: must(membroker.New(&membroker.Options{Name: "orders"})), dead: must(membroker.New(&membroker.Options{Name: "orders-dead"}))}
	invoices := must(membroker.New(&membroker.Options{Name: "invoices"}))
	letters := must(dlq.New(n.dead, &dlq.Options{Wait: 5 * time.Millisecond}))
	n.ops = must(ops.New([]ops.Target{
		{Name: "orders", Queue: n.orders, DeadLetters: n.dead, Letters: letters, Store: n.store},
		{Name: "invoices", Queue: invoices, Store: n.store},
	}, &ops.Options{By: "the program"}))
	n.open(o)
	return n
}

// open makes another page of the same queues.
func (n *night) open(o *Options) {
	n.t.Helper()
	p, err := New(n.ops, o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.page = p
	n.t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			n.t.Error(err)
		}
	})
}

// card lets a worker live.
func (n *night) card(queue, owner string, c control.WorkerStatus) {
	seat := must(controlstore.NewSeat(n.store, controlstore.SeatOptions{Queue: queue, Owner: owner}))
	c.At = time.Now()
	if c.State == "" {
		c.State = "running"
	}
	if err := seat.Beat(context.Background(), &c); err != nil {
		n.t.Fatal(err)
	}
}

// fail lets a job fail, with its letter.
func (n *night) fail(key, class, text, body string) {
	n.end(key, dedupe.Failed, class, text, body)
}

func (n *night) end(key string, to dedupe.Status, class, text, body string) {
	n.over(key, "charge", to, class, text, body)
}

// letter is fail with a type of its own.
func (n *night) letter(key, typ, class, text, body string) {
	n.over(key, typ, dedupe.Failed, class, text, body)
}

func (n *night) over(key, typ string, to dedupe.Status, class, text, body string) {
	ctx := context.Background()
	n.n++
	k := dedupe.Key{Scope: "shop:charge", Key: key}
	c := must(n.store.Claim(ctx, []dedupe.ClaimRequest{{Key: k, Token: dedupe.Token{1, byte(n.n), byte(n.n >> 8)}, TTL: time.Minute, Owner: "w-1/1"}}))[0]
	if to != dedupe.Done {
		must(n.dead.Send(ctx, []broker.Outgoing{{Body: []byte(body), Meta: &broker.Meta{
			ID: fmt.Sprint("job-", n.n), Type: typ, Key: key, Created: time.Now().Add(-time.Minute),
			Dead: &broker.Letter{
				Fence: c.Lease.Fence, Class: class, FirstErr: text, LastErr: text, Attempts: 10,
				Source: "shop:orders", Scope: k.Scope, Key: key, At: time.Now(),
			},
		}}}))
	}
	must(n.store.Settle(ctx, []dedupe.Settlement{{Key: k, Token: c.Lease.Token, To: to, ErrClass: class, ErrText: text}}))
}

// usual is a night with some of everything.
func (n *night) usual() *night {
	for i := range 5 {
		n.fail(fmt.Sprint("order-", i+1), "timeout", fmt.Sprintf("Post \"https://bank/charge/%d\": context deadline exceeded", i), `{"cents":900,"to":{"iban":"DE1","bic":"A"}}`)
	}
	n.fail("order-6", "permanent", "card declined", `{"cents":1}`)
	n.end("parked-1", dedupe.Parked, "interrupted", "the worker died", `{"cents":2}`)
	n.end("done-1", dedupe.Done, "", "", "")
	n.card("orders", "w-1/1", control.WorkerStatus{
		Host: "host-1", Version: "v1.2.0", Scope: "shop", Types: []string{"charge", "refund"}, Slots: 100, Busy: 80, Rate: 2406, Minute: &control.Runs{Runs: 2400, Errors: 744},
		Started: time.Now().Add(-70 * time.Hour), Outcomes: map[string]uint64{"done": 100_000, "retried": 400},
		Jobs: []control.RunningJob{{Key: "order-99", Type: "charge", At: time.Now().Add(-42 * time.Second), Attempt: 2, Fence: 9}},
	})
	return n
}

// ask sends a request.
func (n *night) ask(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.page.ServeHTTP(w, r)
	return w
}

func (n *night) get(path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost"
	for _, f := range change {
		f(r)
	}
	return n.ask(r)
}

func (n *night) post(path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range change {
		f(r)
	}
	return n.ask(r)
}

// who lets somebody in, with what he may.
func who(name string, may Permission, queues ...string) func(*http.Request) (Access, error) {
	return func(*http.Request) (Access, error) { return Access{Name: name, May: may, Queues: queues}, nil }
}

// work lets a worker run the jobs of orders; charge is its handler.
func (n *night) work(charge func(context.Context, *onceq.Job) error) {
	n.t.Helper()
	var mux onceq.Mux
	mux.On("charge", onceq.HandlerFunc(charge), nil)
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{Handler: &mux, Scope: "shop", Store: n.store, Queue: "orders"}))
	w := must(p.Worker(n.orders, onceq.WorkerConfig{DeadLetter: n.dead}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		<-done
	})
}
