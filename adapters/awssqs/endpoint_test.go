package awssqs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/sqsfake"
)

// The messages of a receive whose answer was lost come at once, as the same delivery, and not after
// their timeout.
func TestLostReceiveOnFIFOComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fake(t, nil)
		c := fakeClient(srv)
		b := makeBroker(t, c, makeQueue(t, c, true, nil), nil)
		if _, err := b.Send(t.Context(), []broker.Outgoing{grouped(sized(1)), grouped(sized(2))}); err != nil {
			t.Fatal(err)
		}
		srv.SetFaults(sqsfake.Fault{Action: "ReceiveMessage", Reset: true, Applied: true, Count: 1})
		o := broker.ReceiveOptions{Max: 10, Visibility: time.Minute}
		if _, err := b.Receive(t.Context(), o); err == nil {
			t.Fatal("the answer was not lost")
		}
		<-time.After(20 * time.Second)
		ms, err := b.Receive(t.Context(), o)
		if err != nil || len(ms) != 2 || len(ms[0].Body) != 1 || ms[0].Attempt != 1 {
			t.Fatalf("%q came, %v", bodiesOf(ms), err)
		}
		if !ms[0].Deadline.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("Deadline is in %v", time.Until(ms[0].Deadline))
		}
		<-time.After(time.Until(ms[0].Deadline) - time.Second)
		if held, err := b.Receive(t.Context(), o); len(held) > 0 || err != nil {
			t.Errorf("before the Deadline %q came, %v", bodiesOf(held), err)
		}
	})
}

// TestWorkersServer runs two workers on LocalStack, one of which drains in the middle.
func TestWorkersServer(t *testing.T) {
	const jobs = 300
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo ", fifo), func(t *testing.T) {
			c := server(t).Client(t)
			url, dlq := makeQueue(t, c, fifo, nil), makeQueue(t, c, fifo, nil)
			store := must.Get(memstore.New(nil))
			var mu sync.Mutex
			effects, all := map[string]int{}, make(chan struct{})
			start := func() (stop context.CancelFunc, done chan error) {
				p := must.Get(onceq.NewProcessor(onceq.ProcessorConfig{
					Store: store, Scope: "test",
					Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
						if err := rig.Busy(ctx, 100*time.Millisecond); err != nil {
							return err
						}
						mu.Lock()
						defer mu.Unlock()
						if effects[j.Key().Key]++; len(effects) == jobs && effects[j.Key().Key] == 1 {
							close(all)
						}
						return nil
					}),
				}))
				w, err := p.Worker(makeBroker(t, c, url, &awssqs.Options{LongPoll: time.Second}), onceq.WorkerConfig{DeadLetter: makeBroker(t, c, dlq, nil), Concurrency: 20})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done = make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				return cancel, done
			}
			stop1, done1 := start()
			stop2, done2 := start()
			b := makeBroker(t, c, url, nil)
			for i := range jobs {
				k := fmt.Sprint(i)
				if err := onceq.SendOne(t.Context(), b, &broker.Outgoing{Body: []byte(k), Meta: &broker.Meta{Key: k}, Group: fmt.Sprint("g", i%30)}); err != nil {
					t.Fatal(err)
				}
				if i == jobs/2 {
					stop1()
					if err := <-done1; err != nil {
						t.Errorf("Run: %v", err)
					}
				}
			}
			select {
			case <-all:
			case <-time.After(time.Minute):
				t.Errorf("%d of %d jobs were done within a minute", len(effects), jobs)
			}
			stop2()
			if err := <-done2; err != nil {
				t.Errorf("Run: %v", err)
			}
			for k, n := range effects {
				if n != 1 {
					t.Errorf("job %s had its effect %d times", k, n)
				}
			}
			for _, q := range []*awssqs.Broker{b, makeBroker(t, c, dlq, nil)} {
				if d, err := q.Depth(t.Context()); err != nil || d != (broker.Depth{}) {
					t.Errorf("%s has %+v, %v", q.Name(), d, err)
				}
			}
		})
	}
}
