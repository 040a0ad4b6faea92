package control_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

func newStore(tb testing.TB) *memstore.Store {
	return must.Get(memstore.New(nil))
}

// cut is a store whose calls of a kind are made to fail, and are not applied.
type cut struct {
	dedupe.Store
	fails func(op string) bool
}

var errCut = errors.New("the store does not answer")

func (s *cut) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if s.fails != nil && s.fails("renew") {
		return nil, errCut
	}
	return s.Store.Renew(ctx, rs)
}

func (s *cut) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	if s.fails != nil && s.fails("settle") {
		return nil, errCut
	}
	return s.Store.Settle(ctx, ss)
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		var wg sync.WaitGroup
		var mu sync.Mutex
		runs, told := 0, 0
		for range 20 {
			wg.Go(func() {
				ran, err := control.RunOnce(t.Context(), s, "report/2026-11-22", 0, func(ctx context.Context) error {
					runs++
					<-time.After(10 * time.Minute) // many times the lease
					return ctx.Err()
				})
				mu.Lock()
				defer mu.Unlock()
				if ran {
					told++
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if runs != 1 || told != 1 {
			t.Errorf("it ran %d times, and %d were told so", runs, told)
		}
	})
}

// TestRunOnceFails: what failed may be run by another; a claim that is lost ends the context; a
// panic leaves no goroutine behind.
func TestRunOnceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cut{Store: newStore(t)}
		mine := errors.New("no")
		if ran, err := control.RunOnce(t.Context(), s, "a", 0, func(context.Context) error { return mine }); !ran || !errors.Is(err, mine) {
			t.Error(ran, err)
		}
		if ran, err := control.RunOnce(t.Context(), s, "a", 0, func(context.Context) error { return nil }); !ran || err != nil {
			t.Error(ran, err)
		}
		if ran, err := control.RunOnce(t.Context(), s, "a", 0, func(context.Context) error { return nil }); ran || err != nil {
			t.Error(ran, err)
		}
		s.fails = func(op string) bool { return op == "renew" }
		begin := time.Now()
		if ran, err := control.RunOnce(t.Context(), s, "b", 0, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}); !ran || !errors.Is(err, dedupe.ErrLeaseLost) || time.Since(begin) > 30*time.Second {
			t.Error(ran, err, time.Since(begin))
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = control.RunOnce(t.Context(), s, "c", 0, func(context.Context) error { panic("x") })
		}()
	})
}

// TestWithLock: while one acts another is told. Afterwards it is free, also after an error, and
// half a minute after the one has died. A claim that is lost does not end the act.
func TestWithLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cut{Store: newStore(t)}
		fine := func(context.Context) error { return nil }
		mine := errors.New("no")
		err := control.WithLock(t.Context(), s, "letters/a", func(context.Context) error {
			for range 3 {
				<-time.After(time.Minute) // longer than the lease
				h, held := errors.AsType[*control.HeldError](control.WithLock(t.Context(), s, "letters/a", fine))
				if !held || h.Name != "letters/a" || h.Left <= 0 || h.Left > 30*time.Second {
					t.Error(h)
				}
			}
			if err := control.WithLock(t.Context(), s, "letters/b", fine); err != nil {
				t.Error(err)
			}
			return mine
		})
		if !errors.Is(err, mine) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := control.WithLock(ctx, s, "letters/a", func(context.Context) error { cancel(); return nil }); err != nil {
			t.Error("after an error it is not free:", err)
		}
		synctest.Wait() // a renewal may be at its end
		s.fails = func(op string) bool { return op == "renew" || op == "settle" }
		if err := control.WithLock(t.Context(), s, "letters/a", func(ctx context.Context) error {
			<-time.After(25 * time.Second)
			return ctx.Err()
		}); err != nil {
			t.Error("after an interrupt it is not free:", err)
		}
		synctest.Wait()
		s.fails = nil
		if err := control.WithLock(t.Context(), s, "letters/a", fine); !errors.As(err, new(*control.HeldError)) {
			t.Error(err)
		}
		<-time.After(30 * time.Second)
		if err := control.WithLock(t.Context(), s, "letters/a", fine); err != nil {
			t.Error("its holder is dead, and it is not free:", err)
		}
	})
}

// deafStore has a Renew that ignores its context, or panics.
type deafStore struct {
	dedupe.Store
	panics bool
	free   chan struct{}
}

func (s *deafStore) Renew(context.Context, []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if s.panics {
		panic("no such table")
	}
	<-s.free
	return nil, errors.New("too late")
}

// TestLockOutlivesAnOutage: the store gives no answer for longer than a claim holds. What runs
// goes on, so its beats do, too, and nobody else gets the lock when the store is back.
func TestLockOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &cut{Store: newStore(t), fails: func(string) bool { d := time.Since(began); return d > 11*time.Second && d < 45*time.Second }}
		ended := make(chan error)
		go func() {
			ended <- control.WithLock(t.Context(), s, "db", func(context.Context) error {
				<-time.After(10 * time.Minute)
				return nil
			})
		}()
		for range 9 {
			<-time.After(time.Minute)
			if err := control.WithLock(t.Context(), s, "db", func(context.Context) error { return nil }); !errors.As(err, new(*control.HeldError)) {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestDeafRenew: a store that does not come back from Renew keeps neither RunOnce nor WithLock from
// returning when f has ended, nor a claim that is lost from ending f's context.
func TestDeafRenew(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &deafStore{newStore(t), panics, make(chan struct{})}
			begin := time.Now()
			err := control.WithLock(t.Context(), s, "a", func(context.Context) error {
				<-time.After(12 * time.Second)
				return nil
			})
			if took := time.Since(begin); err != nil || took > 13*time.Second {
				t.Errorf("Alone returned after %v: %v", took, err)
			}
			begin = time.Now()
			_, err = control.RunOnce(t.Context(), s, "b", 0, func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if took := time.Since(begin); !errors.Is(err, dedupe.ErrLeaseLost) || took > 30*time.Second {
				t.Errorf("Once returned after %v: %v", took, err)
			}
			close(s.free)
			synctest.Wait()
		})
	}
}
