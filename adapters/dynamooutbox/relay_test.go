package dynamooutbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/must"
)

// destination is where relays send to.
type destination struct {
	mu   sync.Mutex
	sent []broker.Outgoing
	// refuse answers a message; takes is how long a call takes.
	refuse func(m *broker.Outgoing) error
	takes  time.Duration
}

func (d *destination) Limits() broker.Limits {
	return broker.Limits{ReceiveBatch: 10, SettleBatch: 10, SendBatch: 10, MaxDelay: 15 * time.Minute, OrderedGroups: true}
}

func (d *destination) Send(ctx context.Context, ms []broker.Outgoing) ([]string, error) {
	if d.takes > 0 {
		pass(d.takes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ids, errs := make([]string, len(ms)), make([]error, len(ms))
	for i := range ms {
		if d.refuse != nil {
			errs[i] = d.refuse(&ms[i])
		}
		if errs[i] == nil {
			d.sent = append(d.sent, ms[i])
			ids[i] = fmt.Sprint(len(d.sent))
		}
	}
	return ids, broker.JoinEntries(errs)
}

// keys are those of what was sent, in order.
func (d *destination) keys() (keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.sent {
		keys = append(keys, d.sent[i].Meta.Key)
	}
	return keys
}

// relay runs a worker that sends on, and answers what ends it.
func relay(t testing.TB, b *Outbox, to broker.Sender) (end func()) {
	t.Helper()
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.Forward(to), Store: onceq.NoStore, Scope: "outbox", Logger: slog.New(slog.DiscardHandler),
	}))
	w := must.Get(p.Worker(b, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: 100}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = b.Close()
	}
}

func keyed(key string) broker.Outgoing { return onceq.Message("mail", key, []byte(key)) }

// TestRelay: what is committed is sent once, in any process; expired jobs are sent as well.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		producer := newOutbox(t, w.f.client(), testTable, testQueue, nil, nil)
		to := &destination{takes: 10 * time.Millisecond}
		var ends []func()
		for range 2 {
			ends = append(ends, relay(t, w.outbox(nil), to))
		}
		var wanted []string
		for i := range 300 {
			m := keyed(fmt.Sprintf("k%03d", i))
			if i == 7 {
				m.Meta.Expires = time.Now().Add(time.Millisecond)
			}
			wanted = append(wanted, m.Meta.Key)
			w.put(producer, m)
		}
		pass(10 * time.Second)
		got := to.keys()
		if slices.Sort(got); !slices.Equal(got, wanted) {
			t.Errorf("%d messages were sent, want each of 300 once", len(got))
		}
		if left := w.f.items(testTable, testQueue); len(left) > 0 {
			t.Errorf("%d items are left", len(left))
		}
		for _, end := range ends {
			end()
		}
	})
}

// TestRelayWakes: a relay in the producer's process sends at once.
func TestRelayWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b, to := w.outbox(&Options{Poll: 10 * time.Second}), &destination{}
		end := relay(t, b, to)
		pass(15 * time.Second)
		before := w.f.count("Query")
		w.put(b, keyed("a"))
		b.Wake()
		pass(50 * time.Millisecond)
		if got := to.keys(); len(got) != 1 {
			t.Errorf("%q was sent within 50 ms", got)
		}
		if n := w.f.count("Query") - before; n > 2 {
			t.Errorf("%d requests looked for one message", n)
		}
		end()
	})
}

// TestRelayDies: what was sent and not deleted is sent again as the same job, when the dead relay's
// claims are over.
func TestRelayDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dead, next := w.outbox(nil), w.outbox(nil)
		w.put(dead, onceq.Message("mail", "", []byte("a")))
		m := want(t, dead, 10, "a")[0] // it is sent, and then the process is killed
		want(t, next, 10, "")
		pass(dead.o.Lease - time.Second)
		want(t, next, 10, "")
		pass(2 * time.Second)
		again := want(t, next, 10, "a")[0]
		if again.Meta.ID != m.Meta.ID || again.Meta.Key != m.Meta.Key || m.Meta.Key == "" || again.ID != m.ID || !again.Meta.Created.Equal(m.Meta.Created) {
			t.Errorf("the job is %+v, and was %+v", again.Meta, m.Meta)
		}
		// The one that was dead was only frozen. It can neither delete nor keep.
		if err := dead.Ack(t.Context(), []broker.Receipt{m.Receipt}); err != nil && !errors.Is(err, broker.ErrReceiptExpired) {
			t.Error(err)
		}
		if err := dead.Extend(t.Context(), []broker.Hold{{Receipt: m.Receipt, For: time.Second}}); !errors.Is(err, broker.ErrReceiptExpired) {
			t.Errorf("an extension under a lost claim: %v", err)
		}
		want(t, dead, 10, "")
		ack(t, next, again)
		if left := w.f.items(testTable, testQueue); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	})
}

// TestLostReply: a delete whose answer was lost is repeated, and nothing is sent twice.
func TestLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b, to, n := w.outbox(nil), &destination{}, 0
		w.f.failing(t, func(op string, _ object) string {
			if op == "BatchWriteItem" {
				if n++; n <= 2 {
					return [...]string{"lost", "ProvisionedThroughputExceededException"}[n-1]
				}
			}
			return ""
		})
		end := relay(t, b, to)
		w.put(b, keyed("a"))
		pass(2 * time.Minute)
		if got := to.keys(); !slices.Equal(got, []string{"a"}) || n < 2 {
			t.Errorf("%q was sent, after %d deletes", got, n)
		}
		if left := w.f.items(testTable, testQueue); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
		end()
	})
}

// TestTakeover: a relay that ends gives its partitions back, and the other goes on before the lease
// would be over.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.outbox(nil), w.outbox(nil)
		want(t, a, 1, "")
		want(t, b, 1, "")
		w.put(a, keyed("x"))
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		pass(b.o.Lease/3 + time.Second)
		want(t, b, 1, "x")
		if _, err := a.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); !errors.Is(err, broker.ErrClosed) {
			t.Error(err)
		}
	})
}

// failing is a store that is away while err is set.
type failing struct {
	dedupe.Store
	mu  sync.Mutex
	err error
}

func (f *failing) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Renew(ctx, rs)
}

// TestStoreIsAway: a relay goes on while its claims last, and neither reads nor keeps a message
// when they are over.
func TestStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		away := errors.New("the store is away")
		store := &failing{Store: w.leases}
		b := newOutbox(t, w.f.client(), testTable, testQueue, store, nil)
		if err := b.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.put(b, keyed("a"))
		m := want(t, b, 1, "a")[0]
		store.set(away)
		pass(20 * time.Second)
		hold := []broker.Hold{{Receipt: m.Receipt, For: 30 * time.Second}}
		if err := b.Extend(t.Context(), hold); !errors.Is(err, away) {
			t.Errorf("an extension beyond the claim: %v", err)
		}
		hold[0].For = 20 * time.Second
		if err := b.Extend(t.Context(), hold); err != nil {
			t.Errorf("an extension within the claim: %v", err)
		}
		w.put(b, keyed("b"))
		if ms := want(t, b, 1, "b"); time.Until(ms[0].Deadline) > 25*time.Second {
			t.Errorf("a message is held for %v, beyond the claim", time.Until(ms[0].Deadline))
		}
		pass(26 * time.Second)
		w.put(b, keyed("c"))
		for range 3 {
			if ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 10}); len(ms) > 0 || !errors.Is(err, away) && err != nil {
				t.Errorf("without a claim: %q, %v", bodies(ms), err)
			}
		}
		store.set(nil)
		pass(time.Minute)
		if ms := receive(t, b, 10); len(ms) != 3 {
			t.Errorf("%q came when the store was back", bodies(ms))
		}
	})
}

// TestPoison: what the destination can never take stays, is tried again, and holds its group alone.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b, tries := w.outbox(&Options{Poll: 10 * time.Second, Partitions: 2}), 0
		to := &destination{refuse: func(m *broker.Outgoing) error {
			if string(m.Body) == "poison" {
				tries++
				return broker.ErrTooLarge
			}
			return nil
		}}
		end := relay(t, b, to)
		w.put(b, inGroup("g", 1, "poison"), inGroup("g", 2, "behind"), inGroup("h", 1, "other"), keyed("none"))
		pass(3*time.Hour + time.Minute)
		if got := len(to.keys()); got != 2 || tries != 4 {
			t.Errorf("%d were sent, and the poison was tried %d times in three hours; want 2 and 4", got, tries)
		}
		sks := w.f.items(testTable, testQueue)
		if len(sks) != 2 {
			t.Fatalf("%d items are left, want the poison and what stands behind it", len(sks))
		}
		// An operator removes it.
		w.f.mu.Lock()
		for key := range w.f.tables[testTable] {
			if strings.HasSuffix(key, sks[0]) {
				delete(w.f.tables[testTable], key)
			}
		}
		w.f.mu.Unlock()
		pass(20 * time.Second)
		if got := len(to.keys()); got != 3 {
			t.Errorf("%d were sent after the poison was removed, want 3", got)
		}
		end()
	})
}

// TestDestinationIsDown: after ten minutes everything is sent, once and in the groups' order.
func TestDestinationIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b, began := w.outbox(&Options{Partitions: 2}), time.Now()
		to := &destination{refuse: func(*broker.Outgoing) error {
			if time.Since(began) < 10*time.Minute {
				return errors.New("the destination is down")
			}
			return nil
		}}
		end := relay(t, b, to)
		for i := range 40 {
			w.put(b, inGroup(fmt.Sprint("g", i%4), i, fmt.Sprint(i)))
		}
		pass(20 * time.Minute)
		if got := to.keys(); len(got) != 40 {
			t.Errorf("%d were sent, want 40", len(got))
		}
		last := make(map[string]string)
		for _, m := range to.sent {
			if s := fmt.Sprintf("%3s", m.Body); s <= last[m.Group] {
				t.Errorf("%s was sent behind %s", s, last[m.Group])
			} else {
				last[m.Group] = s
			}
		}
		end()
	})
}
