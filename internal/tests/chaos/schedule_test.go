//go:build unix

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/ops"
	"github.com/onceq/onceq/schedule"
)

// This file owns schedulers that are killed amid a send: their request is on its way, or their
// message is stored and the answer is not there yet.

// scheduleVariable makes the test binary a scheduler.
const scheduleVariable = "ONCEQ_CHAOS_SCHEDULE"

const scheduled = "each second"

func keepSchedule(ctx context.Context, a assignment) error {
	books, err := openBooks(ctx, a.Store, a.Database)
	if err != nil {
		return err
	}
	defer books.close()
	queue, _, err := a.open(ctx)
	if err != nil {
		return err
	}
	entries := []schedule.Entry{{
		Name: scheduled, Schedule: schedule.Every(time.Second), To: queue, CatchUp: 10 * time.Minute,
		Message: func(at time.Time) (broker.Outgoing, error) {
			return onceq.Message("", "", []byte(at.UTC().String())), nil
		},
	}}
	return schedule.Run(ctx, books.store(), func(context.Context) ([]schedule.Entry, error) { return entries, nil }, nil)
}

// walkSchedule: of three schedulers one after the other is killed amid a send. Each instant runs
// once, and none is left out. bare leaves the worker without a store, so that what was sent twice
// runs twice. It answers what was otherwise.
func walkSchedule(t *testing.T, store string, dies int, bare bool, rng *rand.Rand) (wrong []string) {
	t.Helper()
	a := assignment{Store: store, Database: database(t, store)}
	var depth func(context.Context) (broker.Depth, error)
	a.place, depth, _ = onSQS.serve(t, rng.Uint64())
	books := must.Get(openBooks(t.Context(), store, a.Database))
	t.Cleanup(books.close)
	if err := books.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, mode: mode{store: store}, a: a}
	for range workers {
		s.toQueue = append(s.toQueue, newProxy(t, host(a.Address)))
	}

	// The worker is here: it is the ledger.
	var mu sync.Mutex
	ran, received := map[string]int{}, 0
	queue, dead, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := onceq.ProcessorConfig{
		Scope: scope, Store: books.store(), Logger: slog.New(slog.DiscardHandler), Control: onceq.ControlOptions{Every: -1},
		Handler: onceq.HandlerFunc(func(_ context.Context, j *onceq.Job) error {
			mu.Lock()
			defer mu.Unlock()
			ran[j.Message.Meta.Key]++
			return nil
		}),
	}
	if bare {
		c.Store, c.Control = onceq.NoStore, onceq.ControlOptions{}
	}
	p := must.Get(onceq.NewProcessor(c))
	counted := &counting{Broker: queue, n: &received, mu: &mu}
	w := must.Get(p.Worker(counted, onceq.WorkerConfig{DeadLetter: dead}))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { _ = w.Run(ctx) })

	crew := make([]*child.Child, workers)
	for n := range crew {
		crew[n] = s.scheduler(n)
	}
	o := must.Get(ops.New([]ops.Target{{Store: books.store(), Scopes: []string{scope}}}, nil))
	var born time.Time
	until(t, "the schedule is there", func() bool {
		states, err := o.Schedules(ctx)
		if err == nil && len(states) == 1 {
			born = states[0].Born
		}
		return !born.IsZero()
	})
	for n := range dies {
		bad := []weather{loses, stalls}[n%2]
		for _, p := range s.toQueue {
			p.take()
			p.set(bad, 0)
		}
		victim := -1
		until(t, "a scheduler is amid a send", func() bool {
			for i, p := range s.toQueue {
				if p.met() {
					victim = i
				}
			}
			return victim >= 0
		})
		crew[victim].Kill()
		<-crew[victim].Done()
		for _, p := range s.toQueue {
			p.set(cuts, 0) // what has stalled is not sent by a dead process
			p.set(clear, 0)
		}
		crew[victim] = s.scheduler(victim)
	}
	want, every, now := []string{}, schedule.Every(time.Second), time.Now()
	for at := every.Next(born); at.Before(now); at = every.Next(at) {
		want = append(want, schedule.Key(scheduled, at))
	}
	until(t, "each instant has run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range want {
			if ran[key] == 0 {
				return false
			}
		}
		return true
	})
	for _, c := range crew {
		c.Kill()
		<-c.Done()
	}
	until(t, "the queue is empty", func() bool {
		d, err := depth(ctx)
		return err == nil && d == broker.Depth{}
	})
	mu.Lock()
	defer mu.Unlock()
	for key, n := range ran {
		if n != 1 {
			wrong = append(wrong, fmt.Sprintf("%s has run %d times", key, n))
		}
	}
	t.Logf("%d instants, %d messages, %d schedulers killed amid a send", len(ran), received, dies)
	return wrong
}

// scheduler runs one, at a place.
func (s *scene) scheduler(place int) *child.Child {
	return begin(s.T, self(scheduleVariable, s.through(place)), nil)
}

// counting counts what is received.
type counting struct {
	broker.Broker
	mu *sync.Mutex
	n  *int
}

func (c *counting) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := c.Broker.Receive(ctx, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.n += len(ms)
	return ms, err
}
