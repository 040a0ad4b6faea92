package pubsubpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/pubsubwire"
	rigs "github.com/onceq/onceq/internal/rig"
)

// This file owns the rig: a push endpoint in virtual time, whose requests are made here. Each test
// has one of its own.

const subscription = "projects/p/subscriptions/orders"

var errBoom = errors.New("boom")

// rig is an endpoint on a store in memory, in virtual time.
type rig struct {
	*testing.T
	dlq   *membroker.Broker
	store *rigs.Store
	log   *rigs.Log
	cfg   onceq.ProcessorConfig
	batch onceq.BatchConfig
	o     pubsubpush.Options
	h     *pubsubpush.Handler
}

// bubble runs f in virtual time on a rig whose handler is h.
func bubble(t *testing.T, h onceq.HandlerFunc, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newRig(t, h)) })
}

func newRig(t testing.TB, h onceq.HandlerFunc) *rig {
	t.Helper()
	dlq := must.Get(membroker.New(&membroker.Options{Preset: membroker.PubSub}))
	r := &rig{store: rigs.NewStore(t), dlq: dlq, log: new(rigs.Log)}
	r.T, _ = t.(*testing.T)
	r.batch.DeadLetter = dlq
	r.cfg = onceq.ProcessorConfig{
		Handler: h, Store: r.store, Scope: "orders", Logger: slog.New(slog.DiscardHandler),
		Defaults: onceq.JobOptions{Backoff: func(int, error) time.Duration { return 7 * time.Second }},
	}
	r.o = pubsubpush.Options{Auth: pubsubpush.None{}, AckDeadline: time.Minute, Logger: r.log.Logger()}
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
	return r.store.Record(dedupe.Key{Scope: "orders", Key: key})
}

// letters are the classes of the dead letters that are new.
func (r *rig) letters() []string {
	r.Helper()
	return rigs.Classes(r, r.dlq)
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
		return rigs.Busy(ctx, 5*time.Second)
	case "long":
		return rigs.Busy(ctx, 40*time.Second)
	case "cut":
		<-ctx.Done()
		return context.Cause(ctx)
	case "deaf":
		rigs.Takes(time.Hour)
	}
	return nil
}

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }
