package ops_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/ops"
)

// asked counts what a queue is asked.
type asked struct {
	broker.Broker
	depths atomic.Int64
}

func (a *asked) Unwrap() any { return a.Broker }

func (a *asked) Depth(ctx context.Context) (broker.Depth, error) {
	a.depths.Add(1)
	return a.Broker.(broker.Depther).Depth(ctx)
}

// seated makes targets with workers in one store, and keys that nobody asks for.
func (r *rig) seated(queues, workers, keys int) (o *ops.Ops, asks []*asked) {
	r.Helper()
	var ts []ops.Target
	for q := range queues {
		name := fmt.Sprint("queue-", q)
		queue := &asked{Broker: must(membroker.New(&membroker.Options{Name: name}))}
		dead := &asked{Broker: must(membroker.New(&membroker.Options{Name: name + "-dead"}))}
		asks = append(asks, queue, dead)
		ts = append(ts, ops.Target{Name: name, Queue: queue, DeadLetters: dead, Store: r.store})
		for w := range workers {
			seat := must(controlstore.NewSeat(r.store, controlstore.SeatOptions{Queue: name, Owner: fmt.Sprint("w-", w)}))
			if err := seat.Beat(r.Context(), &control.WorkerStatus{At: time.Now(), State: "running", Slots: 10, Busy: 3}); err != nil {
				r.Fatal(err)
			}
		}
	}
	for k := range keys {
		of := dedupe.Key{Scope: "orders", Key: fmt.Sprint(k)}
		r.settle(r.reclaim(of, 0), dedupe.Done, "")
	}
	return must(ops.New(ts, &ops.Options{By: "ana"})), asks
}

// TestOverviewCalls: what a look at five queues with 200 workers costs is as it says, however many
// keys there are: two requests a queue, and of the store a read of the rules, one of 64 seats, and
// two that find no more, for each queue.
func TestOverviewCalls(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		o, asks := r.seated(5, 40, 300)
		r.store.FailsAs(func(call onceqtest.Op) error {
			if call != "get" {
				t.Errorf("a look makes a %s", call)
			}
			return nil
		})
		for range 2 { // the second look costs what the first did
			before := r.store.Gets.Load()
			states := must(o.Overview(r.Context()))
			if len(states) != 5 || states[4].Totals().Live != 40 || states[4].Totals().Busy != 120 {
				t.Errorf("%+v", states[4].Totals())
			}
			if n := r.store.Gets.Load() - before; n > 5*4 {
				t.Errorf("%d reads of the store, want 20 at most", n)
			}
			for _, a := range asks {
				if n := a.depths.Swap(0); n != 1 {
					t.Errorf("%d requests to a queue", n)
				}
			}
		}
	})
}

// deafQueue counts its messages for as long as it likes, whatever its caller says.
type deafQueue struct {
	broker.Broker
	asked atomic.Int64
	until chan struct{}
}

func (d *deafQueue) Depth(context.Context) (broker.Depth, error) {
	d.asked.Add(1)
	<-d.until
	return broker.Depth{Visible: 7}, nil
}

// TestBoardDeafQueue: a call that does not end with its context keeps no viewer waiting, hides no
// other queue, is not made again before it has ended, and keeps Close from nothing.
func TestBoardDeafQueue(t *testing.T) {
	bubble(t, ops.Options{}, func(r *rig) {
		queue := must(membroker.New(&membroker.Options{Name: "orders"}))
		hung := &deafQueue{Broker: queue, until: make(chan struct{})}
		o := must(ops.New([]ops.Target{{Name: "hung", Queue: hung}, {Name: "orders", Queue: queue}}, nil))
		b := r.board(o, nil)
		began := time.Now()
		for range 4 {
			s, err := b.Look(r.Context())
			if err != nil || s.Queues[0].DepthErr == nil || s.Queues[1].Depth == nil {
				t.Fatalf("%v: %+v", err, s)
			}
			if d := time.Since(s.At); d > 12*time.Second {
				t.Errorf("the board is %v old", d)
			}
			r.wait(7 * time.Second)
		}
		if d := time.Since(began); hung.asked.Load() != 1 || d > 40*time.Second {
			t.Errorf("asked %d times in %v", hung.asked.Load(), d)
		}
		close(hung.until)
		r.wait(12 * time.Second)
		if s, err := b.Look(r.Context()); err != nil || s.Queues[0].Depth == nil || s.Queues[0].Depth.Visible != 7 {
			t.Errorf("after it has answered: %v %+v", err, s)
		}
	})
}
