package gcppubsub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// world is a server with a topic, its subscription, a dead-letter topic and a store, for workers
// that come and go in virtual time.
type world struct {
	*testing.T
	kind
	srv                *pubsubfake.Server
	topic, sub         string
	deadTopic, deadSub string
	store              *memstore.Store
	mu                 sync.Mutex
	started, effects   map[string]int
	cancelled          map[string]error // how the context of a key's handler ended, if it did
	order              []string
	log                bytes.Buffer
	queue, letters     *gcppubsub.Broker // the test's own
}

// inWorld runs f with each kind of subscription.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { inWorldOf(t, k, nil, f) })
	}
}

func inWorldOf(t *testing.T, k kind, set func(*pubsubpb.Subscription), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, kind: k, srv: fake(t, pubsubfake.Options{}), started: map[string]int{}, effects: map[string]int{}, cancelled: map[string]error{}}
		var err error
		if w.store, err = memstore.New(nil); err != nil {
			t.Fatal(err)
		}
		w.topic, w.deadTopic = makeTopic(t, w.srv, project), makeTopic(t, w.srv, project)
		w.deadSub = makeSubscription(t, w.srv, project, w.deadTopic, nil)
		w.sub = makeSubscription(t, w.srv, project, w.topic, func(s *pubsubpb.Subscription) {
			k.set(s)
			s.AckDeadlineSeconds = 10
			if set != nil {
				set(s)
			}
		})
		w.queue = makeBroker(t, w.srv, w.topic, w.sub, w.options())
		w.letters = makeBroker(t, w.srv, w.deadTopic, w.deadSub, nil)
		f(w)
	})
}

func (w *world) options() *gcppubsub.Options { return &gcppubsub.Options{Ordered: w.ordered} }

// worker is a process: when it dies, nothing that it does gets out any more.
type worker struct {
	*world
	*gcppubsub.Broker
	dead atomic.Bool
	stop context.CancelFunc
	done chan error
}

var errDead = errors.New("the process is dead")

// mortalAPI lets the process's calls out while it lives.
type mortalAPI struct{ p *worker }

func alive[In, Out any](ctx context.Context, p *worker, in In, do func(context.Context, In) (Out, error)) (none Out, err error) {
	if p.dead.Load() {
		return none, errDead
	}
	out, err := do(ctx, in)
	if p.dead.Load() {
		return none, errDead
	}
	return out, err
}

func (a mortalAPI) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return alive(ctx, a.p, in, a.p.srv.Publish)
}

func (a mortalAPI) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	return alive(ctx, a.p, in, a.p.srv.Pull)
}

func (a mortalAPI) Acknowledge(ctx context.Context, in *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	return alive(ctx, a.p, in, a.p.srv.Acknowledge)
}

func (a mortalAPI) ModifyAckDeadline(ctx context.Context, in *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	return alive(ctx, a.p, in, a.p.srv.ModifyAckDeadline)
}

func (a mortalAPI) GetSubscription(ctx context.Context, in *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return alive(ctx, a.p, in, a.p.srv.GetSubscription)
}

func (a mortalAPI) GetTopic(ctx context.Context, in *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	return alive(ctx, a.p, in, a.p.srv.GetTopic)
}

func (a mortalAPI) GetIamPolicy(ctx context.Context, in *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	return alive(ctx, a.p, in, a.p.srv.GetIamPolicy)
}

// mortal is the store as the process sees it.
type mortal struct {
	dedupe.Store
	p *worker
}

func (s mortal) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	return alive(ctx, s.p, rs, s.Store.Claim)
}

func (s mortal) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	return alive(ctx, s.p, rs, s.Store.Renew)
}

func (s mortal) Settle(ctx context.Context, rs []dedupe.Settlement) ([]dedupe.Settled, error) {
	return alive(ctx, s.p, rs, s.Store.Settle)
}

// config is what a worker is made of, beside its queue.
type config struct {
	onceq.ProcessorConfig
	onceq.WorkerConfig
}

// work starts a worker. Its handler works first and has its effect then.
func (w *world) work(h func(ctx context.Context, j *onceq.Job) error, set func(c *config)) *worker {
	w.Helper()
	p := &worker{world: w, done: make(chan error, 1)}
	p.Broker = makeBroker(w, mortalAPI{p}, w.topic, w.sub, w.options())
	cfg := config{onceq.ProcessorConfig{
		Store: mortal{w.store, p}, Scope: "test", Owner: fmt.Sprintf("%p", p), Retention: 60 * day,
		Logger: slog.New(slog.NewTextHandler(w, nil)),
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			k := j.Key().Key
			w.mu.Lock()
			w.started[k]++
			w.mu.Unlock()
			err := h(ctx, j)
			w.mu.Lock()
			defer w.mu.Unlock()
			if ctx.Err() != nil {
				w.cancelled[k] = context.Cause(ctx)
			}
			if p.dead.Load() || err != nil {
				return err
			}
			w.effects[k]++
			w.order = append(w.order, k)
			return nil
		}),
	}, onceq.WorkerConfig{DeadLetter: makeBroker(w, mortalAPI{p}, w.deadTopic, w.deadSub, nil)}}
	if set != nil {
		set(&cfg)
	}
	processor, err := onceq.NewProcessor(cfg.ProcessorConfig)
	if err != nil {
		w.Fatal(err)
	}
	wk, err := processor.Worker(p.Broker, cfg.WorkerConfig)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { p.done <- wk.Run(ctx) }()
	return p
}

// kill is kill -9.
func (p *worker) kill() {
	p.dead.Store(true)
	p.stop()
}

// drain ends the worker as its owner would.
func (p *worker) drain() {
	p.Helper()
	p.stop()
	if err := <-p.done; err != nil {
		p.Errorf("Run: %v", err)
	}
}

// Write is the log's.
func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// busy works for d, or until its context ends.
func busy(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil // timers that fire at once crash the race detector in a bubble (golang/go#78156)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func takes(d time.Duration) func(context.Context, *onceq.Job) error {
	return func(ctx context.Context, _ *onceq.Job) error { return busy(ctx, d) }
}

// put sends jobs with these keys.
func (w *world) put(group string, keys ...string) {
	w.Helper()
	ms := make([]broker.Outgoing, len(keys))
	for i, k := range keys {
		ms[i] = broker.Outgoing{Body: []byte(k), Meta: &broker.Meta{Key: k}, Group: group}
	}
	if err := onceq.Send(w.Context(), w.queue, ms); err != nil {
		w.Fatal(err)
	}
}

func numbers(n int) (s []string) {
	for i := range n {
		s = append(s, fmt.Sprint(i))
	}
	return s
}

// until waits for the condition, in virtual time.
func (w *world) until(limit time.Duration, what string, met func() bool) {
	w.Helper()
	for end := time.Now().Add(limit); !met(); {
		if !time.Now().Before(end) {
			w.Fatalf("after %v not: %s\n%s", limit, what, w.logged())
		}
		<-time.After(time.Second)
	}
}

func (w *world) allDone(n int) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.effects) == n
	}
}

// once checks that each of n jobs has had its effect once, and that nothing is left.
func (w *world) once(n int) {
	w.Helper()
	w.mu.Lock()
	for k, e := range w.effects {
		if e != 1 {
			w.Errorf("job %s had its effect %d times", k, e)
		}
	}
	if len(w.effects) != n {
		w.Errorf("%d of %d jobs had their effect", len(w.effects), n)
	}
	w.mu.Unlock()
	w.empty(w.sub)
	w.empty(w.deadSub)
}

// empty checks that a subscription has no message, in a lease or out of one.
func (w *world) empty(sub string) {
	w.Helper()
	if st := w.srv.Stats(sub); st.Unacked() > 0 {
		w.Errorf("%s is not empty: %+v", sub, st)
	}
}

// deliveredOnce checks that nothing was delivered twice.
func (w *world) deliveredOnce(n int) {
	w.Helper()
	got := w.srv.Deliveries(w.sub)
	if len(got) != n {
		w.Errorf("%d messages were delivered, want %d", len(got), n)
	}
	for id, times := range got {
		if times != 1 {
			w.Errorf("message %s was delivered %d times", id, times)
		}
	}
}
