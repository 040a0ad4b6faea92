package pubsubpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/pubsubwire"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the rig: a push endpoint in virtual time, whose requests are made here. Each test
// has one of its own. The locks belong to what handlers and tests share: calls, logged.

const subscription = "projects/p/subscriptions/orders"

var errBoom = errors.New("boom")

// rig is an endpoint on a store in memory, in virtual time.
type rig struct {
	*testing.T
	dlq   *membroker.Broker
	store *calls
	log   *logged
	cfg   onceq.ProcessorConfig
	batch onceq.BatchConfig
	o     pubsubpush.Options
	h     *pubsubpush.Handler
}

// calls is a store whose calls are counted, and can be made to fail.
type calls struct {
	dedupe.Store
	mu    sync.Mutex
	n     map[string]int
	fails func(call string) error
}

func (s *calls) call(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n[name]++
	if s.fails == nil {
		return nil
	}
	return s.fails(name)
}

func (s *calls) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n[name]
}

func (s *calls) set(fails func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

func (s *calls) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := s.call("claim"); err != nil {
		return nil, err
	}
	return s.Store.Claim(ctx, rs)
}

func (s *calls) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := s.call("renew"); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, rs)
}

func (s *calls) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := s.call("settle"); err != nil {
		return nil, err
	}
	return s.Store.Settle(ctx, ss)
}

type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// bubble runs f in virtual time on a rig whose handler is h.
func bubble(t *testing.T, h onceq.HandlerFunc, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newRig(t, h)) })
}

func newRig(t testing.TB, h onceq.HandlerFunc) *rig {
	t.Helper()
	st, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dlq, err := membroker.New(&membroker.Options{Preset: membroker.PubSub})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{store: &calls{Store: st, n: map[string]int{}}, dlq: dlq, log: &logged{}}
	r.T, _ = t.(*testing.T)
	r.batch.DeadLetter = dlq
	r.cfg = onceq.ProcessorConfig{
		Handler: h, Store: r.store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return 7 * time.Second }},
	}
	r.o = pubsubpush.Options{Auth: pubsubpush.None{}, AckDeadline: time.Minute, Logger: slog.New(slog.NewTextHandler(r.log, nil))}
	return r
}

// handler is the endpoint, made when it is first asked for.
func (r *rig) handler() *pubsubpush.Handler {
	if r.h != nil {
		return r.h
	}
	p, err := onceq.NewProcessor(r.cfg)
	if err != nil {
		panic(err)
	}
	b, err := p.Batches(r.batch)
	if err != nil {
		panic(err)
	}
	if r.h, err = pubsubpush.New(b, r.o); err != nil {
		panic(err)
	}
	return r.h
}

// wire is a message as an envelope has it.
type wire struct {
	Data        []byte            `json:"data,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	MessageID   string            `json:"messageId,omitempty"`
	PublishTime string            `json:"publishTime,omitempty"`
	OrderingKey string            `json:"orderingKey,omitempty"`
}

// envelope is the body in which Pub/Sub pushes a job of ours. Its id is the body.
func envelope(o broker.Outgoing) []byte {
	if o.Meta == nil {
		o.Meta = &broker.Meta{ID: string(o.Body), Created: time.Now()}
	}
	data, as, _, err := pubsubwire.Encode(&o)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(map[string]any{
		"message":      wire{data, as, "m-" + string(o.Body), time.Now().UTC().Format(time.RFC3339Nano), o.Group},
		"subscription": subscription,
	})
	if err != nil {
		panic(err)
	}
	return text
}

func job(body string) []byte { return envelope(broker.Outgoing{Body: []byte(body)}) }

// serve answers a request.
func (r *rig) serve(req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.handler().ServeHTTP(w, req)
	return w
}

func post(body []byte) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/push", bytes.NewReader(body))
}

// push is the status of the answer to a body.
func (r *rig) push(body []byte) int { return r.serve(post(body)).Code }

// later pushes a body in a goroutine of its own; the answer's status comes later.
func (r *rig) later(body []byte) <-chan int {
	h, status := r.handler(), make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, post(body))
		status <- w.Code
	}()
	return status
}

func (r *rig) want(got, want int) {
	r.Helper()
	if got != want {
		r.Errorf("the answer is %d, want %d", got, want)
	}
}

// took fails the test unless so much time has passed since begin.
func (r *rig) took(begin time.Time, least, most time.Duration) {
	r.Helper()
	if d := time.Since(begin); d < least || d > most {
		r.Errorf("it took %v, want %v to %v", d, least, most)
	}
}

// occupy claims a key as another process does.
func (r *rig) occupy(key string, ttl time.Duration) dedupe.Token {
	r.Helper()
	q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: "orders", Key: key}, Token: dedupe.Token{1, byte(len(key))}, TTL: ttl}
	if cs, err := r.store.Store.Claim(r.Context(), []dedupe.ClaimRequest{q}); err != nil || cs[0].Outcome != dedupe.Won {
		r.Fatal(cs, err)
	}
	return q.Token
}

// settle ends a claim of occupy.
func (r *rig) settle(key string, token dedupe.Token, to dedupe.Status) {
	r.Helper()
	_, err := r.store.Store.Settle(r.Context(), []dedupe.Settlement{{Key: dedupe.Key{Scope: "orders", Key: key}, Token: token, To: to}})
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) record(key string) dedupe.Record {
	r.Helper()
	rs, err := r.store.Get(r.Context(), []dedupe.Key{{Scope: "orders", Key: key}})
	if err != nil {
		r.Fatal(err)
	}
	if rs[0] == nil {
		return dedupe.Record{}
	}
	return *rs[0]
}

// letters are the classes of the dead letters that are new.
func (r *rig) letters() (classes []string) {
	r.Helper()
	ms, err := r.dlq.Receive(r.Context(), broker.ReceiveOptions{Max: 100})
	if err != nil {
		r.Fatal(err)
	}
	for _, m := range ms {
		classes = append(classes, m.Meta.Dead.Class)
		if err := r.dlq.Ack(r.Context(), []broker.Receipt{m.Receipt}); err != nil {
			r.Fatal(err)
		}
	}
	slices.Sort(classes)
	return classes
}

func takes(d time.Duration) { retry.Rest(context.Background(), d) }

// rest takes a time, or ends with ctx.
func rest(ctx context.Context, d time.Duration) error {
	if !retry.Rest(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// runs counts how often each body has run.
type runs struct{ byBody sync.Map }

func (s *runs) of(body string) int {
	n, _ := s.byBody.LoadOrStore(body, new(atomic.Int32))
	return int(n.(*atomic.Int32).Load())
}

// Handle does what the body says.
func (s *runs) Handle(ctx context.Context, j *onceq.Job) error {
	n, _ := s.byBody.LoadOrStore(string(j.Message.Body), new(atomic.Int32))
	n.(*atomic.Int32).Add(1)
	what, _, _ := strings.Cut(string(j.Message.Body), "-")
	switch what {
	case "bad":
		return onceq.Permanent(errBoom)
	case "retry":
		return errBoom
	case "panic":
		panic("boom")
	case "slow":
		return rest(ctx, 5*time.Second)
	case "long":
		return rest(ctx, 40*time.Second)
	case "cut":
		<-ctx.Done()
		return context.Cause(ctx)
	case "deaf":
		takes(time.Hour)
	}
	return nil
}

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }
