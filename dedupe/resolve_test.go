package dedupe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

// parked is a store with one parked record, and its lease.
func parked(t *testing.T) (dedupe.Store, dedupe.Lease) {
	t.Helper()
	s := must.Get(memstore.New(nil))
	q := dedupe.ClaimRequest{Key: dedupe.Key{Scope: "mails", Key: "mail-1"}, Token: dedupe.Token{1}, TTL: time.Second, Policy: dedupe.Park}
	cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
	if err != nil || cs[0].Outcome != dedupe.Won {
		t.Fatal(cs, err)
	}
	as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Parked, ErrClass: "interrupted", ErrText: "reset"}})
	if err != nil || as[0].Status != dedupe.Parked {
		t.Fatal(as, err)
	}
	return s, cs[0].Lease
}

func TestResolve(t *testing.T) {
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
		synctest.Test(t, func(t *testing.T) {
			s, l := parked(t)
			for range 2 { // the answer to the first may be lost
				if err := dedupe.Resolve(t.Context(), s, l.Key, l.Fence, to, []byte("1")); err != nil {
					t.Fatalf("to %v: %v", to, err)
				}
			}
			rs, err := s.Get(t.Context(), []dedupe.Key{l.Key})
			if err != nil || rs[0].Status != to || (string(rs[0].Result) == "1") != (to == dedupe.Done) || (rs[0].LastErr == "reset") != (to != dedupe.Done) {
				t.Errorf("to %v: the record is %+v, %v", to, rs[0], err)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	s, l := parked(t)
	for _, c := range []struct {
		name  string
		key   dedupe.Key
		fence uint64
		to    dedupe.Status
		want  error
	}{
		{"another fence", l.Key, l.Fence + 1, dedupe.Done, dedupe.ErrLeaseLost},
		{"no record", dedupe.Key{Scope: "mails", Key: "mail-2"}, l.Fence, dedupe.Done, dedupe.ErrLeaseLost},
		{"to claimed", l.Key, l.Fence, dedupe.Claimed, dedupe.ErrBadRequest},
		{"to parked", l.Key, l.Fence, dedupe.Parked, dedupe.ErrBadRequest},
		{"to nothing", l.Key, l.Fence, 0, dedupe.ErrBadRequest},
	} {
		if err := dedupe.Resolve(t.Context(), s, c.key, c.fence, c.to, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := dedupe.Resolve(t.Context(), s, l.Key, l.Fence, dedupe.Failed, nil); err != nil {
		t.Fatal(err)
	}
	if err := dedupe.Resolve(t.Context(), s, l.Key, l.Fence, dedupe.Done, nil); !errors.Is(err, dedupe.ErrLeaseLost) {
		t.Errorf("a failed record was resolved to done: %v", err)
	}
}

// reopening is a store in which a replay wins the parked key just before the word is written.
type reopening struct {
	dedupe.Store
	reopen func()
}

func (s reopening) Settle(ctx context.Context, ss []dedupe.Settlement) ([]dedupe.Settled, error) {
	s.reopen()
	return s.Store.Settle(ctx, ss)
}

func TestResolveBesideAReplay(t *testing.T) {
	s, l := parked(t)
	err := dedupe.Resolve(t.Context(), reopening{s, func() {
		cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{{Key: l.Key, Token: dedupe.Token{2}, TTL: time.Minute, Reopen: l.Fence}})
		if err != nil || cs[0].Outcome != dedupe.Won {
			t.Error(cs, err)
		}
	}}, l.Key, l.Fence, dedupe.Done, nil)
	if !errors.Is(err, dedupe.ErrLeaseLost) {
		t.Errorf("Resolve: %v, want ErrLeaseLost", err)
	}
	rs, err := s.Get(t.Context(), []dedupe.Key{l.Key})
	if err != nil || rs[0].Status != dedupe.Claimed {
		t.Errorf("the record is %+v, %v; the replay's claim is live", rs[0], err)
	}
}

// TestResolveAnOldLetter: a record that was parked, reopened and parked anew takes no word that is
// meant for the first time.
func TestResolveAnOldLetter(t *testing.T) {
	s, old := parked(t)
	q := dedupe.ClaimRequest{Key: old.Key, Token: dedupe.Token{2}, TTL: time.Minute, Policy: dedupe.Park, Reopen: old.Fence}
	cs, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q})
	if err != nil || cs[0].Outcome != dedupe.Won || cs[0].Lease.Fence <= old.Fence {
		t.Fatal(cs, err)
	}
	as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: q.Key, Token: q.Token, To: dedupe.Parked, ErrClass: "interrupted", ErrText: "again"}})
	if err != nil || as[0].Status != dedupe.Parked {
		t.Fatal(as, err)
	}
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
		for _, fence := range []uint64{0, 1, old.Fence, cs[0].Lease.Fence - 1, cs[0].Lease.Fence + 1} {
			err := dedupe.Resolve(t.Context(), s, old.Key, fence, to, []byte("1"))
			if !errors.Is(err, dedupe.ErrLeaseLost) || !strings.Contains(err.Error(), "parked with fence") {
				t.Errorf("to %v with fence %d of %d: %v, want ErrLeaseLost that says what it is", to, fence, cs[0].Lease.Fence, err)
			}
		}
	}
	rs, err := s.Get(t.Context(), []dedupe.Key{old.Key})
	if err != nil || rs[0].Status != dedupe.Parked || rs[0].LastErr != "again" {
		t.Errorf("the record is %+v, %v", rs[0], err)
	}
	if err := dedupe.Resolve(t.Context(), s, old.Key, cs[0].Lease.Fence, dedupe.Done, nil); err != nil {
		t.Errorf("the letter of the second time: %v", err)
	}
}

// TestResolveBesideALateWord: the claim that was taken for dead says done while an operator says
// something else. Its word stands, and the operator is told.
func TestResolveBesideALateWord(t *testing.T) {
	for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released} {
		s, l := parked(t)
		err := dedupe.Resolve(t.Context(), reopening{s, func() {
			as, err := s.Settle(t.Context(), []dedupe.Settlement{{Key: l.Key, Token: l.Token, To: dedupe.Done, Result: []byte("its own")}})
			if err != nil || as[0].Status != dedupe.Done {
				t.Error(as, err)
			}
		}}, l.Key, l.Fence, to, []byte("the operator's"))
		told := errors.Is(err, dedupe.ErrLeaseLost) && strings.Contains(err.Error(), "became done meanwhile")
		if same := to == dedupe.Done; told == same || same && err != nil {
			t.Errorf("to %v: %v", to, err)
		}
		rs, err := s.Get(t.Context(), []dedupe.Key{l.Key})
		if err != nil || rs[0].Status != dedupe.Done || string(rs[0].Result) != "its own" {
			t.Errorf("to %v: the record is %+v, %v", to, rs[0], err)
		}
	}
}
