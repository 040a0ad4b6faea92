package awssqs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/sqsfake"
)

// world is a server, a queue with its dead-letter queue, and a store, for workers that come and go
// in virtual time.
type world struct {
	*testing.T
	srv           *sqsfake.Server
	url, dlqURL   string
	store         *memstore.Store
	mu            sync.Mutex
	started       map[string]int
	effects       map[string]int
	order         []string
	log           bytes.Buffer
	queue, letter *awssqs.Broker // the test's own
}

// inWorld runs f twice: with the receipt handles of earlier receives at work, and ignored. AWS does
// either.
func inWorld(t *testing.T, fifo bool, f func(w *world)) {
	t.Helper()
	if fifo { // there they are refused
		inWorldOf(t, fifo, sqsfake.StaleRandom, f)
		return
	}
	for _, stale := range []sqsfake.StaleHandles{sqsfake.StaleWork, sqsfake.StaleIgnored} {
		name, err := stale.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		t.Run("old handles: "+string(name), func(t *testing.T) { inWorldOf(t, fifo, stale, f) })
	}
}

func inWorldOf(t *testing.T, fifo bool, stale sqsfake.StaleHandles, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, srv: fake(t, &sqsfake.Options{StaleHandles: stale}), started: map[string]int{}, effects: map[string]int{}}
		var err error
		if w.store, err = memstore.New(nil); err != nil {
			t.Fatal(err)
		}
		c := fakeClient(w.srv)
		w.url, w.dlqURL = makeQueue(t, c, fifo, nil), makeQueue(t, c, fifo, nil)
		w.queue, w.letter = makeBroker(t, c, w.url, nil), makeBroker(t, c, w.dlqURL, nil)
		f(w)
	})
}

// worker is a process: when it dies, nothing that it does gets out any more.
type worker struct {
	*world
	*awssqs.Broker
	dead atomic.Bool
	gone chan struct{} // closed when it is dead
	stop context.CancelFunc
	done chan error
}

var errDead = errors.New("the process is dead")

// Do lets the process's requests out while it lives.
func (p *worker) Do(r *http.Request) (*http.Response, error) {
	if p.dead.Load() {
		return nil, errDead
	}
	res, err := p.srv.Client().Do(r)
	if p.dead.Load() {
		return nil, errDead
	}
	return res, err
}

// mortal is the store as the process sees it.
type mortal struct {
	dedupe.Store
	p *worker
}

func (s mortal) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if s.p.dead.Load() {
		return nil, errDead
	}
	return s.Store.Claim(ctx, rs)
}

func (s mortal) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if s.p.dead.Load() {
		return nil, errDead
	}
	return s.Store.Renew(ctx, rs)
}

func (s mortal) Settle(ctx context.Context, rs []dedupe.Settlement) ([]dedupe.Settled, error) {
	if s.p.dead.Load() {
		return nil, errDead
	}
	return s.Store.Settle(ctx, rs)
}

// config is what a worker is made of, beside its queue.
type config struct {
	onceq.ProcessorConfig
	onceq.WorkerConfig
}

// work starts a worker. Its handler works first and has its effect then.
func (w *world) work(h func(ctx context.Context, j *onceq.Job) error, set func(c *config)) *worker {
	w.Helper()
	p := &worker{world: w, gone: make(chan struct{}), done: make(chan error, 1)}
	c := newClient(w.srv.URL, func(o *sqs.Options) { o.HTTPClient = p })
	p.Broker = makeBroker(w, c, w.url, nil)
	jobs := onceq.ProcessorConfig{
		Store: mortal{w.store, p}, Scope: "test", Owner: fmt.Sprintf("%p", p),
		Logger: slog.New(slog.NewTextHandler(w, nil)),
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			w.mu.Lock()
			w.started[j.Key().Key]++
			w.mu.Unlock()
			err := h(ctx, j)
			if p.dead.Load() || err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.effects[j.Key().Key]++
			w.order = append(w.order, j.Key().Key)
			return nil
		}),
	}
	cfg := config{jobs, onceq.WorkerConfig{DeadLetter: makeBroker(w, c, w.dlqURL, nil)}}
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
	close(p.gone)
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

func (w *world) effectsOf(k string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[k]
}

// until waits for the condition, in virtual time.
func (w *world) until(limit time.Duration, what string, met func() bool) {
	w.Helper()
	for end := time.Now().Add(limit); !met(); {
		if !time.Now().Before(end) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.Fatalf("after %v not: %s\n%s", limit, what, w.log.String())
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
	w.empty(w.url)
	w.empty(w.dlqURL)
}

func (w *world) empty(url string) {
	w.Helper()
	as := w.attributes(url)
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		if as[name] != "0" {
			w.Errorf("%s: %s is %s", url, name, as[name])
		}
	}
}

func (w *world) attributes(url string) map[string]string {
	w.Helper()
	out, err := fakeClient(w.srv).GetQueueAttributes(w.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.Fatal(err)
	}
	return out.Attributes
}

// delivered is how many messages the receives have brought.
func (w *world) delivered() (n int) {
	for _, r := range w.srv.Requests() {
		n += r.Messages
	}
	return n
}
