package onceqpubsub_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// TestRandomDriverWorlds lets calls of the broker fail behind OpenSubscription: acks whose answer
// is lost, or that fail for one of several, receives and nacks, with Shutdown in the middle. No two
// hold a message at once, and each is acked in the end.
func TestRandomDriverWorlds(t *testing.T) {
	const worlds = 60
	for seed := range uint64(worlds) {
		gocloudtest.Bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return r.IntN(n)
			}
			plain := must.Get(membroker.New(&membroker.Options{Preset: []membroker.Preset{membroker.Memory, membroker.SQSStandard}[draw(2)]}))
			away := errors.New("away")
			queue := &hooked{Broker: plain}
			queue.ack = func(rs []broker.Receipt) error {
				errs := make([]error, len(rs))
				switch draw(4) {
				case 0:
					return away
				case 1:
					errs[draw(len(rs))] = away
				}
				return broker.JoinEntries(errs)
			}
			some := func() error {
				if draw(5) == 0 {
					return away
				}
				return nil
			}
			queue.receive, queue.nack = some, some
			n := 10 + draw(60)
			for i := range n {
				if _, err := plain.Send(t.Context(), []broker.Outgoing{{Body: fmt.Appendf(nil, "%d", i)}}); err != nil {
					t.Fatal(err)
				}
			}
			held, done := map[string]int{}, map[string]bool{}
			for round := 0; ; round++ {
				sub := must.Get(onceqpubsub.OpenSubscription(queue, &onceqpubsub.SubscriptionOptions{
					Visibility: leaseTime, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
				}))
				life := time.Minute + time.Duration(draw(60))*time.Second
				ctx, cancel := context.WithTimeout(t.Context(), life)
				var all sync.WaitGroup
				for range 1 + draw(6) {
					all.Go(func() {
						for {
							m, err := sub.Receive(ctx)
							if err != nil {
								return
							}
							body := string(m.Body)
							mu.Lock()
							if held[body]++; held[body] > 1 {
								t.Errorf("world %d: %s is held by %d", seed, body, held[body])
							}
							mu.Unlock()
							<-time.After(time.Duration(draw(30)) * time.Second)
							mu.Lock()
							held[body]--
							mu.Unlock()
							if draw(4) == 0 {
								m.Nack()
								continue
							}
							mu.Lock()
							done[body] = true
							mu.Unlock()
							m.Ack()
						}
					})
				}
				all.Wait()
				cancel()
				end, cancel := context.WithTimeout(context.Background(), time.Minute)
				if err := sub.Shutdown(end); err != nil && end.Err() == nil {
					t.Errorf("world %d: Shutdown: %v", seed, err)
				}
				cancel()
				<-time.After(2 * leaseTime)
				d, err := plain.Depth(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if d == (broker.Depth{}) {
					break
				}
				if d.InFlight != 0 {
					t.Errorf("world %d: %v after its timeouts", seed, d)
				}
				if round > 50 {
					t.Fatalf("world %d: %v after %d rounds", seed, d, round)
				}
			}
			if len(done) != n {
				t.Errorf("world %d: %d of %d are done", seed, len(done), n)
			}
		})
	}
}
