package controlstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/internal/storetest"
	"github.com/onceq/onceq/onceqtest"
)

func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		if got, err := controlstore.Read(t.Context(), s); err != nil || got.Version != 0 || len(got.Rules) != 0 {
			t.Fatalf("at first: %+v, %v", got, err)
		}
		one, err := controlstore.Change(t.Context(), s, add(pause(nil)))
		if err != nil || one.Version != 1 || len(one.Rules) != 1 || len(one.Rules[0].ID) != 5 || !one.Rules[0].Made.Equal(time.Now()) {
			t.Fatalf("one rule: %+v, %v", one, err)
		}
		two, err := controlstore.Change(t.Context(), s, add(pause(func(r *control.Rule) { r.Do = control.Limit })))
		if err != nil || two.Version != 2 || len(two.Rules) != 2 || two.Rules[1].Do != control.Pause || two.Rules[1].ID == two.Rules[0].ID {
			t.Fatalf("a limit to 0: %+v, %v", two, err)
		}
		mine := errors.New("no such rule")
		if _, err := controlstore.Change(t.Context(), s, func(*controlstore.Rules) error { return mine }); !errors.Is(err, mine) {
			t.Fatal(err)
		}
		got, err := controlstore.Change(t.Context(), s, func(rs *controlstore.Rules) error {
			if !rs.Remove(one.Rules[0].ID) || rs.Remove("nobody") {
				t.Error("Remove does not say what was there")
			}
			return nil
		})
		if err != nil || got.Version != 3 || len(got.Rules) != 1 || got.Find(two.Rules[1].ID) == nil {
			t.Fatalf("one is removed: %+v, %v", got, err)
		}
		read, err := controlstore.Read(t.Context(), s)
		if err != nil || read.Version != 3 || len(read.Rules) != 1 || read.Rules[0].ID != got.Rules[0].ID {
			t.Fatalf("read: %+v, %v", read, err)
		}
	})
}

// TestOldRules: a rule that is over is shown for a day, and then dropped by the next change.
func TestOldRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		if _, err := controlstore.Change(t.Context(), s, add(pause(nil))); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			wait time.Duration
			want int
		}{{24 * time.Hour, 2}, {time.Hour, 2}, {time.Hour, 2}} {
			<-time.After(c.wait)
			got, err := controlstore.Change(t.Context(), s, func(rs *controlstore.Rules) error {
				rs.Rules = append(rs.Rules[:min(1, len(rs.Rules))], pause(nil))
				return nil
			})
			if err != nil || len(got.Rules) > c.want {
				t.Fatalf("after %v: %+v, %v", c.wait, got, err)
			}
		}
		got, err := controlstore.Read(t.Context(), s)
		if err != nil || len(got.Rules) != 2 || got.Rules[0].Made.Before(time.Now().Add(-3*time.Hour)) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestRivals: of edits by many operators at once, each is kept.
func TestRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { storetest.EditRules(t, newStore(t), 8, 100) })
}

// TestDeadOperators: an operator who dies at any call, before or after it was applied, leaves rules
// that are whole, and the next edit works.
func TestDeadOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { storetest.KillOperators(t, newStore(t)) })
}

// TestLostAnswers: an answer that is lost is asked for again, and the rule is there once.
func TestLostAnswers(t *testing.T) {
	for _, op := range []onceqtest.Op{"get", "settle", "claim", "renew"} {
		for _, applied := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := rig.NewStore(t)
				if _, err := controlstore.Change(t.Context(), s, add(pause(nil))); err != nil {
					t.Fatal(err)
				}
				s.Recount()
				s.SetFault(rig.Bads(op, 3, faulty.Err(errCut, applied)))
				got, err := controlstore.Change(t.Context(), s, add(pause(nil)))
				if err != nil || len(got.Rules) != 2 || got.Version != 2 {
					t.Errorf("%s, applied %v: %+v, %v", op, applied, got, err)
				}
			})
		}
	}
}

// TestUnknownChange: a change whose write has no answer is made or not; the error says so, and
// making it again does not make it twice where the rule has an id.
func TestUnknownChange(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := rig.NewStore(t)
			s.Befalls(faulty.Err(errCut, applied), onceqtest.Renew)
			edit := add(pause(func(r *control.Rule) { r.ID = "mine" }))
			if _, err := controlstore.Change(t.Context(), s, edit); !errors.Is(err, control.ErrUnknown) || !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			s.Heals()
			got, err := controlstore.Change(t.Context(), s, edit)
			if err != nil || len(got.Rules) != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestOvertaken: whoever is overtaken between his claim and his write edits the newer rules, and
// gives his rule the same id as before.
func TestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		var ids []string
		calls := 0
		got, err := controlstore.Change(t.Context(), s, func(rs *controlstore.Rules) error {
			if calls++; calls == 1 {
				if _, err := controlstore.Change(t.Context(), s, add(pause(func(r *control.Rule) { r.By = "ben" }))); err != nil {
					t.Error(err)
				}
			}
			for _, r := range rs.Rules {
				ids = append(ids, r.By)
			}
			return add(pause(nil))(rs)
		})
		if err != nil || calls != 2 || len(got.Rules) != 2 || got.Version != 2 || fmt.Sprint(ids) != "[ben]" {
			t.Errorf("%+v after %d calls that saw %v, %v", got, calls, ids, err)
		}
	})
}

// TestTorn: a reader sees the old rules or the new ones while operators change them.
func TestTorn(t *testing.T) {
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for last := uint64(0); ctx.Err() == nil; {
			got, err := controlstore.Read(ctx, s)
			if err != nil && ctx.Err() == nil || got.Version < last || len(got.Rules) != int(got.Version) {
				t.Errorf("after version %d: version %d with %d rules, %v", last, got.Version, len(got.Rules), err)
				return
			}
			last = max(last, got.Version)
		}
	})
	for range 50 {
		if _, err := controlstore.Change(t.Context(), s, add(pause(nil))); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
}

// TestForeignRules: what somebody else has written under our key is not guessed at.
func TestForeignRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := dedupe.Key{Scope: controlstore.ScopeControl, Key: "rules"}
		for name, state := range map[string]string{"no JSON": "rules", "a later form": `{"v":2,"rules":[]}`} {
			s := newStore(t)
			token := storetest.Token()
			q := dedupe.ClaimRequest{Key: k, Token: token, TTL: time.Hour}
			storetest.Claim(t, s, q)
			if err := storetest.Renew(t, s, dedupe.Renewal{Key: k, Token: token, TTL: time.Hour, State: []byte(state), StateNo: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := controlstore.Read(t.Context(), s); err == nil {
				t.Errorf("%s is read", name)
			}
			if _, err := controlstore.Change(t.Context(), s, add(pause(nil))); err == nil {
				t.Errorf("%s is changed", name)
			}
		}
		s := newStore(t)
		storetest.End(t, s, storetest.Claim(t, s, dedupe.ClaimRequest{Key: k, Token: storetest.Token(), TTL: time.Hour}), dedupe.Done)
		if _, err := controlstore.Change(t.Context(), s, add(pause(nil))); err == nil {
			t.Error("a done record is changed")
		}
	})
}

// TestLostAnswerOvertaken: the write was applied, its answer was lost, and another operator came
// before the repeat. The edit is made again, and its rule is there once.
func TestLostAnswerOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rig.NewStore(t)
		s.SetFault(func(c onceqtest.Call) faulty.Faults {
			if c.Op == onceqtest.Renew && c.N == 2 {
				if _, err := controlstore.Change(t.Context(), s.Store, add(pause(func(r *control.Rule) { r.By = "ben" }))); err != nil {
					t.Error(err)
				}
			}
			return rig.Bads(onceqtest.Renew, 1, faulty.Lose(errCut))(c)
		})
		got, err := controlstore.Change(t.Context(), s, add(pause(nil)))
		if err != nil || len(got.Rules) != 2 || got.Version != 3 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
