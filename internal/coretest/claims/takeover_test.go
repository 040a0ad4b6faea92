package onceq_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// longer is a store that keeps each lease longer than its owner counts on, as dynamostore does.
type longer struct {
	dedupe.Store
	by time.Duration
}

func (s longer) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	qs := append([]dedupe.ClaimRequest(nil), rs...)
	for i := range qs {
		qs[i].TTL += s.by
	}
	cs, err := s.Store.Claim(ctx, qs)
	for i := range cs {
		cs[i].Lease.Deadline = cs[i].Lease.Deadline.Add(-s.by)
	}
	return cs, err
}

func (s longer) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	ns := append([]dedupe.Renewal(nil), rs...)
	for i := range ns {
		ns[i].TTL += s.by
	}
	as, err := s.Store.Renew(ctx, ns)
	for i := range as {
		as[i].Deadline = as[i].Deadline.Add(-s.by)
	}
	return as, err
}

// mortal cuts a worker off from its store and its queue, as a crash does.
type mortal struct {
	dedupe.Store
	dead *atomic.Bool
}

func (m mortal) call() error {
	if m.dead.Load() {
		return errBoom
	}
	return nil
}

func (m mortal) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	takes(5 * time.Millisecond) // as a real store, so that the lease ends after the delivery
	return m.Store.Claim(ctx, rs)
}

func (m mortal) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Store.Renew(ctx, rs)
}

func (m mortal) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Store.Settle(ctx, ss)
}

// mortalQueue is the queue's part of it.
type mortalQueue struct {
	broker.Receiver
	m mortal
}

func (q mortalQueue) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	if q.m.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	o.Wait = -1 // a poll that waits would outlive the crash
	ms, err := q.Receiver.Receive(ctx, o)
	if len(ms) == 0 && err == nil {
		takes(100 * time.Millisecond)
	}
	return ms, err
}

func (q mortalQueue) Extend(ctx context.Context, hs []broker.Hold) error {
	if err := q.m.call(); err != nil {
		return err
	}
	return q.Receiver.Extend(ctx, hs)
}

func (q mortalQueue) Ack(ctx context.Context, rs []broker.Receipt) error {
	if err := q.m.call(); err != nil {
		return err
	}
	return q.Receiver.Ack(ctx, rs)
}

func (q mortalQueue) Nack(ctx context.Context, hs []broker.Hold) error {
	if err := q.m.call(); err != nil {
		return err
	}
	return q.Receiver.Nack(ctx, hs)
}

// beside runs another worker until the end of the bubble.
func (r *rig) beside(set func(c *setup)) (stop func()) {
	w, done := r.worker(set), make(chan error, 1)
	ctx, cancel := context.WithCancel(r.Context())
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}

// A job whose worker dies is taken over within its lease and a few seconds, however long it had
// run.
func TestDeadOwnerIsTakenOver(t *testing.T) {
	type times struct{ lease, visibility time.Duration }
	usual := times{30 * time.Second, 30 * time.Second}
	for _, c := range []struct {
		owner, claimer times
		longer         time.Duration // that the store keeps leases
	}{
		{owner: usual, claimer: usual},
		{owner: usual, claimer: usual, longer: 2 * time.Second},
		{owner: usual, claimer: usual, longer: 3 * time.Second},
		{owner: times{time.Minute, 30 * time.Second}, claimer: times{time.Minute, 30 * time.Second}},
		{owner: times{time.Minute, 10 * time.Second}, claimer: times{time.Minute, 10 * time.Second}},
		{owner: times{10 * time.Minute, 10 * time.Second}, claimer: times{10 * time.Minute, 10 * time.Second}},
		{owner: times{30 * time.Second, 2 * time.Minute}, claimer: times{30 * time.Second, 2 * time.Minute}},
		// A rolling deploy that changes Lease.
		{owner: times{time.Minute, 30 * time.Second}, claimer: usual},
		{owner: times{10 * time.Minute, 30 * time.Second}, claimer: usual},
		{owner: usual, claimer: times{10 * time.Minute, 30 * time.Second}},
		{owner: usual, claimer: times{5 * time.Second, 30 * time.Second}, longer: 2 * time.Second},
	} {
		for _, p := range []membroker.Preset{membroker.SQSStandard, membroker.SQSFIFO} {
			for _, lives := range []time.Duration{time.Second, 9 * time.Second, time.Minute, time.Hour + 7*time.Second} {
				t.Run(fmt.Sprintf("%v to %v, longer %v, %v, %v", c.owner, c.claimer, c.longer, p, lives), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t, returns(nil), preset(p))
						st := dedupe.Store(r.store)
						if c.longer > 0 {
							st = longer{r.store, c.longer}
						}
						var dead atomic.Bool
						m, released := mortal{st, &dead}, make(chan struct{})
						kill := r.beside(func(cfg *setup) {
							cfg.Store, cfg.Broker = m, mortalQueue{r.q, m}
							cfg.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { <-released; return nil })
							cfg.Lease, cfg.Visibility, cfg.DrainTimeout = c.owner.lease, c.owner.visibility, -1
						})
						r.send("g/a", "g/b")
						pass(lives)
						dead.Store(true)
						crash := time.Now()
						var last atomic.Int64
						stop := r.beside(func(cfg *setup) {
							cfg.Store = st
							cfg.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
								last.Store(int64(time.Since(crash)))
								return nil
							})
							cfg.Lease, cfg.Visibility = c.claimer.lease, c.claimer.visibility
						})
						most := max(c.owner.lease+c.longer, c.owner.visibility)
						most += most/8 + 5*time.Second
						pass(2 * most)
						if took := time.Duration(last.Load()); took > most || r.record("a").Status != dedupe.Done || r.record("b").Status != dedupe.Done {
							t.Errorf("taken over after %v, want %v at most; %v", took, most, r.seen.outcomes("a"))
						}
						stop()
						kill()
						close(released)
						pass(time.Hour)
					})
				})
			}
		}
	}
}

// While the owner lives, a duplicate is received seldom: each time when the age of the claim has
// doubled. That is so where the two workers have different leases, too.
func TestDuplicateOfALongJobIsReceivedSeldom(t *testing.T) {
	const length = 10 * time.Hour
	for _, c := range []struct{ owner, claimer time.Duration }{
		{30 * time.Second, 30 * time.Second},
		{10 * time.Second, 30 * time.Second},
		{5 * time.Minute, 30 * time.Second},
		{30 * time.Second, 5 * time.Minute},
	} {
		t.Run(fmt.Sprintf("%v and %v", c.owner, c.claimer), func(t *testing.T) {
			bubble(t, until(length), func(r *rig) {
				r.send("a")
				r.start()
				pass(time.Second)
				stop := r.beside(func(cfg *setup) { cfg.Lease = c.claimer })
				m := message("a")
				m.Body = []byte("duplicate")
				r.put(m)
				pass(2*length + 2*time.Hour)
				// It doubles from the lease on.
				most := 3 + int(math.Ceil(math.Log2(float64(length)/float64(min(c.owner, c.claimer)))))
				if n := r.q.received("duplicate"); n < 2 || n > most+8 {
					t.Errorf("%d receives, want %d or so", n, most)
				}
				r.wantStatus("a", dedupe.Done)
				r.wantQueue(0)
				stop()
			}, preset(membroker.SQSStandard), with(func(cfg *setup) { cfg.Lease, cfg.Concurrency, cfg.Prefetch = c.owner, 1, -1 }))
		})
	}
}

// A lease that is over, and yet cannot be taken, is locked by the transaction in which its owner
// completes the job. That may last long, so it is asked for as seldom as a lease that lives.
func TestLockedClaimIsAskedForSeldom(t *testing.T) {
	bubble(t, never(t), func(r *rig) {
		r.store.set(func(s *store) {
			s.onClaim = func([]dedupe.ClaimRequest, []dedupe.Claim) []dedupe.Claim {
				return []dedupe.Claim{{Outcome: dedupe.InProgress, Age: time.Hour, Term: 30 * time.Second}}
			}
		})
		r.send("a")
		r.run(time.Minute)
		if got := r.q.delays("a"); len(got) != 1 || got[0] < time.Hour {
			t.Errorf("nacked with %v", got)
		}
	})
}
