package main

import (
	"context"
	"sync"
	"time"

	"gocloud.dev/pubsub"
)

// deadline is the queue's ack deadline; in earnest 30 s.
const deadline = 300 * time.Millisecond

// receive is the program as gocloud's guide has it: two goroutines receive, work and ack.
func receive(ctx context.Context, orders *pubsub.Subscription, ship func(context.Context, string) error) error {
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				m, err := orders.Receive(ctx)
				if err != nil {
					return
				}
				if ship(ctx, string(m.Body)) != nil {
					m.Nack()
					continue
				}
				m.Ack()
			}
		})
	}
	all.Wait()
	return orders.Shutdown(context.WithoutCancel(ctx))
}
