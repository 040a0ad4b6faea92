package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns what an orchestrator is told. The HTTP server calls the handlers, the worker calls
// the watched queue and store, and main calls probe, each in goroutines of its own. Each outage has
// a lock for what it knows, and draining is atomic.

// health answers an orchestrator.
//
//   - GET /livez is 200 while the process works. It looks at nothing else, because a restart helps
//     no worker while its database is down, and the worker holds its messages meanwhile. ECS asks
//     this alone, and kills if the answer is bad.
//   - GET /readyz is 200 once a poll was answered. It is 503 in a drain, and while the queue or the
//     store has failed for a while. So it stops the rollout of a version that lacks a permission,
//     and it serves an alarm. It tells what fails and since when. The reason stands in the log
//     alone, because a store's error names its users and hosts, and anybody may ask.
type health struct {
	http.ServeMux
	queue, store outage
	draining     atomic.Bool
}

func newHealth(patience time.Duration, log *slog.Logger) *health {
	h := &health{queue: outage{what: "the queue", log: log}, store: outage{what: "the store", log: log}}
	h.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	h.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.ready(patience); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return h
}

func (h *health) drain() { h.draining.Store(true) }

func (h *health) ready(patience time.Duration) error {
	switch {
	case h.draining.Load():
		return errors.New("draining")
	case !h.queue.answered():
		return errors.New("starting: no poll was answered yet") // where the queue is empty, the first takes LONG_POLL
	}
	return errors.Join(h.queue.lasts(patience), h.store.lasts(patience))
}

// sayEvery keeps an outage from filling the log.
const sayEvery = 10 * time.Second

// outage knows since when all calls to something have failed.
type outage struct {
	what string
	log  *slog.Logger

	mu    sync.Mutex
	once  bool
	since time.Time // zero = they do not
	said  time.Time // when it was last logged
}

// saw is told how a call ended. One that its caller gave up says nothing.
func (o *outage) saw(ctx context.Context, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.once, o.since, o.said = true, time.Time{}, time.Time{}
	case errors.Is(ctx.Err(), context.Canceled):
	default:
		if o.since.IsZero() {
			o.since = time.Now()
		}
		if o.said.IsZero() || time.Since(o.said) >= sayEvery {
			o.said = time.Now()
			o.log.Warn(o.what+" fails", "error", err, "since", o.since)
		}
	}
}

func (o *outage) answered() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.once
}

// lasts is an error when the outage has lasted longer than d.
func (o *outage) lasts(d time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || time.Since(o.since) < d {
		return nil
	}
	return fmt.Errorf("%s has failed for %v", o.what, time.Since(o.since).Round(time.Second))
}

// watchedQueue tells how the polls go. Where all slots are busy there are none, and the last answer
// stands.
type watchedQueue struct {
	source
	o *outage
}

func (q watchedQueue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := q.source.Receive(ctx, o)
	q.o.saw(ctx, err)
	return ms, err
}

// watchedStore tells how claims, renewals and settlements go, as calls: an entry that is refused
// alone is no outage.
type watchedStore struct {
	dedupe.Store
	o *outage
}

func (s watchedStore) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	cs, err := s.Store.Claim(ctx, rs)
	s.o.saw(ctx, err)
	return cs, err
}

func (s watchedStore) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	as, err := s.Store.Renew(ctx, rs)
	s.o.saw(ctx, err)
	return as, err
}

func (s watchedStore) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	as, err := s.Store.Settle(ctx, ss)
	s.o.saw(ctx, err)
	return as, err
}

// probe asks the worker of this container whether it lives.
func probe(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", port)+"/livez", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}
