package matrix

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/onceqtest"
)

// The traps that others fall into, and where each is tested. Cells are the matrix's, on every
// store; rules are dedupetest's, which every store passes; the tests of this file run on every
// store, and on SQS.
//
//	a worker outlives its lease, and fails late          TestLateFailureFreesNobody; rule i4-stale-token-changes-nothing
//	a worker outlives its lease, and succeeds late       TestLateSuccessOverwritesNothing, TestLateTransactionRollsBack; cells */stall
//	the reply to a claim is lost                         cells claim-*/lose-reply; rule i8-lost-reply; onceq: TestClaimIsRepeatedWithItsToken
//	"seen" is marked before the handler, which fails     cells retry/*
//	settle runs on the handler's context                 TestSettleOutlivesTheContexts
//	settle fails after the effect                        cells settle-*/*; onceq: TestSettlePastSettleTimeout, which sees the log tell it
//	two workers' clocks differ                           rule clock-of-the-second-handle; visibility: TestSuspendedMachine, TestWallClockSetBack
//	parts that are null give equal keys                  TestPartsNeverRunTogether; rules i9-keys-never-meet, fingerprints
//	results 0, "", false are taken for none              TestEmptyResultsAreResults; rule results-are-kept
//	a duplicate meanwhile counts as a failure            TestDuplicatesBurnNoReceives; cells duplicate/*
//	retention is shorter than the queues'                onceq: TestUnproven, TestUnprovenSticks
//	prefetched messages are not held                     onceq: TestWaitingMessagesAreHeld, TestWaitingMessagesOutlastAHangingStore
//	a failed ack or nack is kept for good                cells ack-*/*, nack-*/*; onceq: TestAckAndNackAreRepeated
//	the heartbeat ends at its first error                TestBrownOut; cells renew-*/fail, extend-*/fail; visibility: TestFailedBeatsAreRepeated
//	a beat lands after the ack or the nack               onceq: TestBeatInFlightBeforeANack; cells extend-*/late

// onStores runs f on every store, in the store's time, and on SQS.
func onStores(t *testing.T, f func(t *testing.T, b *backend)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) *backend{
		"memory":   func(*testing.T) *backend { return memory() },
		"sqlite":   func(*testing.T) *backend { return sqlite() },
		"postgres": postgres,
		"dynamodb": dynamoDB,
		"sqs":      func(*testing.T) *backend { return memory().onSQS(false) },
		"sqs-fifo": func(*testing.T) *backend { return memory().onSQS(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			t.Cleanup(b.zombies.Wait)
			b.in(t, func(t *testing.T) { f(t, b) })
		})
	}
}

// standstill is how long a worker stands still while another one starts and takes over, which takes
// its time on a busy machine.
func (b *backend) standstill() time.Duration { return 4 * b.stall }

// until waits for what must come.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	for begun := time.Now(); !is(); <-time.After(w.b.grain()) {
		if time.Since(begun) > w.b.patience {
			w.Fatalf("%s: not after %v\n%s", what, w.b.patience, w.tell(nil))
		}
	}
}

// TestLateFailureFreesNobody: A stands still for longer than its lease, B takes the key over, and
// A's failure comes while B works. It must not free B's claim: a third worker would run beside B.
func TestLateFailureFreesNobody(t *testing.T) {
	onStores(t, func(t *testing.T, b *backend) {
		w := newWorld(t, b, rerun, scenario{copies: 1})
		var runs, returned atomic.Int32
		release := make(chan struct{})
		w.handler = func(ctx context.Context, k *worker, _ *onceq.Job) error {
			runs.Add(1)
			if k.name == "A" {
				_ = k.Call(ctx, "work", func(context.Context) error { return nil })
				returned.Add(1)
				return errors.New("too late")
			}
			<-release
			return nil
		}
		first := w.start("A", onceqtest.Fault{Op: "work", Kind: onceqtest.Stall, Delay: b.standstill()})
		w.until("A stands still", first.faulted)
		w.timePasses(first)
		second := w.start("B")
		w.until("B runs", func() bool { return runs.Load() == 2 })
		w.until("A's handler returns", func() bool { return returned.Load() == 1 })
		first.end()
		if rec := w.record(); rec.Status != dedupe.Claimed || rec.Owner != "B" {
			t.Errorf("A's late failure has changed B's claim: %+v", rec)
		}
		for _, token := range w.audit.tokens() {
			if token == w.record().Token {
				continue
			}
			as, err := w.db.store().Renew(t.Context(), []dedupe.Renewal{{Key: w.key(), Token: token, TTL: time.Hour, State: []byte("stale"), StateNo: 9}})
			if err != nil || !errors.Is(as[0].Err, dedupe.ErrLeaseLost) || w.record().State != nil {
				t.Errorf("A renewed B's claim: %v, %v; the record is %+v", as, err, w.record())
			}
		}
		third := w.start("C")
		w.send(0)
		<-time.After(5 * b.second)
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs: C ran beside B", n)
		}
		third.end()
		close(release)
		w.until("the job is done", func() bool { return w.record().Status == dedupe.Done })
		second.end()
		if rec := w.record(); rec.Owner != "B" || runs.Load() != 2 {
			t.Errorf("after %d runs the record is %+v", runs.Load(), rec)
		}
	})
}

// TestLateTransactionRollsBack: A stands still for longer than its lease, and B works on the key
// when A, deaf to the end of its context, has its effect and completes the job in a transaction.
// That must be refused, and the effect with it.
func TestLateTransactionRollsBack(t *testing.T) {
	onStores(t, func(t *testing.T, b *backend) {
		if !b.transactions {
			t.Log("no transactions")
			return
		}
		w := newWorld(t, b, completeTx, scenario{copies: 1})
		var runs atomic.Int32
		late, release := make(chan error, 1), make(chan struct{})
		w.handler = func(ctx context.Context, k *worker, j *onceq.Job) error {
			runs.Add(1)
			if k.name == "B" {
				<-release
				return k.conn.complete(ctx, k.Process, j)
			}
			_ = k.Call(ctx, "work", func(context.Context) error { return nil })
			err := k.conn.complete(context.WithoutCancel(ctx), k.Process, j)
			late <- err
			return err
		}
		first := w.start("A", onceqtest.Fault{Op: "work", Kind: onceqtest.Stall, Delay: b.standstill()})
		w.until("A stands still", first.faulted)
		w.timePasses(first)
		second := w.start("B")
		w.until("B runs", func() bool { return runs.Load() == 2 })
		if err := <-late; !errors.Is(err, dedupe.ErrLeaseLost) {
			t.Errorf("A's late transaction was answered %v", err)
		}
		first.end()
		if n, err := w.db.rows(); n != 0 || err != nil {
			t.Errorf("A's late effect is there: %d, %v", n, err)
		}
		close(release)
		w.until("the job is done", func() bool { return w.record().Status == dedupe.Done })
		second.end()
		if n, err := w.db.rows(); n != 1 || err != nil || w.record().Owner != "B" {
			t.Errorf("%d effects, %v; the record is %+v", n, err, w.record())
		}
	})
}

// TestLateSuccessOverwritesNothing: A stands still for longer than its lease, B takes the key over
// and finishes; A's success comes after.
func TestLateSuccessOverwritesNothing(t *testing.T) {
	onStores(t, func(t *testing.T, b *backend) {
		w := newWorld(t, b, rerun, scenario{copies: 1})
		var returned atomic.Int32
		w.handler = func(ctx context.Context, k *worker, j *onceq.Job) error {
			if k.name == "A" {
				_ = k.Call(ctx, "work", func(context.Context) error { return nil })
				returned.Add(1)
			}
			return j.SetResult([]byte(k.name))
		}
		first := w.start("A", onceqtest.Fault{Op: "work", Kind: onceqtest.Stall, Delay: b.standstill()})
		w.until("A stands still", first.faulted)
		w.timePasses(first)
		second := w.start("B")
		w.until("the job is done", func() bool { r := w.record(); return r != nil && r.Status == dedupe.Done })
		before := told(w.record())
		if returned.Load() != 0 {
			t.Errorf("A returned before B had finished")
		}
		w.until("A's handler returns", func() bool { return returned.Load() == 1 })
		first.end()
		second.end()
		if rec := w.record(); told(rec) != before || string(rec.Result) != "B" {
			t.Errorf("A's late success has changed the record:\n%+v\nwas\n%s", rec, before)
		}
		w.checkStale()
	})
}

// TestSettleOutlivesTheContexts: the handler ends because its context has ended, with success; and
// the first settlement fails. The effect has happened, and must be recorded.
func TestSettleOutlivesTheContexts(t *testing.T) {
	onStores(t, func(t *testing.T, b *backend) {
		w := newWorld(t, b, rerun, scenario{copies: 1})
		started := make(chan struct{})
		w.handler = func(ctx context.Context, _ *worker, _ *onceq.Job) error {
			close(started)
			<-ctx.Done()
			return nil
		}
		k := w.start("A", onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.Fail})
		<-started
		k.end()
		if err := k.ran(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if rec := w.record(); rec.Status != dedupe.Done || !w.isEmpty() || !k.faulted() {
			t.Errorf("the job succeeded, and its record is %+v\n%s", rec, w.tell(nil))
		}
	})
}

// TestEmptyResultsAreResults: whoever asks later gets them, and not "none".
func TestEmptyResultsAreResults(t *testing.T) {
	onStores(t, func(t *testing.T, b *backend) {
		for _, want := range []string{"0", `""`, "false", "null", ""} {
			w := newWorld(t, b, rerun, scenario{copies: 1})
			var runs atomic.Int32
			w.handler = func(_ context.Context, _ *worker, j *onceq.Job) error {
				runs.Add(1)
				return j.SetResult([]byte(want))
			}
			k := w.start("A")
			w.until("the queue is empty", w.isEmpty)
			w.send(0)
			w.until("the queue is empty", w.isEmpty)
			k.end()
			if rec := w.record(); rec.Status != dedupe.Done || rec.Result == nil || string(rec.Result) != want || runs.Load() != 1 {
				t.Errorf("result %q: %d runs, the record is %+v", want, runs.Load(), rec)
			}
		}
	})
}

// TestBrownOut: the store answers no renewal, and the queue no extension, for two beats' time. The
// beats go on, and the job runs once.
func TestBrownOut(t *testing.T) {
	onStores(t, func(t *testing.T, b *backend) {
		w := newWorld(t, b, rerun, scenario{copies: 1})
		var runs atomic.Int32
		w.handler = func(ctx context.Context, _ *worker, _ *onceq.Job) error {
			runs.Add(1)
			select {
			case <-time.After(4 * b.long):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		k := w.start("A",
			onceqtest.Fault{Op: onceqtest.Renew, Times: 3, Kind: onceqtest.Fail}, onceqtest.Fault{Op: onceqtest.Extend, Times: 3, Kind: onceqtest.Fail})
		w.until("the queue is empty", w.isEmpty)
		k.end()
		if n := k.Calls(onceqtest.Renew); runs.Load() != 1 || w.record().Status != dedupe.Done || n < 6 {
			t.Errorf("%d runs, %d beats\n%s", runs.Load(), n, w.tell(nil))
		}
	})
}

// TestDuplicatesBurnNoReceives: a duplicate comes while the job runs, for many times its visibility
// timeout, in a queue that moves a message away after a few receives. Nobody's failure: it is done
// in the end, and there is no letter.
func TestDuplicatesBurnNoReceives(t *testing.T) {
	for _, open := range []func() *backend{memory, sqlite} { // long work: in virtual time only
		b := open()
		t.Run(b.name, func(t *testing.T) {
			b.in(t, func(t *testing.T) {
				w := newWorld(t, b, rerun, scenario{copies: 2})
				var runs atomic.Int32
				w.handler = func(context.Context, *worker, *onceq.Job) error {
					runs.Add(1)
					<-time.After(25 * time.Minute)
					return nil
				}
				first, second := w.start("A"), w.start("B")
				w.until("the queue is empty", w.isEmpty)
				w.mu.Lock()
				most := len(w.receipts)
				w.mu.Unlock()
				first.end()
				second.end()
				// That is 500 visibility timeouts; the waits double from the lease's 30 s.
				if most > 12 || runs.Load() != 1 || w.record().Status != dedupe.Done || !w.isEmpty() || len(w.dead()) != 0 {
					t.Errorf("%d receives of two messages, %d runs, the record is %+v", most, runs.Load(), w.record())
				}
			})
		})
	}
}

// TestPartsNeverRunTogether: keys made of parts, some of them empty, are one another's only if all
// parts are equal.
func TestPartsNeverRunTogether(t *testing.T) {
	parts := []string{"", "a", "aa", "b", "null", "a/b", "a:b", "\x01", "0"}
	seen := make(map[string]string)
	for _, s := range parts {
		for _, k := range parts {
			for _, step := range parts {
				e := onceq.EffectKey(dedupe.Key{Scope: s, Key: k}, step)
				name := s + "|" + k + "|" + step
				if seen[e] != "" {
					t.Fatalf("%q and %q have one effect key", seen[e], name)
				}
				seen[e] = name
			}
		}
	}
	onStores(t, func(t *testing.T, b *backend) {
		w := newWorld(t, b, rerun, scenario{copies: 1})
		var runs atomic.Int32
		w.handler = func(_ context.Context, _ *worker, j *onceq.Job) error {
			runs.Add(1)
			return j.SetResult([]byte(j.Key().Key))
		}
		keys := []string{"null", "null,null", "null|null", ",", "|", "[null]", "\x01"}
		for _, k := range keys {
			m := broker.Outgoing{Body: []byte("null"), Meta: &broker.Meta{Key: k}, Group: b.group}
			if err := onceq.SendOne(t.Context(), w.queue, &m); err != nil {
				t.Fatal(err)
			}
		}
		k := w.start("A")
		w.until("the queue is empty", w.isEmpty)
		k.end()
		for _, key := range keys {
			rs, err := w.db.store().Get(t.Context(), []dedupe.Key{{Scope: w.db.scope(), Key: key}})
			if err != nil || rs[0] == nil || string(rs[0].Result) != key {
				t.Errorf("the result of %q is %+v, %v", key, rs, err)
			}
		}
		if n := int(runs.Load()); n != len(keys)+1 {
			t.Errorf("%d runs", n)
		}
	})
}
