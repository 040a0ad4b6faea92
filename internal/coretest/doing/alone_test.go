package doing

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/coretest/rig"
	"github.com/onceq/onceq/internal/instant"
	"github.com/onceq/onceq/internal/must"
)

type mark = instant.Mark

// watched is a memory store that notes which goroutines call it.
type watched struct {
	*memstore.Store
	mark

	mu  sync.Mutex
	ids []string
}

func (s *watched) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, rig.Goroutine())
}

func (s *watched) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	s.note()
	return s.Store.Claim(ctx, rs)
}

func (s *watched) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	s.note()
	return s.Store.Settle(ctx, ss)
}

func memory(t *testing.T, o *memstore.Options) *memstore.Store {
	return must.Get(memstore.New(o))
}

func processor(t *testing.T, st dedupe.Store, set func(c *onceq.ProcessorConfig)) *onceq.Processor {
	t.Helper()
	c := onceq.ProcessorConfig{Store: st, Scope: "test"}
	if set != nil {
		set(&c)
	}
	return must.Get(onceq.NewProcessor(c))
}

// A call of Do makes the calls of a store that never waits itself, and leaves those of any other to
// a carrier, because such a call may hang.
func TestDoCallsAnInstantStoreItself(t *testing.T) {
	for _, marked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			st := &watched{Store: memory(t, nil)}
			if marked {
				st.mark = instant.Of(st)
			}
			p := processor(t, st, nil)
			if _, err := onceq.Do(t.Context(), p, dedupe.Key{Key: "a"}, nil, rig.Gives(1, nil)); err != nil {
				t.Fatal(err)
			}
			for _, id := range st.ids {
				if own := id == rig.Goroutine(); own != marked {
					t.Errorf("marked %v: called in its own goroutine: %v", marked, own)
				}
			}
			if len(st.ids) != 2 {
				t.Errorf("%d calls, want a claim and a settlement", len(st.ids))
			}
		})
	}
}

// stuck is a store whose claims hang until free is closed, whatever becomes of their contexts.
type stuck struct {
	*memstore.Store
	free chan struct{}
}

func (s *stuck) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	<-s.free
	return s.Store.Claim(context.WithoutCancel(ctx), rs)
}

// Whoever embeds a memory store in a store that hangs gets back from Do when the context ends.
func TestDoWithAStoreThatHangsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stuck{memory(t, nil), make(chan struct{})}
		p := processor(t, st, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := onceq.Do(ctx, p, dedupe.Key{Key: "a"}, nil, func(context.Context, *onceq.Job) (int, error) {
			t.Error("it ran")
			return 0, nil
		})
		if notRun := new(onceq.NotRunError); !errors.As(err, &notRun) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		close(st.free)
		rig.Pass(time.Minute)
		if rs, err := st.Get(t.Context(), []dedupe.Key{{Scope: "test", Key: "a"}}); err != nil || rs[0] == nil || rs[0].Status != dedupe.Released || rs[0].Attempt != 0 {
			t.Errorf("the late claim was not given back: %+v, %v", rs, err)
		}
	})
}

// nested is an Observer that calls Do when a job has ended.
type nested struct {
	p    *onceq.Processor
	same error // of a call for the key that has just ended
	err  error // of a call for another one
}

func (n *nested) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }
func (n *nested) JobEnded(ctx context.Context, r *onceq.JobReport) {
	if r.Key.Key != "a" {
		return
	}
	ctx = context.WithoutCancel(ctx) // the job's has ended
	_, n.same = onceq.Do(ctx, n.p, r.Key, nil, rig.Gives(2, nil))
	_, n.err = onceq.Do(ctx, n.p, dedupe.Key{Key: "b"}, nil, rig.Gives(2, nil))
}

// On a memory store all of a call goes on in one goroutine, also an Observer that calls Do again,
// and what a run may end with.
func TestDoOnMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(nested)
		p := processor(t, memory(t, nil), func(c *onceq.ProcessorConfig) { c.Observer = n })
		n.p = p
		do := func(key string, f func(context.Context, *onceq.Job) (int, error)) (int, error) {
			return onceq.Do(t.Context(), p, dedupe.Key{Key: key}, nil, f)
		}
		v, err := do("a", rig.Gives(1, nil))
		busy := new(onceq.InProgressError)
		if v != 1 || err != nil || !errors.As(n.same, &busy) || n.err != nil {
			t.Errorf("%d, %v; from within: %v, %v", v, err, n.same, n.err)
		}
		if v, err := do("a", rig.Gives(3, nil)); v != 1 || err != nil {
			t.Errorf("again: %d, %v", v, err)
		}
		if _, err := do("c", rig.Gives(0, rig.ErrBoom)); !errors.Is(err, rig.ErrBoom) {
			t.Errorf("failed: %v", err)
		}
		if v, err := do("c", rig.Gives(4, nil)); v != 4 || err != nil {
			t.Errorf("after a failure: %d, %v", v, err)
		}
		if _, err := do("d", rig.Gives(0, onceq.Permanent(rig.ErrBoom))); !errors.Is(err, rig.ErrBoom) {
			t.Errorf("permanent: %v", err)
		}
		if failed := new(onceq.FailedError); func() bool { _, err := do("d", rig.Gives(1, nil)); return !errors.As(err, &failed) }() {
			t.Error("a key that has failed ran again")
		}
		func() {
			defer func() {
				if v := recover(); v != "boom" {
					t.Errorf("the panic is %v", v)
				}
			}()
			_, _ = do("e", func(context.Context, *onceq.Job) (int, error) { panic("boom") })
		}()
		left := make(chan struct{})
		go func() {
			defer close(left)
			_, _ = do("f", func(context.Context, *onceq.Job) (int, error) { runtime.Goexit(); return 0, nil })
		}()
		<-left
		for _, key := range []string{"e", "f"} {
			if v, err := do(key, rig.Gives(5, nil)); v != 5 || err != nil {
				t.Errorf("%s after it broke: %d, %v", key, v, err)
			}
		}
		// One key from many goroutines runs once.
		var all sync.WaitGroup
		var ran sync.Map
		for i := range 50 {
			all.Go(func() {
				v, err := onceq.Do(t.Context(), p, dedupe.Key{Key: "g"}, &onceq.DoOptions{Wait: time.Minute}, func(context.Context, *onceq.Job) (int, error) {
					ran.Store(i, true)
					<-time.After(time.Second)
					return 7, nil
				})
				if v != 7 || err != nil {
					t.Errorf("one of many: %d, %v", v, err)
				}
			})
		}
		all.Wait()
		times := 0
		ran.Range(func(any, any) bool { times++; return true })
		if times != 1 {
			t.Errorf("it ran %d times", times)
		}
	})
}

// A memory store that is full refuses the claim, and the call ends as it does without a store.
func TestDoOnFullMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := processor(t, memory(t, &memstore.Options{MaxRecords: 1}), nil)
		_, err := onceq.Do(t.Context(), p, dedupe.Key{Key: "a"}, nil, func(ctx context.Context, _ *onceq.Job) (int, error) {
			begin := time.Now()
			_, err := onceq.Do(ctx, p, dedupe.Key{Key: "b"}, nil, rig.Gives(1, nil))
			if notRun := new(onceq.NotRunError); !errors.As(err, &notRun) || !errors.Is(err, dedupe.ErrFull) {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			return 1, nil
		})
		if err != nil {
			t.Error(err)
		}
		rig.Pass(time.Minute)
	})
}
