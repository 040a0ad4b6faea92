package life

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/instant"
	"github.com/onceq/onceq/internal/must"
)

type mark = instant.Mark

// instantStore notes who settles, and how deep the stacks of its claims are.
type instantStore struct {
	*memstore.Store
	mark

	mu     sync.Mutex
	ends   []string // the goroutines that settled
	frames int      // of a claim, at most
}

func (s *instantStore) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	s.mu.Lock()
	s.frames = max(s.frames, runtime.Callers(0, make([]uintptr, 1000)))
	s.mu.Unlock()
	return s.Store.Claim(ctx, rs)
}

func (s *instantStore) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	s.mu.Lock()
	for range ss {
		s.ends = append(s.ends, rig.Goroutine())
	}
	s.mu.Unlock()
	return s.Store.Settle(ctx, ss)
}

// A worker of one handler over a store that never waits records an end in the handler's goroutine.
// With two handlers their ends may make one batch, and any other store may hang: then a carrier
// does it. Duplicates are not found from within one another, however many wait.
func TestOneHandlerOverAnInstantStore(t *testing.T) {
	for name, c := range map[string]struct {
		handlers int
		marked   bool
		own      bool
	}{
		"one":                {1, true, true},
		"two":                {2, true, false},
		"one, another store": {1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &instantStore{Store: benchStore(t)}
				if c.marked {
					st.mark = instant.Of(st)
				}
				q := benchQueue(t)
				var mu sync.Mutex
				var ran []string
				w := must.Get(rig.NewWorker(rig.Setup{
					ProcessorConfig: onceq.ProcessorConfig{
						Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error {
							mu.Lock()
							defer mu.Unlock()
							ran = append(ran, rig.Goroutine())
							return nil
						}),
						Store: st, Scope: "test",
					},
					WorkerConfig: onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue, Concurrency: c.handlers, Prefetch: 500},
					Broker:       q,
				}))
				const jobs = 300 // each sent twice
				for range 2 {
					ms := make([]broker.Outgoing, jobs)
					for i := range ms {
						ms[i] = rig.Message(rig.Numbered("job-", jobs)[i])
					}
					for part := range slices.Chunk(ms, 100) {
						if err := onceq.Send(t.Context(), q, part); err != nil {
							t.Fatal(err)
						}
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
				own := 0
				for _, id := range st.ends {
					if slices.Contains(ran, id) {
						own++
					}
				}
				if len(ran) != jobs || len(st.ends) != jobs || (own == jobs) != c.own || own != 0 && !c.own {
					t.Errorf("%d ran, %d ended, %d of these where they ran", len(ran), len(st.ends), own)
				}
				if st.frames > 60 {
					t.Errorf("a claim had %d frames above it", st.frames)
				}
				if d, err := q.Depth(t.Context()); err != nil || d != (broker.Depth{}) {
					t.Errorf("left in the queue: %+v, %v", d, err)
				}
			})
		})
	}
}
