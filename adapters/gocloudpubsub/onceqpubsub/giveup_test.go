package onceqpubsub_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

// A job that is never settled learns from its context that its message is delivered again: after
// MaxHold, and where nothing is extended after Visibility.
func TestContextEndsWithTheHold(t *testing.T) {
	for name, hold := range map[string]time.Duration{"held": 2 * leaseTime, "not held": -1} {
		t.Run(name, func(t *testing.T) {
			playLeases(t, onceqpubsub.SubscriptionOptions{MaxHold: hold}, func(l *leased) {
				l.put("a")
				m := l.take()
				var ctx context.Context
				if !m.As(&ctx) || ctx.Err() != nil {
					t.Fatal("the message gives no context, or one that has ended")
				}
				again := l.take() // it is delivered again
				synctest.Wait()   // both happen in one moment
				if ctx.Err() == nil {
					t.Error("its context goes on after the message was delivered again")
				}
				again.Ack()
				m.Ack()
			})
		})
	}
}

// A program that never settles does not fill the memory.
func TestNeverSettled(t *testing.T) {
	for name, hold := range map[string]time.Duration{"held": leaseTime, "not held": -1} {
		t.Run(name, func(t *testing.T) {
			playLeasesOn(t, membroker.Memory, onceqpubsub.SubscriptionOptions{MaxHold: hold}, func(l *leased) {
				const n, size = 500, 100 << 10
				use := func() int64 {
					runtime.GC()
					var s runtime.MemStats
					runtime.ReadMemStats(&s)
					return int64(s.HeapAlloc)
				}
				l.put(string(make([]byte, size)))
				before := use()
				for range n {
					m := l.take()
					runtime.SetFinalizer(m, nil)
				}
				if more := use() - before; more > n*size/4 {
					t.Errorf("%d deliveries that nobody settled hold %d bytes", n, more)
				}
			})
		})
	}
}

// Heartbeats fail until the holder is told, and then one is answered. The message is still ours, so
// Shutdown hands it back.
func TestProlongedAfterSilence(t *testing.T) {
	playLeases(t, onceqpubsub.SubscriptionOptions{}, func(l *leased) {
		l.put("a")
		m := l.take()
		var ctx context.Context
		m.As(&ctx)
		began := time.Now()
		l.queue.mu.Lock()
		l.queue.extendErr = func() error {
			if time.Since(began) < leaseTime-time.Second {
				return errAway
			}
			return nil
		}
		l.queue.mu.Unlock()
		later(3 * leaseTime)
		l.queue.mu.Lock()
		extends := l.queue.extends
		l.queue.mu.Unlock()
		if ctx.Err() == nil || extends < 4 {
			t.Fatalf("%d heartbeats, and the context has %v: nothing to test", extends, ctx.Err())
		}
		l.depth(broker.Depth{InFlight: 1})
		if err := l.sub.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		l.ends = true
		l.depth(broker.Depth{Visible: 1})
	})
}
