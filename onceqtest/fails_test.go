package onceqtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/onceqtest"
)

// failing is a test that may fail: it keeps what was said against it.
type failing struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (f *failing) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// verdict runs a test within t and returns what it said; "" = it passed.
func verdict(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { test(f) })
	wg.Wait()
	return strings.Join(f.said, "\n")
}

// broken is a store of which one call fails: as a whole, or entry by entry.
type broken struct {
	dedupe.Store
	op      onceqtest.Op
	entries bool
}

var errBroken = errors.New("no such table: jobs")

func (s *broken) Claim(ctx context.Context, rs []dedupe.ClaimRequest) ([]dedupe.Claim, error) {
	switch {
	case s.op != onceqtest.Claim:
		return s.Store.Claim(ctx, rs)
	case s.entries:
		return []dedupe.Claim{{Err: errBroken}}, nil
	}
	return nil, errBroken
}

func (s *broken) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	if s.op == onceqtest.Renew {
		return []dedupe.Renewed{{Err: errBroken}}, nil
	}
	return s.Store.Renew(ctx, rs)
}

// TestStoreNeverAnswers: the worker would repeat its claim for ever, and virtual time would run on
// for ever.
func TestStoreNeverAnswers(t *testing.T) {
	for _, entries := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := must.Get(memstore.New(nil))
			var runs int
			config := counted(&runs, nil)
			config.Store = &broken{inner, onceqtest.Claim, entries}
			begun := time.Now()
			said := verdict(t, func(tb testing.TB) {
				rig := onceqtest.New(tb, config, nil)
				rig.Send(one("a"))
				rig.Deliver()
			})
			if !strings.Contains(said, "after 1h0m0s") || !strings.Contains(said, "claim: "+errBroken.Error()) || runs != 0 {
				t.Errorf("entry by entry %v: the test said %q after %d runs", entries, said, runs)
			}
			if took := time.Since(begun); took != time.Hour {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestHandlerNeverReturns: no call has failed, and the rig says so.
func TestHandlerNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		said := verdict(t, func(tb testing.TB) {
			rig := onceqtest.New(tb, onceq.ProcessorConfig{
				Handler: onceq.HandlerFunc(func(ctx context.Context, _ *onceq.Job) error { <-ctx.Done(); return ctx.Err() }),
			}, nil)
			rig.Send(one("a"))
			rig.Deliver()
		})
		if !strings.Contains(said, "24h") || !strings.Contains(said, "handler") {
			t.Errorf("the test said %q", said)
		}
		if took := time.Since(begun); took != 24*time.Hour {
			t.Errorf("it took %v", took)
		}
	})
}

// TestRenewalFails: an error within an answer counts as the store's last error, too.
func TestRenewalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := must.Get(memstore.New(nil))
		release := make(chan struct{})
		said := verdict(t, func(tb testing.TB) {
			defer close(release)
			rig := onceqtest.New(tb, onceq.ProcessorConfig{
				Store:   &broken{inner, onceqtest.Renew, true},
				Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { <-release; return nil }),
			}, nil)
			rig.Send(one("a"))
			rig.Deliver()
		})
		if !strings.Contains(said, "renew: "+errBroken.Error()) {
			t.Errorf("the test said %q", said)
		}
	})
}

// TestFaultNotReached: a crash that never came must not pass for one that was survived.
func TestFaultNotReached(t *testing.T) {
	for _, c := range []struct {
		at    onceqtest.Fault
		kills bool
		want  string
	}{
		{onceqtest.Fault{Op: onceqtest.Letter, Kind: onceqtest.CrashBefore}, false, `did not come by "crash-before of letter 1"`},
		{onceqtest.Fault{Op: onceqtest.Nack, Kind: onceqtest.CrashAfter}, false, `did not come by "crash-after of nack 1"`},
		{onceqtest.Fault{Op: onceqtest.Start, Kind: onceqtest.CrashBefore}, false, `did not come by "crash-before of start 1": it occurs under Park only`},
		{onceqtest.Fault{Op: onceqtest.Start, Kind: onceqtest.CrashAfter}, false, `did not come by "crash-after of start 1": it occurs under Park only`},
		{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore}, true, `did not come by "crash-before of settle 1"`},
		{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter}, true, `did not come by "crash-after of settle 1"`},
		{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore}, false, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			said := verdict(t, func(tb testing.TB) {
				var runs int
				var rig *onceqtest.Rig
				rig = onceqtest.New(tb, counted(&runs, func(*onceq.Job) error {
					if c.kills {
						rig.Kill()
					}
					return nil
				}), nil)
				rig.At(c.at)
				rig.Send(one("a"))
				rig.Deliver()
				rig.Redeliver() // for which no fault is set
			})
			if (said == "") != (c.want == "") || !strings.HasSuffix(said, c.want) || strings.Contains(said, "\n") {
				t.Errorf("%v: the test said %q, want %q", c.at, said, c.want)
			}
		})
	}
}

// pointless are faults that could change nothing, with what is said against them.
var pointless = []struct {
	fault onceqtest.Fault
	want  string
}{
	{onceqtest.Fault{}, `"none of call" has no Kind`},
	{onceqtest.Fault{Op: onceqtest.Settle, N: 2}, `"none of settle 2" has no Kind`},
	{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.SlowReply + 1}, "a Kind that there is not"},
	{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.Slow}, `"slow of settle" needs a Delay above 0; it has 0s`},
	{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.SlowReply}, "needs a Delay"},
	{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.Late}, "needs a Delay"},
	{onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.Stall, Delay: -1}, "needs a Delay above 0; it has -1ns"},
}

// TestPointlessFault: a fault that could change nothing ends the test where it is set. Else the
// test would be green, whatever it tests.
func TestPointlessFault(t *testing.T) {
	for _, c := range pointless {
		var runs int
		said := verdict(t, func(tb testing.TB) {
			rig := onceqtest.New(tb, counted(&runs, nil), nil)
			rig.At(onceqtest.Fault{Op: onceqtest.Ack, Kind: onceqtest.Fail}, c.fault)
			tb.Errorf("the test goes on")
		})
		if !strings.Contains(said, c.want) || strings.Contains(said, "goes on") {
			t.Errorf("Rig.At: the test said %q, want %q", said, c.want)
		}
		func() {
			defer func() {
				if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("Process.At panicked with %v, want %q", err, c.want)
				}
			}()
			new(onceqtest.Process).At(c.fault)
		}()
	}
}

// TestKillBeforeTheFirstDelivery: there is nothing that could die, so the test would test nothing.
func TestKillBeforeTheFirstDelivery(t *testing.T) {
	var runs int
	said := verdict(t, func(tb testing.TB) {
		rig := onceqtest.New(tb, counted(&runs, nil), nil)
		rig.Kill()
		tb.Errorf("the test goes on")
	})
	if !strings.Contains(said, "Kill: no worker has been started yet") || strings.Contains(said, "goes on") {
		t.Errorf("the test said %q", said)
	}
}

// TestCrashUnderMux: the scope is the type's, and the rig finds the record all the same.
func TestCrashUnderMux(t *testing.T) {
	want := dedupe.Key{Scope: "test:pay", Key: "order-1"}
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Ack, Kind: onceqtest.CrashAfter},
	} {
		synctest.Test(t, func(t *testing.T) {
			mux := new(onceq.Mux)
			mux.On("pay", onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }), nil)
			rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: mux}, nil)
			rig.At(at)
			rig.Send(broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{Type: "pay", Key: "order-1"}})
			got := rig.Deliver()
			if !got.Crashed || got.Key != want {
				t.Errorf("%v: %+v, want key %v", at, got, want)
			}
			if stored := at.Op != onceqtest.Claim || at.Kind != onceqtest.CrashBefore; stored != (got.Stored != nil) || stored && got.Stored.Key != want {
				t.Errorf("%v: stored %+v", at, got.Stored)
			}
		})
	}
}

// TestOwnDeadLetter: faults of letters come to a dead-letter queue of the user's own, too.
func TestOwnDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := must.Get(membroker.New(nil))
		var runs int
		rig := onceqtest.New(t, counted(&runs, func(*onceq.Job) error { return onceq.Permanent(errors.New("no")) }), &onceq.WorkerConfig{DeadLetter: own})
		rig.At(onceqtest.Fault{Op: onceqtest.Letter, Kind: onceqtest.CrashBefore})
		rig.Send(one("a"))
		if got := rig.Deliver(); !got.Crashed || runs != 1 {
			t.Errorf("%+v after %d runs", got, runs)
		}
		rig.Advance(time.Minute)
		if got := rig.Deliver(); got.Outcome != onceq.OutcomeAlreadyFailed || runs != 1 {
			t.Errorf("%+v after %d runs", got, runs)
		}
		if d, err := own.Depth(t.Context()); err != nil || d.Visible != 1 {
			t.Errorf("the own dead-letter queue has %+v (%v), want one letter", d, err)
		}

		rig = onceqtest.New(t, counted(&runs, func(*onceq.Job) error { return onceq.Permanent(errors.New("no")) }), &onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
		rig.Send(one("a"))
		if got := rig.Deliver(); got.Action != onceq.Nack || len(got.Letters) != 0 {
			t.Errorf("KeepInQueue: %+v", got)
		}
	})
}

// TestConfigIsRefused: what NewProcessor refuses the rig refuses, also where it knows a store by
// its value.
func TestConfigIsRefused(t *testing.T) {
	var runs int
	config := counted(&runs, nil)
	config.Store, config.Defaults.Interrupted = onceq.NoStore, dedupe.Park
	if said := verdict(t, func(tb testing.TB) { onceqtest.New(tb, config, nil) }); !strings.Contains(said, "Interrupted") {
		t.Errorf("Park without a store: the test said %q", said)
	}
}
