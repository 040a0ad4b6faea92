package fan_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/onceqtest"
)

// TestSoak: a tenth of all calls of the store and of both queues fail, lose their answers or are
// slow, and all of them for a time, while workers of parents come and go. Each parent ends with the
// sum of all of its children.
func TestSoak(t *testing.T) {
	const worlds, parents, n = 4, 3, 520
	seeds := proof.Seeds(t)
	for seeds[len(seeds)-1]-seeds[0] < worlds-1 {
		seeds = append(seeds, seeds[len(seeds)-1]+1)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			play(t, n, func(w *family) {
				w.works(func(ctx context.Context, j *onceq.Job, i int) error {
					if i%97 == 5 {
						return onceq.Sleep(ctx, j, "nap", time.Duration(i)*time.Second/2)
					}
					return nil
				})
				var mu sync.Mutex
				var lives [4]time.Duration
				for i := range lives {
					lives[i] = time.Duration(10+rng.IntN(60)) * time.Second
				}
				away := time.Now().Add(time.Duration(rng.IntN(60)) * time.Second)
				bad := func(onceqtest.Call) faulty.Faults {
					mu.Lock()
					defer mu.Unlock()
					if out := time.Since(away); out > 0 && out < time.Minute {
						return faulty.Fail(rig.ErrBoom)
					}
					switch rng.IntN(40) {
					case 0:
						return faulty.Fail(rig.ErrBoom)
					case 1, 2:
						return faulty.Lose(rig.ErrBoom)
					case 3:
						return faulty.Slow(3 * time.Second)
					}
					return nil
				}
				w.Store.SetFault(bad)
				w.children.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults { return bad(c) })
				for i := range parents {
					w.Send(fmt.Sprint("p", i))
				}
				for _, life := range lives {
					stop := w.Beside(nil)
					rig.Pass(life)
					stop()
				}
				w.Store.Heals()
				w.children.SetFault(nil)
				w.RunFor(30 * time.Minute)
				for i := range parents {
					w.WantStatus(fmt.Sprint("p", i), dedupe.Done)
				}
				w.NoLetters()
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, sum := range w.sums {
					if sum != n*(n+1)/2 {
						t.Errorf("a sum is %d, want %d", sum, n*(n+1)/2)
					}
				}
				if len(w.sums) < parents {
					t.Errorf("%d sums of %d parents", len(w.sums), parents)
				}
			}, rig.Most(-1), rig.Warnings, func(r *rig.Rig) {
				r.Cfg.Defaults.Backoff = func(int, error) time.Duration { return 2 * time.Second }
			})
		})
	}
}
