package doing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/onceqtest"
)

// Many calls of few keys, in several processes, on a store that fails, hangs and loses replies;
// callers go away, f fails and panics. Whoever gets a result gets the same; f never runs twice at
// once, nor after a result was recorded; and every call ends.
func TestDoSoak(t *testing.T) {
	for _, seed := range append([]uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, proof.Seeds(t)...) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { soakDo(t, seed) })
	}
}

// soaked is what happened to one key.
type soaked struct {
	mu       sync.Mutex
	running  int
	runs     int
	recorded bool // a call was told of a result
	result   int
}

func soakDo(t *testing.T, seed uint64) {
	const keys, calls = 5, 40
	rig.BubbleDo(t, func(d *rig.Doer) {
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 1))
		chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) == 0 }
		upTo := func(most time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(rnd.Int64N(int64(most)))
		}
		d.Store.Set(func(s *rig.Store) {
			s.Fault = func(onceqtest.Call) (f faulty.Faults) {
				f = faulty.Slow(upTo(20 * time.Millisecond))
				switch {
				case chance(15):
					f = f.With(faulty.Fail(rig.ErrBoom))
				case chance(15):
					f = f.With(faulty.Lose(rig.ErrBoom))
				case chance(60):
					f = f.With(faulty.Hang())
				}
				return f
			}
		})
		of := make([]soaked, keys)
		f := func(k *soaked) func(context.Context, *onceq.Job) (int, error) {
			return func(ctx context.Context, _ *onceq.Job) (int, error) {
				k.mu.Lock()
				k.runs++
				n := k.runs
				if k.running++; k.running > 1 {
					t.Error("two runs at once")
				}
				if k.recorded {
					t.Error("a run after a result was given")
				}
				k.mu.Unlock()
				defer func() { k.mu.Lock(); k.running--; k.mu.Unlock() }()
				select {
				case <-time.After(upTo(3 * time.Second)):
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
				switch {
				case chance(4):
					return 0, rig.ErrBoom
				case chance(10):
					panic(rig.ErrBoom)
				}
				return n, nil
			}
		}
		processes := make([]*onceq.Processor, 3)
		for i := range processes {
			processes[i] = d.Processor(d.Store)
		}
		var all sync.WaitGroup
		for i := range keys * calls {
			k := &of[i%keys]
			all.Go(func() {
				rig.Takes(upTo(20 * time.Second))
				ctx, cancel := context.WithCancel(d.Context())
				defer cancel()
				if chance(4) {
					ctx, cancel = context.WithTimeout(ctx, upTo(4*time.Second))
					defer cancel()
				}
				o := &onceq.DoOptions{Wait: time.Minute}
				if chance(3) {
					o.Wait = 0
				}
				defer func() { recover() }() // of f's panics
				v, err := onceq.Do(ctx, processes[i%len(processes)], dedupe.Key{Key: fmt.Sprint("k", i%keys)}, o, f(k))
				k.mu.Lock()
				defer k.mu.Unlock()
				var unsettled *onceq.UnsettledError
				var notRun *onceq.NotRunError
				switch {
				case errors.As(err, &unsettled):
					// f has run, and may run again
				case err == nil:
					if k.recorded && k.result != v {
						t.Errorf("one call got %d, another %d", k.result, v)
					}
					k.recorded, k.result = true, v
				case isInProgress(err), errors.As(err, &notRun), errors.Is(err, rig.ErrBoom), ctx.Err() != nil:
				default:
					t.Errorf("answered %v", err)
				}
			})
		}
		all.Wait()
		d.Store.Heals()
		rig.Pass(2 * onceq.DefaultLease)
		for i := range of {
			v, err := d.Do(fmt.Sprint("k", i), nil, func(context.Context, *onceq.Job) (int, error) {
				if of[i].recorded {
					t.Error("a run after all, of a key with a result")
				}
				return of[i].runs + 1, nil
			})
			if err != nil || of[i].recorded && v != of[i].result {
				t.Errorf("key %d: %d, %v, want %d", i, v, err, of[i].result)
			}
		}
		synctest.Wait()
	})
}
