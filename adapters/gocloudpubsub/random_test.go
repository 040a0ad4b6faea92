package gocloudpubsub_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"gocloud.dev/pubsub"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
)

// TestRandomWorlds lets everything fail at once: acks and receives for good, Reopen, subscriptions
// that somebody else shuts down, messages that are delivered to two at once, and workers that stop
// and are followed by others. Each job has its effect once, and the queue is empty in the end.
func TestRandomWorlds(t *testing.T) {
	const worlds = 60
	for seed := range uint64(worlds) {
		gocloudtest.Bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return r.IntN(n)
			}
			chance := func(n int) bool { return draw(n) == 0 }
			q := &tiny{visibility: []time.Duration{2 * time.Second, 10 * time.Second, time.Minute}[draw(3)]}
			receives := new(gocloudpubsub.NoPrefetch())
			if draw(2) == 0 {
				receives = nil
			}
			q.failAck = func(int) error {
				if chance(12) {
					return errForGood
				}
				return nil
			}
			q.failReceive = func(int) error {
				if chance(40) {
					return errForGood
				}
				return nil
			}
			extends := draw(2) == 0
			open := func() (*gocloudpubsub.Broker, func()) {
				var current *pubsub.Subscription
				b := q.broker(t, receives, func(o *gocloudpubsub.Options) {
					if extends {
						o.Extender = q.extender()
					}
					o.Reopen = func(ctx context.Context) (*pubsub.Subscription, error) {
						switch {
						case chance(4):
							return nil, errors.New("not yet")
						case chance(6):
							<-ctx.Done()
							return nil, ctx.Err()
						}
						next := q.subscribe(receives) // without the lock, because the queue draws under its own
						mu.Lock()
						defer mu.Unlock()
						current = next
						return next, nil
					}
				})
				return b, func() { // somebody else's shutdown
					mu.Lock()
					s := current
					mu.Unlock()
					if s != nil {
						_ = s.Shutdown(context.Background())
					}
				}
			}
			n := 20 + draw(60)
			js := newJobs(t, time.Duration(draw(4000))*time.Millisecond)
			first, disturb := open()
			send(t, first, n)
			stop := js.work(first, 1+draw(8), max(q.visibility, 2*time.Second))
			for range draw(5) {
				<-time.After(time.Duration(draw(5000)) * time.Millisecond)
				q.redeliver(draw(4))
				if chance(2) {
					disturb()
				}
			}
			stop()
			_ = first.Close()
			_ = first.Close()
			second, _ := open()
			third, _ := open()
			stopSecond := js.work(second, 3, max(q.visibility, 2*time.Second))
			stopThird := js.work(third, 3, max(q.visibility, 2*time.Second))
			js.Until(3*time.Hour, "the queue is empty", q.empty)
			stopSecond()
			stopThird()
			js.Once(n)
			_, _ = second.Close(), third.Close()
			<-time.After(20 * time.Second)
			if s := q.subscriptions(); s != 0 {
				t.Errorf("world %d: %d subscriptions are open in the end", seed, s)
			}
		})
	}
}

// redeliver shows up to n messages again that somebody holds.
func (q *tiny) redeliver(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages[:min(n, len(q.messages))] {
		m.hidden = time.Time{}
	}
}
