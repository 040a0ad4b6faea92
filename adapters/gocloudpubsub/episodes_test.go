package gocloudpubsub_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
)

// jobs is what workers did, each of which has a Broker of its own on one queue.
type jobs struct {
	*rig.World
	took   time.Duration
	before func(ctx context.Context, key string, start int) error // may be nil
}

func newJobs(t *testing.T, took time.Duration) *jobs {
	t.Helper()
	return &jobs{World: rig.NewWorld(t), took: took}
}

func (js *jobs) handle(ctx context.Context, j *onceq.Job) error {
	if js.before != nil {
		js.Mu.Lock()
		start := js.Started[j.Key().Key]
		js.Mu.Unlock()
		if err := js.before(ctx, j.Key().Key, start); err != nil {
			return err
		}
	}
	return rig.Busy(ctx, js.took)
}

// work starts a worker; stop drains it.
func (js *jobs) work(b broker.Broker, concurrency int, visibility time.Duration) (stop func()) {
	js.Helper()
	letters := must.Get(membroker.New(nil))
	js.Queues = func(*onceqtest.Process) (broker.Broker, broker.Broker) { return b, letters }
	return js.Work(js.handle, func(c *rig.Config) { c.Concurrency, c.Visibility = concurrency, visibility }).Drain
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
	js.Mu.Lock()
	defer js.Mu.Unlock()
	return len(js.Effects)
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
		stop := js.work(b, 2, 0)
		js.Until(5*time.Minute, "the queue is empty", q.empty)
		stop()
		js.Once(20)
		for k, n := range js.Started {
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
		stop := js.work(b, 2, 0)
		js.Until(time.Minute, "some are done", func() bool { return js.done() >= 4 })
		back = time.Now().Add(time.Minute)
		if err := sub.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		js.Until(10*time.Minute, "the queue is empty", q.empty)
		stop()
		js.Once(20)
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
		stop := js.work(b, 4, 0)
		js.Until(time.Minute, "some are done", func() bool { return js.done() >= 20 })
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
		js.Once(js.done())
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
				stop := js.work(first, 20, 2*time.Second)
				js.Until(time.Minute, "some are done", func() bool { return js.done() > 300 })
				second := q.broker(t, nil, set)
				stopSecond := js.work(second, 20, 2*time.Second)
				js.Until(10*time.Minute, "the queue is empty", q.empty)
				stop()
				stopSecond()
				js.Once(n)
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
