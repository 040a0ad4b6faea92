package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

// got is what a receive in the background brought, and when.
type got struct {
	bodies []string
	after  time.Duration
	err    error
}

// start receives in the background.
func (q queue) start(ctx context.Context, o broker.ReceiveOptions) <-chan got {
	c := make(chan got, 1)
	begun := time.Now()
	go func() {
		ms, err := q.Receive(ctx, o)
		c <- got{bodies(ms), time.Since(begun), err}
	}()
	synctest.Wait()
	return c
}

func (g got) want(t *testing.T, after time.Duration, texts ...string) {
	t.Helper()
	if g.err != nil || g.after != after || !slices.Equal(g.bodies, texts) {
		t.Fatalf("%q after %v, %v; want %q after %v", g.bodies, g.after, g.err, texts, after)
	}
}

func TestWaitEndsEmpty(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		(<-q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: 7 * time.Second})).want(t, 7*time.Second)
		(<-q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})).want(t, q.Limits().MaxWait)
		(<-q.start(t.Context(), broker.ReceiveOptions{Max: 1})).want(t, 0)
	})
}

func TestSendWakes(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		c := q.start(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
		pass(3 * time.Second)
		q.send("a", "b")
		(<-c).want(t, 3*time.Second, "a", "b")
	})
}

func TestTimeWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		q.send("expires")
		held := q.one("expires")
		if _, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("delayed"), Delay: 20 * time.Second}}); err != nil {
			t.Fatal(err)
		}
		c := q.start(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
		(<-c).want(t, 20*time.Second, "delayed")
		c = q.start(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
		(<-c).want(t, 10*time.Second, "expires")
		_ = held
		// An extension moves the alarm, a nack brings it forward.
		c = q.start(t.Context(), broker.ReceiveOptions{Max: 10, Wait: -1})
		(<-c).want(t, 20*time.Second, "delayed")
		m := q.receive(broker.ReceiveOptions{Wait: -1})[0]
		c = q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
		want(t, q.extend(m, time.Second), nil)
		(<-c).want(t, time.Second, "expires")
	})
}

func TestAckWakesForTheNextOfAGroup(t *testing.T) {
	virtual(t, ordered, func(t *testing.T, q queue) {
		q.send("g/1", "g/2")
		head := q.receive(broker.ReceiveOptions{Max: 1})[0]
		c := q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
		pass(time.Second)
		q.ack(head)
		(<-c).want(t, time.Second, "2")
	})
}

// Those who wait are served in the order in which they came, and none waits while there is
// something for it.
func TestWaitersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		var cs []<-chan got
		for range 5 {
			cs = append(cs, q.start(t.Context(), broker.ReceiveOptions{Max: 2, Wait: -1}))
		}
		pass(time.Second)
		q.send("a", "b", "c")
		(<-cs[0]).want(t, time.Second, "a", "b")
		(<-cs[1]).want(t, time.Second, "c")
		q.send("d")
		(<-cs[2]).want(t, time.Second, "d")
		// The messages come back at once; a receive that does not wait takes nothing from
		// those who do.
		pass(visibility)
		(<-cs[3]).want(t, visibility+time.Second, "a", "b")
		(<-cs[4]).want(t, visibility+time.Second, "c", "d")
		q.get()
	})
}

// A receive may come at the very moment in which a message comes back, before the alarm has rung.
// It leaves the message to the receive that waits.
func TestNobodyJumpsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		q.send("a")
		for range 100 {
			q.one("a")
			jumped := make(chan int, 1)
			time.AfterFunc(visibility, func() { jumped <- len(q.receive(broker.ReceiveOptions{})) })
			c := q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
			(<-c).want(t, visibility, "a")
			if n := <-jumped; n != 0 {
				t.Fatal("the message went to the later receive")
			}
			pass(visibility)
		}
	})
}

func TestCancelledReceiveStrandsNothing(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := q.start(ctx, broker.ReceiveOptions{Max: 1, Wait: -1})
		pass(time.Second)
		cancel(errors.New("drain"))
		if g := <-c; !errors.Is(g.err, context.Canceled) || g.after != time.Second {
			t.Fatalf("%+v", g)
		}
		q.send("a")
		q.depth(1, 0, 0)
		if _, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		q.depth(1, 0, 0)
	})
}

// A receive cancelled at the moment in which it is served returns what it was handed.
func TestCancelAgainstSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		brought, cancelled := 0, 0
		for range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			c := q.start(ctx, broker.ReceiveOptions{Max: 1, Wait: -1})
			var wg sync.WaitGroup
			wg.Go(cancel)
			wg.Go(func() { q.send("a") })
			wg.Wait()
			g := <-c
			if g.err == nil {
				brought++
			} else {
				cancelled++
				q.depth(1, int64(brought), 0)
				q.ack(q.one("a"))
			}
			q.depth(0, int64(brought), 0)
		}
		t.Logf("%d brought, %d cancelled", brought, cancelled)
	})
}

func TestClose(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		c := q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
		q.send("a", "b")
		(<-c).want(t, 0, "a")
		m := q.one("b")
		c = q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
		pass(time.Second)
		for range 2 {
			want(t, q.Close(), nil)
		}
		if g := <-c; !errors.Is(g.err, broker.ErrClosed) || g.after != time.Second {
			t.Fatalf("%+v", g)
		}
		for range 2 {
			_, receive := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Wait: -1})
			_, send := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("c"), Group: "g"}})
			_, depth := q.Depth(t.Context())
			_, policy := q.Redrive(t.Context())
			for i, err := range []error{
				receive, send, depth, policy, q.tryAck(m), q.nack(m, 0), q.extend(m, visibility), q.SendRaw(t.Context(), []byte("c"), nil),
			} {
				if !errors.Is(err, broker.ErrClosed) {
					t.Fatalf("call %d after Close: %v", i, err)
				}
			}
		}
	})
}

// A broker dropped with messages in flight and an alarm set leaves no goroutine that would
// keep the bubble from ending.
func TestDroppedInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		q.send("a")
		q.one("a")
		(<-q.start(t.Context(), broker.ReceiveOptions{Max: 1, Wait: time.Second})).want(t, time.Second)
	})
}

// Many senders, receivers and expiries at once: each message is acked exactly once by its
// current receipt, and none is left.
func TestConcurrentUse(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		const senders, each, receivers = 8, 200, 16
		var wg, receiving sync.WaitGroup
		var mu sync.Mutex
		acked := make(map[string]int)
		ctx, stop := context.WithCancel(t.Context())
		for range receivers {
			receiving.Go(func() {
				for {
					ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: 3, Wait: -1})
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					for i, m := range ms {
						switch i % 3 {
						case 0:
							if err := q.tryAck(m); err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							acked[string(m.Body)]++
							mu.Unlock()
						case 1:
							if err := q.nack(m, 0); err != nil {
								t.Error(err)
								return
							}
						}
					}
				}
			})
		}
		for s := range senders {
			wg.Go(func() {
				for i := range each {
					if _, err := q.Send(ctx, []broker.Outgoing{{Body: fmt.Append(nil, s, "-", i), Group: fmt.Sprint("g", i%20)}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		missing := func() int {
			mu.Lock()
			defer mu.Unlock()
			return senders*each - len(acked)
		}
		for missing() > 0 {
			pass(visibility)
			synctest.Wait()
		}
		stop()
		receiving.Wait()
		q.depth(0, 0, 0)
		for body, n := range acked {
			if n != 1 {
				t.Errorf("%s acked %d times", body, n)
			}
		}
	})
}
