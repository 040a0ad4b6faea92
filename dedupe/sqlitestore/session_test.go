package sqlitestore

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/must"
)

// TestFullPool: when the user's transactions have taken all connections before the store has its
// own, calls are busy, and Close does not wait for ever.
func TestFullPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempFile(t)
		newStore(t, path, nil)
		db := openFile(t, path)
		db.SetMaxOpenConns(2)
		s := must.Get(New(db, nil))
		for range 2 {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("1")})
		if err != nil || !errors.Is(cs[0].Err, dedupe.ErrBusy) {
			t.Errorf("claim: %+v, %v; want ErrBusy", cs, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPoolOfOne(t *testing.T) {
	db := openFile(t, tempFile(t))
	db.SetMaxOpenConns(1)
	if _, err := New(db, nil); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("New: %v", err)
	}
	db.SetMaxOpenConns(0)
	s := must.Get(New(db, nil))
	defer s.Close()
	db.SetMaxOpenConns(1)
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("Migrate: %v", err)
	}
}

// TestFailedTransaction: what a transaction wrote before it failed is gone, and so is its lock.
func TestFailedTransaction(t *testing.T) {
	s, db := newStore(t, tempFile(t), nil)
	boom := errors.New("boom")
	q := request("1")
	err := s.do(t.Context(), time.Minute, 1, func(x *txn) error {
		r := dedupe.Record{}
		machine.ApplyClaim(&r, &q, x.Now, x.nextFence)
		return errors.Join(x.write(&r), boom)
	})
	if !errors.Is(err, boom) {
		t.Errorf("the call got %v", err)
	}
	hold(t, db)()
	rs, err := s.Get(t.Context(), []dedupe.Key{q.Key})
	if err != nil || rs[0] != nil {
		t.Errorf("the failed transaction left %+v, %v", rs, err)
	}
	claim(t, s, q)
}

// TestReaderBlocksCommit: without the write-ahead log an open reader refuses the commit. It is
// waited for, and then nothing was written.
func TestReaderBlocksCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempFile(t)
		db := must.Get(sql.Open("sqlite", strings.Replace(DSN(path), "WAL", "DELETE", 1)))
		defer db.Close()
		s := must.Get(New(db, nil))
		defer s.Close()
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			claim(t, s, request(strconv.Itoa(i)))
		}
		rows, err := db.QueryContext(t.Context(), "SELECT key FROM onceq_dedupe")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("late")})
		if err != nil || !errors.Is(cs[0].Err, dedupe.ErrBusy) {
			t.Errorf("claim: %+v, %v; want ErrBusy", cs, err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{request("soon")})
			if err != nil || cs[0].Outcome != dedupe.Won {
				t.Errorf("the claim that the reader let through: %+v, %v", cs, err)
			}
		})
		pass(100 * time.Millisecond)
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		rs, err := s.Get(t.Context(), []dedupe.Key{{Scope: "orders", Key: "late"}})
		if err != nil || rs[0] != nil {
			t.Errorf("the busy claim left %+v, %v", rs, err)
		}
	})
}
