package life

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/visibility"
)

// skeletonJob is what the skeleton loop keeps for a message.
type skeletonJob struct {
	m     *broker.Message
	token dedupe.Token
	held  visibility.Held[*skeletonJob]
}

// runSkeleton is the loop that a careful programmer would write for one program. It makes the same
// calls in the same batches (hold, claim, handle, settle, ack), through channels to 64 goroutines.
// It has nothing else: no retries, no outcomes but won and done, no drain, no groups, no timing, no
// limits.
func runSkeleton(tb testing.TB, st *memstore.Store, n int) {
	runSkeletonOf(tb, st, n, benchHandlers)
}

// runSkeletonAlone has one goroutine that handles.
func runSkeletonAlone(tb testing.TB, st *memstore.Store, n int) { runSkeletonOf(tb, st, n, 1) }

func runSkeletonOf(tb testing.TB, st *memstore.Store, n, workers int) {
	tb.Helper()
	q := benchQueue(tb)
	leases, err := visibility.New(func(ctx context.Context, js []*skeletonJob) error {
		rs := make([]dedupe.Renewal, len(js))
		hs := make([]broker.Hold, len(js))
		for i, j := range js {
			rs[i] = dedupe.Renewal{Key: dedupe.Key{Scope: "bench", Key: j.m.Meta.Key}, Token: j.token, TTL: 30 * time.Second}
			hs[i] = broker.Hold{Receipt: j.m.Receipt, For: 30 * time.Second}
		}
		if _, err := st.Renew(ctx, rs); err != nil {
			return err
		}
		return q.Extend(ctx, hs)
	}, visibility.Options[*skeletonJob]{Timeout: 30 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	const batch = 100
	ctx, cancel := context.WithCancel(tb.Context())
	ready := make(chan *skeletonJob, workers)
	ended := make(chan *skeletonJob, workers)
	settled := make(chan []*skeletonJob, 16)
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	var run sync.WaitGroup
	run.Go(func() { // receive, hold, claim
		defer close(ready)
		for ctx.Err() == nil {
			ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: max(1, workers/2), Wait: -1, Visibility: 30 * time.Second})
			if err != nil || len(ms) == 0 {
				continue
			}
			js := make([]*skeletonJob, len(ms))
			held := make([]*visibility.Held[*skeletonJob], len(ms))
			reqs := make([]dedupe.ClaimRequest, len(ms))
			raw := make([]byte, 16*len(ms))
			rand.Read(raw)
			for i, m := range ms {
				j := &skeletonJob{m: m, token: dedupe.Token(raw[16*i:])}
				j.held.Lease, j.held.Deadline = j, m.Deadline
				js[i], held[i] = j, &j.held
				reqs[i] = dedupe.ClaimRequest{Key: dedupe.Key{Scope: "bench", Key: m.Meta.Key}, Token: j.token, TTL: 30 * time.Second, MessageID: m.ID}
			}
			leases.Hold(held...)
			cs, err := st.Claim(ctx, reqs)
			if err != nil {
				continue
			}
			for i, c := range cs {
				if c.Outcome == dedupe.Won {
					ready <- js[i]
				}
			}
		}
	})
	var hands sync.WaitGroup
	for range workers {
		hands.Go(func() {
			for j := range ready {
				if left.Add(-1) == 0 {
					close(done)
				}
				ended <- j
			}
		})
	}
	run.Go(func() { hands.Wait(); close(ended) })
	run.Go(func() { // settle
		defer close(settled)
		for j := range ended {
			js := []*skeletonJob{j}
		gather:
			for len(js) < batch {
				select {
				case j, ok := <-ended:
					if !ok {
						break gather
					}
					js = append(js, j)
				default:
					break gather
				}
			}
			ss := make([]dedupe.Settlement, len(js))
			for i, j := range js {
				ss[i] = dedupe.Settlement{Key: dedupe.Key{Scope: "bench", Key: j.m.Meta.Key}, Token: j.token, To: dedupe.Done}
			}
			if _, err := st.Settle(context.Background(), ss); err == nil {
				settled <- js
			}
		}
	})
	run.Go(func() { // ack
		for js := range settled {
			held := make([]*visibility.Held[*skeletonJob], len(js))
			rs := make([]broker.Receipt, len(js))
			for i, j := range js {
				held[i], rs[i] = &j.held, j.m.Receipt
			}
			_ = leases.Quiesce(context.Background(), held...)
			_ = q.Ack(context.Background(), rs)
		}
	})
	sendAll(ctx, tb, q, n)
	<-done
	cancel()
	run.Wait()
}
