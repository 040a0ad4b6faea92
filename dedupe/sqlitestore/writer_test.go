package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

// hold begins a transaction that keeps the file's write lock until end is called.
func hold(tb testing.TB, db *sql.DB) (end func()) {
	tb.Helper()
	tx, err := db.BeginTx(tb.Context(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return func() {
		tb.Helper()
		if err := tx.Rollback(); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestOpenTransaction: while a user's transaction is open every write waits, bounded, and is told
// that it is busy, not that its lease is lost.
func TestOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		l := claim(t, s, request("1"))
		end := hold(t, db)
		ctx := t.Context()
		for _, c := range []struct {
			name string
			wait time.Duration
			call func() error
		}{
			{"renewal", time.Second, func() error {
				as, err := s.Renew(ctx, []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: 30 * time.Second}})
				return errors.Join(err, as[0].Err)
			}},
			{"renewal of a short lease", 200 * time.Millisecond, func() error {
				as, err := s.Renew(ctx, []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: 2 * time.Second}})
				return errors.Join(err, as[0].Err)
			}},
			{"claim", time.Second, func() error {
				as, err := s.Claim(ctx, []dedupe.ClaimRequest{request("2")})
				return errors.Join(err, as[0].Err)
			}},
			{"claim of a short lease", 100 * time.Millisecond, func() error {
				q := request("2")
				q.TTL = time.Second
				as, err := s.Claim(ctx, []dedupe.ClaimRequest{q})
				return errors.Join(err, as[0].Err)
			}},
			{"settlement", time.Second, func() error {
				as, err := s.Settle(ctx, []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done}})
				return errors.Join(err, as[0].Err)
			}},
			{"forget", time.Second, func() error {
				errs, err := s.Forget(ctx, []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}})
				return errors.Join(err, errs[0])
			}},
			{"sweep", time.Second, func() error { _, err := s.Sweep(ctx, 0); return err }},
			{"migration", migratePatience, func() error { return s.Migrate(ctx) }},
		} {
			start := time.Now()
			if err := c.call(); !errors.Is(err, dedupe.ErrBusy) {
				t.Errorf("%s: %v, want ErrBusy", c.name, err)
			}
			if took := time.Since(start); took != c.wait {
				t.Errorf("%s: waited %v for the lock, want %v", c.name, took, c.wait)
			}
		}
		end()
		if r := get(t, s, l.Key); r.Status != dedupe.Claimed || r.Token != l.Token {
			t.Errorf("after the transaction the record is %+v", r)
		}
		as, err := s.Renew(ctx, []dedupe.Renewal{{Key: l.Key, Token: l.Token, TTL: 30 * time.Second}})
		if err != nil || as[0].Err != nil {
			t.Errorf("renewal after the transaction: %v, %v", as, err)
		}
	})
}

// TestInvalidEntryBesideBusyOnes: an entry that makes no sense says so, busy or not.
func TestInvalidEntryBesideBusyOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		defer hold(t, db)()
		bad := request("1")
		bad.TTL = -1
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{bad, request("2")})
		if err != nil || !errors.Is(cs[0].Err, dedupe.ErrBadRequest) || !errors.Is(cs[1].Err, dedupe.ErrBusy) {
			t.Errorf("answers %+v, %v; want a bad request and busy", cs, err)
		}
	})
}

// TestOneTransactionForAll: who waits together is committed together, and a caller who gives up
// meanwhile takes nobody along.
func TestOneTransactionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		end := hold(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		var (
			wg       sync.WaitGroup
			mu       sync.Mutex
			seen     = map[*txn]int{}
			count    = func(x *txn) error { mu.Lock(); seen[x]++; mu.Unlock(); return nil }
			gaveUp   error
			waitLong = time.Minute
		)
		for range 64 {
			wg.Go(func() {
				if err := s.do(t.Context(), waitLong, 1, count); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			_, gaveUp = s.Claim(ctx, []dedupe.ClaimRequest{request("given-up")})
		})
		pass(10 * time.Millisecond)
		cancel()
		synctest.Wait()
		if !errors.Is(gaveUp, context.Canceled) || !strings.Contains(gaveUp.Error(), "nothing was written") {
			t.Errorf("the caller whose context ended got %v", gaveUp)
		}
		end()
		wg.Wait()
		if len(seen) != 1 {
			t.Errorf("64 calls that waited together took %d transactions, want 1", len(seen))
		}
		rs, err := s.Get(t.Context(), []dedupe.Key{{Scope: "orders", Key: "given-up"}})
		if err != nil || rs[0] != nil {
			t.Errorf("the claim that was given up left %+v, %v", rs, err)
		}
	})
}

// TestCancelInFlight: the context of one caller ends while the transaction is under way. It hears
// that the outcome is unknown; the transaction goes on.
func TestCancelInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		end := hold(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		inside, goOn := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		var impatient, patient error
		q := request("1")
		wg.Go(func() {
			impatient = s.do(ctx, time.Minute, 1, func(x *txn) error {
				close(inside)
				<-goOn
				r := dedupe.Record{}
				machine.ApplyClaim(&r, &q, x.Now, x.nextFence)
				return x.write(&r)
			})
		})
		synctest.Wait()
		wg.Go(func() { _, patient = s.Claim(t.Context(), []dedupe.ClaimRequest{request("2")}) })
		synctest.Wait()
		end()
		<-inside
		cancel()
		synctest.Wait()
		if !errors.Is(impatient, context.Canceled) || !strings.Contains(impatient.Error(), "unknown") {
			t.Errorf("the caller whose context ended got %v", impatient)
		}
		close(goOn)
		wg.Wait()
		if patient != nil {
			t.Errorf("its neighbour in the transaction got %v", patient)
		}
		get(t, s, q.Key)
		get(t, s, dedupe.Key{Scope: "orders", Key: "2"})
	})
}

// TestCallerReusesMemory: what a caller does with its slices after its context ended reaches
// nobody.
func TestCallerReusesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		l, l2 := claim(t, s, request("1")), claim(t, s, request("2"))
		q := request("3")
		q.Fingerprint = []byte("good")
		qs := []dedupe.ClaimRequest{q}
		ns := []dedupe.Renewal{{Key: l2.Key, Token: l2.Token, TTL: time.Minute, State: []byte("good"), StateNo: 1}}
		es := []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done, Result: []byte("good")}}
		end := hold(t, db)
		inside, goOn := make(chan struct{}), make(chan struct{})
		var first, all sync.WaitGroup
		first.Go(func() {
			s.do(t.Context(), time.Minute, 1, func(*txn) error { close(inside); <-goOn; return nil })
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		for _, call := range []func() error{
			func() error { _, err := s.Claim(ctx, qs); return err },
			func() error { _, err := s.Renew(ctx, ns); return err },
			func() error { _, err := s.Settle(ctx, es); return err },
		} {
			all.Go(func() {
				if err := call(); !errors.Is(err, context.Canceled) {
					t.Errorf("a call whose context ended got %v", err)
				}
			})
		}
		synctest.Wait()
		end()
		<-inside
		cancel()
		all.Wait()
		qs[0].Owner, ns[0].Key.Key, es[0].Key.Key = "evil", "evil", "evil"
		for _, b := range [][]byte{qs[0].Fingerprint, ns[0].State, es[0].Result} {
			copy(b, "evil")
		}
		close(goOn)
		first.Wait()
		claim(t, s, request("next transaction"))
		if r := get(t, s, l.Key); string(r.Result) != "good" {
			t.Errorf("result %q", r.Result)
		}
		if r := get(t, s, l2.Key); string(r.State) != "good" {
			t.Errorf("state %q", r.State)
		}
		if r := get(t, s, q.Key); string(r.Fingerprint) != "good" || r.Owner != q.Owner {
			t.Errorf("claim %+v", r)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		end := hold(t, db)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("1")}); !errors.Is(err, dedupe.ErrClosed) {
				t.Errorf("the waiting claim got %v, want ErrClosed", err)
			}
		})
		synctest.Wait()
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		end()
		_, get := s.Get(t.Context(), []dedupe.Key{{Scope: "a", Key: "b"}})
		_, renew := s.Renew(t.Context(), []dedupe.Renewal{{Key: dedupe.Key{Scope: "a", Key: "b"}, TTL: 1}})
		for _, err := range []error{get, renew, s.Migrate(t.Context())} {
			if !errors.Is(err, dedupe.ErrClosed) {
				t.Errorf("after Close: %v, want ErrClosed", err)
			}
		}
		for _, err := range s.List(t.Context(), dedupe.Query{}) {
			if !errors.Is(err, dedupe.ErrClosed) {
				t.Errorf("List after Close: %v, want ErrClosed", err)
			}
		}
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}
