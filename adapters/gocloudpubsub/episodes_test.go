package gocloudpubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

// jobs counts what happened to each.
type jobs struct {
	store   *memstore.Store
	letters *membroker.Broker
	took    time.Duration
	before  func(ctx context.Context, key string, start int) error // may be nil

	mu              sync.Mutex
	starts, effects map[string]int
}

func newJobs(t *testing.T, took time.Duration) *jobs {
	t.Helper()
	s := must.Get(memstore.New(nil))
	letters := must.Get(membroker.New(nil))
	return &jobs{store: s, letters: letters, took: took, starts: map[string]int{}, effects: map[string]int{}}
}

func (js *jobs) Handle(ctx context.Context, j *onceq.Job) error {
	js.mu.Lock()
	js.starts[j.Key().Key]++
	start := js.starts[j.Key().Key]
	js.mu.Unlock()
	if js.before != nil {
		if err := js.before(ctx, j.Key().Key, start); err != nil {
			return err
		}
	}
	if js.took > 0 {
		select {
		case <-time.After(js.took):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	js.effects[j.Key().Key]++
	return nil
}

// work starts a worker; stop drains it.
func (js *jobs) work(t *testing.T, b broker.Broker, concurrency int, visibility time.Duration) (stop func()) {
	t.Helper()
	p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(js.Handle), Store: js.store, Scope: "test", Logger: slog.New(slog.DiscardHandler),
	}))
	w := must.Get(p.Worker(b, onceq.WorkerConfig{DeadLetter: js.letters, Concurrency: concurrency, Visibility: visibility}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func send(t *testing.T, b broker.Sender, n int) {
	t.Helper()
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = broker.Outgoing{Body: []byte(strconv.Itoa(i)), Meta: &broker.Meta{Key: strconv.Itoa(i)}}
	}
	if err := onceq.Send(t.Context(), b, ms); err != nil {
		t.Fatal(err)
	}
}

func (js *jobs) done() int {
	js.mu.Lock()
	defer js.mu.Unlock()
	return len(js.effects)
}

func (js *jobs) until(t *testing.T, limit time.Duration, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !met(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s; %d jobs are done", limit, what, js.done())
		}
	}
}

// once checks that each of n jobs had its effect once.
func (js *jobs) once(t *testing.T, n int) {
	t.Helper()
	js.mu.Lock()
	defer js.mu.Unlock()
	starts := 0
	for k, e := range js.effects {
		if e != 1 {
			t.Errorf("job %s had its effect %d times", k, e)
		}
		starts += js.starts[k]
	}
	if len(js.effects) != n {
		t.Errorf("%d of %d jobs had their effect", len(js.effects), n)
	}
	t.Logf("%d starts for %d jobs", starts, n)
}

func (q *tiny) empty() bool {
	held, visible := q.count()
	return held+visible == 0
}

// A batch of acks fails for good, which ends gocloud's subscription. The worker goes on with
// another one, the jobs whose acks were lost come again and are not done again, and the old
// subscription is shut down.
func TestAckFailsForGood(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: 10 * time.Second, failAck: func(call int) error {
			if call == 3 || call == 7 {
				return errForGood
			}
			return nil
		}}
		b := q.broker(t, new(gocloudpubsub.NoPrefetch()), nil)
		js := newJobs(t, time.Second)
		send(t, b, 20)
		stop := js.work(t, b, 2, 0)
		js.until(t, 5*time.Minute, "the queue is empty", q.empty)
		stop()
		js.once(t, 20)
		for k, n := range js.starts {
			if n != 1 {
				t.Errorf("job %s was started %d times", k, n)
			}
		}
		// The second failure may have hit the subscription that had failed already.
		if n := b.Stats().Reopened; n != 1 && n != 2 {
			t.Errorf("the subscription was opened again %d times", n)
		}
		<-time.After(time.Second)
		if q.mu.Lock(); q.open != 1 {
			t.Errorf("%d subscriptions are open, want 1", q.open)
		}
		q.mu.Unlock()
	})
}

// Somebody shuts the subscription down, and for a minute no other can be opened.
func TestSubscriptionIsShutDown(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: 10 * time.Second}
		sub := q.subscribe(new(gocloudpubsub.NoPrefetch()))
		var back time.Time
		var asked atomic.Int32
		b := makeBroker(t, q.topic(), sub, gocloudpubsub.Options{
			Visibility: q.visibility,
			Reopen: func(context.Context) (*pubsub.Subscription, error) {
				if asked.Add(1); time.Now().Before(back) {
					return nil, errors.New("not yet")
				}
				return q.subscribe(new(gocloudpubsub.NoPrefetch())), nil
			},
		})
		js := newJobs(t, 2*time.Second)
		send(t, b, 20)
		stop := js.work(t, b, 2, 0)
		js.until(t, time.Minute, "some are done", func() bool { return js.done() >= 4 })
		back = time.Now().Add(time.Minute)
		if err := sub.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		js.until(t, 10*time.Minute, "the queue is empty", q.empty)
		stop()
		js.once(t, 20)
		if n := asked.Load(); n < 3 || n > 100 {
			t.Errorf("Reopen was called %d times", n)
		}
	})
}

// At a drain gocloud holds messages that nobody has started. They are there for another worker at
// once, and not after their timeout of an hour.
func TestDrainHandsBackWhatGocloudHolds(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: time.Hour}
		b := q.broker(t, nil, nil)
		js := newJobs(t, 300*time.Millisecond)
		send(t, b, 60)
		stop := js.work(t, b, 4, 0)
		js.until(t, time.Minute, "some are done", func() bool { return js.done() >= 20 })
		if held, _ := q.count(); held <= 4 {
			t.Fatalf("%d messages are held: gocloud has received nothing ahead, so there is nothing to test", held)
		}
		stop()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if held, visible := q.count(); held != 0 || visible+js.done() != 60 {
			t.Errorf("after the drain %d messages are held and %d visible, and %d jobs done", held, visible, js.done())
		}
		if b.Stats().Returned == 0 {
			t.Error("nothing was returned")
		}
		js.once(t, js.done())
	})
}

// A second worker joins while the first one's gocloud holds many messages, which run out there.
func TestSecondConsumerJoinsLate(t *testing.T) {
	for _, c := range []struct {
		name   string
		extend bool
	}{{"alone", false}, {"extender", true}} {
		t.Run(c.name, func(t *testing.T) {
			gocloudtest.Bubble(t, func(t *testing.T) {
				const n = 1500
				q := &tiny{visibility: 2 * time.Second}
				set := func(o *gocloudpubsub.Options) {
					if c.extend {
						o.Extender = q.extender()
					}
				}
				js := newJobs(t, 500*time.Millisecond)
				first := q.broker(t, nil, set)
				send(t, first, n)
				stop := js.work(t, first, 20, 2*time.Second)
				js.until(t, time.Minute, "some are done", func() bool { return js.done() > 300 })
				second := q.broker(t, nil, set)
				stopSecond := js.work(t, second, 20, 2*time.Second)
				js.until(t, 10*time.Minute, "the queue is empty", q.empty)
				stop()
				stopSecond()
				js.once(t, n)
				if d := q.deliveries(); d < n+n/50 {
					t.Errorf("%d deliveries of %d messages: none ran out, so there was nothing to test", d, n)
				}
			})
		})
	}
}

// TestSecondConsumerOfGocloudAlone is what the test above would be without us: it shows that there
// is something to hold.
func TestSecondConsumerOfGocloudAlone(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		const n = 1500
		q := &tiny{visibility: 2 * time.Second}
		topic := q.topic()
		for range n {
			if err := topic.Send(t.Context(), &pubsub.Message{Body: []byte("a")}); err != nil {
				t.Fatal(err)
			}
		}
		var starts atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		consume := func() {
			sub := q.subscribe(nil)
			for range 20 {
				all.Go(func() {
					for {
						m, err := sub.Receive(ctx)
						if err != nil {
							return
						}
						starts.Add(1)
						<-time.After(500 * time.Millisecond)
						m.Ack()
					}
				})
			}
		}
		consume()
		for starts.Load() < 300 {
			<-time.After(100 * time.Millisecond)
		}
		consume()
		for !q.empty() {
			<-time.After(100 * time.Millisecond)
		}
		cancel()
		all.Wait()
		<-time.After(2 * time.Second)
		t.Logf("%d starts for %d messages", starts.Load(), n)
		if starts.Load() <= n {
			t.Error("gocloud alone started none twice")
		}
	})
}

// Without nacks a job that fails would never come again.
func TestDriverWithoutNacks(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: 10 * time.Second, noNack: true}
		b := q.broker(t, new(gocloudpubsub.NoPrefetch()), nil)
		send(t, b, 1)
		ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
		if !errors.Is(err, broker.ErrUnsupported) || len(ms) > 0 {
			t.Errorf("Receive was answered %d messages, %v", len(ms), err)
		}
		if n := b.Stats().Reopened; n != 0 {
			t.Errorf("the subscription was opened again %d times", n)
		}
	})
}

// The deliveries of a subscription that failed are settled through it.
func TestOldDeliveriesAfterAReopen(t *testing.T) {
	gocloudtest.Bubble(t, func(t *testing.T) {
		q := &tiny{visibility: time.Hour}
		sub := q.subscribe(new(gocloudpubsub.NoPrefetch()))
		b := makeBroker(t, q.topic(), sub, gocloudpubsub.Options{
			Visibility: q.visibility,
			Reopen: func(context.Context) (*pubsub.Subscription, error) {
				return q.subscribe(new(gocloudpubsub.NoPrefetch())), nil
			},
		})
		send(t, b, 2)
		receive := func() *broker.Message {
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
			if err != nil || len(ms) != 1 {
				t.Fatalf("Receive was answered %d messages, %v", len(ms), err)
			}
			return ms[0]
		}
		old := receive()
		q.mu.Lock()
		q.failAck = func(call int) error { return map[int]error{1: errForGood}[call] }
		q.mu.Unlock()
		lost := receive()
		if err := b.Ack(t.Context(), []broker.Receipt{lost.Receipt}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the ack has failed
		send(t, b, 1)
		receive()
		if n := b.Stats().Reopened; n != 1 {
			t.Fatalf("the subscription was opened again %d times", n)
		}
		if err := b.Ack(t.Context(), []broker.Receipt{old.Receipt}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if held, visible := q.count(); held != 2 || visible != 0 {
			t.Errorf("%d messages are held and %d visible; the ack through the old subscription was lost", held, visible)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.open != 1 {
			t.Errorf("%d subscriptions are open", q.open)
		}
	})
}

func TestOptions(t *testing.T) {
	q := &tiny{}
	sub, topic := q.subscribe(nil), q.topic()
	reopen := never
	for want, o := range map[string]gocloudpubsub.Options{
		"Options.Reopen: is nil; give":                                         {Visibility: time.Minute},
		"Options.Visibility: 0; give the queue's own timeout, at most 12h0m0s": {Reopen: reopen},
		"Options.Visibility: 1":                                                {Reopen: reopen, Visibility: 1},
		"Options.Visibility: -1s is not within 1ms":                            {Reopen: reopen, Visibility: -time.Second},
		"Options.Visibility: 13h":                                              {Reopen: reopen, Visibility: 13 * time.Hour},
		"Options.Queue":                                                        {Reopen: reopen, Visibility: time.Minute, Queue: "https://sqs/1/orders"},
		"Options.Extender: its":                                                {Reopen: reopen, Visibility: time.Minute, Extender: &gocloudpubsub.Extender{}},
		"Options.Extender: a bound is negative: MinHold -1ns":                  {Reopen: reopen, Visibility: time.Minute, Extender: &gocloudpubsub.Extender{Extend: q.extend, MinHold: -1}},
		"Options.Extender: MinHold":                                            {Reopen: reopen, Visibility: time.Minute, Extender: &gocloudpubsub.Extender{Extend: q.extend, MinHold: 2, MaxHold: 1}},
		"Options.ReceiveGrace":                                                 {Reopen: reopen, Visibility: time.Minute, ReceiveGrace: time.Hour},
		"Options.ReceiveGrace: 5ns":                                            {Reopen: reopen, Visibility: time.Minute, ReceiveGrace: 5},
		"Options.CallTimeout: -":                                               {Reopen: reopen, Visibility: time.Minute, CallTimeout: -time.Second},
		"Options.CallTimeout: 10m":                                             {Reopen: reopen, Visibility: time.Minute, CallTimeout: 10 * time.Minute},
		"Options.CallTimeout: 5":                                               {Reopen: reopen, Visibility: time.Minute, CallTimeout: 5},
	} {
		_, err := gocloudpubsub.New(topic, sub, o)
		if err == nil || !strings.HasPrefix(err.Error(), "gocloudpubsub: "+want) {
			t.Errorf("%s: the answer is %v", want, err)
		}
	}
	if _, err := gocloudpubsub.New(nil, nil, gocloudpubsub.Options{}); err == nil {
		t.Error("a Broker without topic and subscription was made")
	}
	b, err := gocloudpubsub.New(topic, nil, gocloudpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("a Receive without a subscription was answered: %v", err)
	}
	if b, err = gocloudpubsub.New(nil, sub, gocloudpubsub.Options{Reopen: reopen, Visibility: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("a Send without a topic was answered: %v", err)
	}
	var none *gocloudpubsub.Broker
	if err := none.Ack(t.Context(), []broker.Receipt{"x"}); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("an Ack of no Broker was answered: %v", err)
	}
	_ = fmt.Sprint(none.Limits(), none.Stats(), none.Close())
}
