package claims

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
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
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
						r := rig.New(t, rig.Returns(nil), rig.Preset(p))
						st := dedupe.Store(r.Store)
						if c.longer > 0 {
							st = longer{r.Store, c.longer}
						}
						process, store, queue := rig.Mortal(st, r.Q)
						released := make(chan struct{})
						kill := r.Beside(func(cfg *rig.Setup) {
							cfg.Store, cfg.Broker = store, queue
							cfg.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error { <-released; return nil })
							cfg.Lease, cfg.Visibility, cfg.DrainTimeout = c.owner.lease, c.owner.visibility, -1
						})
						r.Send("g/a", "g/b")
						rig.Pass(lives)
						process.Kill()
						crash := time.Now()
						var last atomic.Int64
						stop := r.Beside(func(cfg *rig.Setup) {
							cfg.Store = st
							cfg.Handler = onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
								last.Store(int64(time.Since(crash)))
								return nil
							})
							cfg.Lease, cfg.Visibility = c.claimer.lease, c.claimer.visibility
						})
						most := max(c.owner.lease+c.longer, c.owner.visibility)
						most += most/8 + 5*time.Second
						rig.Pass(2 * most)
						if took := time.Duration(last.Load()); took > most || r.Record("a").Status != dedupe.Done || r.Record("b").Status != dedupe.Done {
							t.Errorf("taken over after %v, want %v at most; %v", took, most, r.Seen.Outcomes("a"))
						}
						stop()
						kill()
						close(released)
						rig.Pass(time.Hour)
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
			rig.Bubble(t, rig.Works(length), func(r *rig.Rig) {
				r.Send("a")
				r.Start()
				rig.Pass(time.Second)
				stop := r.Beside(func(cfg *rig.Setup) { cfg.Lease = c.claimer })
				m := rig.Message("a")
				m.Body = []byte("duplicate")
				r.Put(m)
				rig.Pass(2*length + 2*time.Hour)
				// It doubles from the lease on.
				most := 3 + int(math.Ceil(math.Log2(float64(length)/float64(min(c.owner, c.claimer)))))
				if n := r.Q.Received("duplicate"); n < 2 || n > most+8 {
					t.Errorf("%d receives, want %d or so", n, most)
				}
				r.WantStatus("a", dedupe.Done)
				r.WantQueue(0)
				stop()
			}, rig.Preset(membroker.SQSStandard), rig.With(func(cfg *rig.Setup) { cfg.Lease, cfg.Concurrency, cfg.Prefetch = c.owner, 1, -1 }))
		})
	}
}

// A lease that is over, and yet cannot be taken, is locked by the transaction in which its owner
// completes the job. That may last long, so it is asked for as seldom as a lease that lives.
func TestLockedClaimIsAskedForSeldom(t *testing.T) {
	rig.Bubble(t, rig.Never(t), func(r *rig.Rig) {
		r.Store.Set(func(s *rig.Store) {
			s.OnClaim = func([]dedupe.ClaimRequest, []dedupe.Claim) []dedupe.Claim {
				return []dedupe.Claim{{Outcome: dedupe.InProgress, Age: time.Hour, Term: 30 * time.Second}}
			}
		})
		r.Send("a")
		r.RunFor(time.Minute)
		if got := r.Q.Delays("a"); len(got) != 1 || got[0] < time.Hour {
			t.Errorf("nacked with %v", got)
		}
	})
}
