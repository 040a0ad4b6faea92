package onceq

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
)

// worked is all that one worker is made of.
type worked struct {
	ProcessorConfig
	WorkerConfig
	queue broker.Receiver
}

// inside runs f in virtual time, beside a worker whose queue holds n jobs.
func inside(t *testing.T, n int, change func(c *worked), f func(w *Worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q, err := membroker.New(&membroker.Options{Preset: membroker.SQSStandard})
		if err != nil {
			t.Fatal(err)
		}
		st, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := worked{ProcessorConfig{Store: st, Scope: "test"}, WorkerConfig{DeadLetter: KeepInQueue}, q}
		change(&c)
		p, err := NewProcessor(c.ProcessorConfig)
		if err != nil {
			t.Fatal(err)
		}
		w, err := p.Worker(c.queue, c.WorkerConfig)
		if err != nil {
			t.Fatal(err)
		}
		if err := Send(t.Context(), q, make([]broker.Outgoing, n)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		f(w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if n := w.p.e.Held(); n != 0 {
			t.Errorf("%d leases are held after the end", n)
		}
	})
}

// A worker that always has something waiting does not keep the places of all that it has done.
func TestQueueOfABusyWorkerStaysShort(t *testing.T) {
	inside(t, 2000, func(c *worked) {
		c.Concurrency = 4
		c.Handler = HandlerFunc(func(_ context.Context, j *Job) error {
			<-time.After(time.Second + time.Duration(j.Fence()%97)*time.Millisecond*7)
			return nil
		})
	}, func(w *Worker) {
		<-time.After(5 * time.Minute)
		n, places := w.flow.Waiting()
		if n == 0 {
			t.Error("nothing waits")
		}
		if places > 100 {
			t.Errorf("the queue has %d places for %d that wait", places, n)
		}
	})
}

// A lease is not held again after its run has ended, because nobody would look after it.
func TestLostDeliveryOfAnEndedRunStaysReleased(t *testing.T) {
	ended := make(map[string]int)
	inside(t, 2, func(c *worked) {
		c.Concurrency = 1
		c.CallTimeout = time.Minute
		c.queue = losing{c.queue.(*membroker.Broker)}
		c.Store = slowClaims{c.Store}
		c.Handler = HandlerFunc(func(context.Context, *Job) error { return nil })
		c.Observer = slowEnd{ended}
	}, func(*Worker) { <-time.After(5 * time.Minute) })
	if ended["lost-before-claim"] == 0 || ended["done"] == 0 {
		t.Errorf("the runs ended as %v", ended)
	}
}

// The flow must have a run before its delivery is held. Else the delivery could be found lost, and
// the run be over before it has begun. The list of the runs would break, and Run would not return.
func TestNothingIsHeldThatTheFlowDoesNotHave(t *testing.T) {
	inside(t, 0, func(c *worked) {
		c.Handler = HandlerFunc(func(context.Context, *Job) error { <-time.After(time.Second); return nil })
	}, func(w *Worker) {
		synctest.Wait()
		rs := w.taken(w.flow, []*broker.Message{{ID: "1", Meta: &broker.Meta{Key: "k"}}})
		if n := w.p.e.Held(); n != 0 {
			t.Errorf("%d leases are held too early", n)
		}
		w.flow.Offer(0, rs)
		if n := w.p.e.Held(); n != 1 {
			t.Errorf("%d leases are held, want 1", n)
		}
	})
}

// losing loses every delivery at its first extension, the youngest first.
type losing struct{ *membroker.Broker }

func (q losing) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	ms, err := q.Broker.Receive(ctx, o)
	for i, m := range ms {
		m.Deadline = m.Deadline.Add(-time.Duration(i) * time.Second)
	}
	return ms, err
}

func (q losing) Extend(context.Context, []broker.Hold) error { return broker.ErrReceiptExpired }

// slowClaims are answered after the first beat.
type slowClaims struct{ dedupe.Store }

func (s slowClaims) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	<-time.After(20 * time.Second)
	return s.Store.Claim(ctx, rs)
}

// slowEnd takes its time over a delivery that was lost.
type slowEnd struct{ ended map[string]int }

func (slowEnd) JobStarted(ctx context.Context, _ *Job) context.Context { return ctx }

func (s slowEnd) JobEnded(_ context.Context, r *TimingRecord) {
	if r.Outcome == "lost-before-claim" {
		<-time.After(30 * time.Second)
	}
	s.ended[string(r.Outcome)]++
}

// Nothing of a batch stays with the manager that renews the claims.
func TestBatchLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewProcessor(ProcessorConfig{
			Store: st, Scope: "test",
			Handler: HandlerFunc(func(_ context.Context, j *Job) error {
				<-time.After(time.Duration(len(j.Message.Body)) * time.Second)
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Batches(BatchConfig{DeadLetter: KeepInQueue})
		if err != nil {
			t.Fatal(err)
		}
		for _, until := range []time.Time{{}, time.Now().Add(10 * time.Second)} {
			ds := []Delivery{{Until: until}, {Until: until}}
			for i := range ds {
				k := string(rune('a' + i))
				ds[i].Message = &broker.Message{ID: k, Meta: &broker.Meta{ID: k, Key: k}, Body: make([]byte, 1+20*i)}
			}
			b.Process(t.Context(), ds, nil, func(int, Disposition) {})
			if n := b.in.e.Held(); n != 0 {
				t.Errorf("%d leases are held after the return", n)
			}
		}
	})
}
