package sqlitestore

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
)

func TestClaimSettleGet(t *testing.T) {
	s, _ := newStore(t, tempFile(t), nil)
	q := request("1")
	l := claim(t, s, q)
	if l.Attempt != 1 || l.Fence == 0 {
		t.Fatalf("lease %+v", l)
	}
	r := get(t, s, q.Key)
	if r.Status != dedupe.Claimed || r.Token != q.Token || r.Owner != q.Owner {
		t.Fatalf("record %+v", r)
	}
	settle(t, s, l, dedupe.Done)
	r = get(t, s, q.Key)
	if r.Status != dedupe.Done || string(r.Result) != `"ok"` {
		t.Fatalf("record %+v", r)
	}
}

// TestForgetNeighbours: the same key in another scope is another record.
func TestForgetNeighbours(t *testing.T) {
	s, _ := newStore(t, tempFile(t), nil)
	q := request("1")
	other := q
	other.Key.Scope, other.Token = "other", newToken()
	l, l2 := claim(t, s, q), claim(t, s, other)
	errs, err := s.Forget(t.Context(), []dedupe.Forgotten{{Key: l.Key, Fence: l.Fence, Force: true}})
	if err := errors.Join(err, errs[0]); err != nil {
		t.Fatal(err)
	}
	get(t, s, l2.Key)
	rs, err := s.Get(t.Context(), []dedupe.Key{l.Key})
	if err != nil || rs[0] != nil {
		t.Errorf("after Forget: %+v, %v", rs, err)
	}
}

// TestDeadline: the owner counts its lease from before it waited for the lock, the record from
// after.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newStore(t, tempFile(t), nil)
		waitFor := func(call func() time.Time) {
			t.Helper()
			end := hold(t, db)
			sent := time.Now()
			var wg sync.WaitGroup
			var deadline time.Time
			wg.Go(func() { deadline = call() })
			pass(500 * time.Millisecond)
			end()
			wg.Wait()
			if !deadline.Equal(sent.Add(30 * time.Second)) {
				t.Errorf("the owner's lease ends %v after it was asked for, want 30s", deadline.Sub(sent))
			}
			if got := get(t, s, dedupe.Key{Scope: "orders", Key: "1"}).LeaseUntil; got.Before(sent.Add(30*time.Second + 500*time.Millisecond)) {
				t.Errorf("the record's lease ends %v after it was asked for, want 30.5s or a little more", got.Sub(sent))
			}
		}
		q := request("1")
		waitFor(func() time.Time { return claim(t, s, q).Deadline })
		waitFor(func() time.Time {
			as, err := s.Renew(t.Context(), []dedupe.Renewal{{Key: q.Key, Token: q.Token, TTL: 30 * time.Second}})
			if err := errors.Join(err, as[0].Err); err != nil {
				t.Error(err)
			}
			return as[0].Deadline
		})
	})
}

// TestListBefore: a record that changed just then did not change before.
func TestListBefore(t *testing.T) {
	s, _ := newStore(t, tempFile(t), nil)
	at := get(t, s, claim(t, s, request("1")).Key).Updated
	for _, c := range []struct {
		before time.Time
		want   int
	}{{at, 0}, {at.Add(1), 1}, {at.Add(-1), 0}} {
		n := 0
		for _, err := range s.List(t.Context(), dedupe.Query{Before: c.before}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != c.want {
			t.Errorf("%d records changed before %v, want %d; it changed at %v", n, c.before, c.want, at)
		}
	}
}
