package sqstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// world is what a test works on.
type world struct {
	carrier     *carrier
	queue, dead *awssqs.Broker
	store       dedupe.Store
}

func newWorld(t *testing.T, client *sqs.Client, queueURL, deadURL string, store dedupe.Store) *world {
	t.Helper()
	w := &world{carrier: newCarrier(), store: store}
	var err error
	w.queue, err = awssqs.New(client, queueURL, &awssqs.Options{LongPoll: time.Second})
	require.NoError(t, err)
	w.dead, err = awssqs.New(client, deadURL, &awssqs.Options{LongPoll: time.Second})
	require.NoError(t, err)
	return w
}

// everyOrderOnce sends twenty orders, each twice, and one without an address; two workers ship
// them; the first is stopped on the way.
func (w *world) everyOrderOnce(t *testing.T) {
	t.Helper()
	var ms []broker.Outgoing
	var want []string
	for n := range 20 {
		o := Order{ID: fmt.Sprintf("order-%02d", n), Address: "Oak Street 1"}
		ms = append(ms, message(o), message(o))
		want = append(want, o.ID)
	}
	ms = append(ms, message(Order{ID: "order-nowhere"}))
	// As a producer does, until it knows that all are sent.
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Second) {
		err := onceq.Send(t.Context(), w.queue, ms)
		if err == nil {
			break
		}
		require.True(t, time.Now().Before(end), "%v", err)
	}
	first, second := w.start(t), w.start(t)
	w.until(t, func() bool { return len(w.carrier.parcels()) >= 5 })
	first()
	w.until(t, func() bool { return len(w.carrier.parcels()) == len(want) && w.left(t) == 0 })
	second()
	require.Equal(t, want, w.carrier.parcels())
	require.Empty(t, w.carrier.again(), "given to the carrier more than once")
	letters, err := w.dead.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
	require.NoError(t, err)
	for _, l := range letters { // more than one where a reply was lost: their fence is the same, and one replay runs
		require.Equal(t, "order-nowhere", l.Meta.Key)
		require.Equal(t, letters[0].Meta.Dead.Fence, l.Meta.Dead.Fence)
	}
	require.NotEmpty(t, letters)
}

// start runs a worker; stop drains it.
func (w *world) start(t *testing.T) (stop func()) {
	t.Helper()
	p, err := onceq.NewProcessor(Jobs(w.carrier, w.store))
	require.NoError(t, err)
	worker, err := p.Worker(w.queue, onceq.WorkerConfig{DeadLetter: w.dead})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		cancel()
		late := (*onceq.DrainError)(nil)
		if err := <-ended; err != nil && !errors.As(err, &late) {
			t.Errorf("Run: %v", err)
		}
	}
}

// left is how many messages the queue has, hidden ones too; some while it does not tell.
func (w *world) left(t *testing.T) int64 {
	d, err := w.queue.Depth(t.Context())
	if err != nil {
		return 1
	}
	return d.Visible + d.InFlight + d.Delayed
}

func (w *world) until(t *testing.T, met func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Hour); !met(); <-time.After(100 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not in time: %d parcels", len(w.carrier.parcels()))
	}
}

func message(o Order) broker.Outgoing {
	body, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return broker.Outgoing{Body: body, Meta: &broker.Meta{Key: o.ID}}
}

// carrier stands for the real one.
type carrier struct {
	takes time.Duration

	mu      sync.Mutex
	calls   int
	shipped map[string]int // by order: how many different keys
	keys    map[string]bool
	given   map[string]int
}

func newCarrier() *carrier {
	return &carrier{shipped: map[string]int{}, keys: map[string]bool{}, given: map[string]int{}}
}

// Ship takes its time.
func (c *carrier) Ship(ctx context.Context, key string, o Order) error {
	c.mu.Lock()
	c.calls++
	c.mu.Unlock()
	if c.takes > 0 {
		select {
		case <-time.After(c.takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given[o.ID]++
	if !c.keys[key] {
		c.keys[key] = true
		c.shipped[o.ID]++
	}
	return nil
}

// parcels are those that have left, an order that left twice twice.
func (c *carrier) parcels() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.shipped {
		for range n {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// again are the orders that were given to the carrier more than once. Its key saved them.
func (c *carrier) again() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.given {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}
