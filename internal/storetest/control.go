package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/onceqtest"
)

// This file owns what the rules of package control must keep on each store: edits by many operators
// at once, and operators who die. Tests of stores call it.

// EditRules lets operators edit the rules at once, each so many times. Each edit is kept.
func EditRules(tb testing.TB, s dedupe.Store, operators, edits int) {
	tb.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	tried := 0
	for o := range operators {
		wg.Go(func() {
			for e := range edits {
				id := fmt.Sprintf("%d-%d", o, e)
				_, err := controlstore.Change(tb.Context(), s, func(rs *controlstore.Rules) error {
					mu.Lock()
					tried++
					mu.Unlock()
					// The count is kept in one rule an operator, so that there is room for it.
					mine := fmt.Sprint("operator ", o)
					rs.Remove(mine)
					rs.Rules = append(rs.Rules, rule(mine, id))
					return nil
				})
				if err != nil {
					tb.Errorf("edit %s: %v", id, err)
					return
				}
			}
		})
	}
	wg.Wait()
	got, err := controlstore.Read(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	if got.Version != uint64(operators*edits) || len(got.Rules) != operators {
		tb.Errorf("%d edits are kept of %d, and %d rules", got.Version, operators*edits, len(got.Rules))
	}
	for o := range operators {
		if r := got.Find(fmt.Sprint("operator ", o)); r == nil || r.Reason != fmt.Sprintf("%d-%d", o, edits-1) {
			tb.Errorf("operator %d has left %+v", o, r)
		}
	}
	tb.Logf("%d edits, %d tries", operators*edits, tried)
}

func rule(id, reason string) control.Rule {
	return control.Rule{ID: id, Do: control.Pause, Queue: "q", Until: time.Now().Add(time.Hour), By: "ana", Reason: reason}
}

// KillOperators lets operators die at each of their calls, before it and after it was applied. The
// rules stay whole, and the next edit works.
func KillOperators(tb testing.TB, s dedupe.Store) {
	tb.Helper()
	var want uint64
	edit := func(s dedupe.Store, id string) error {
		_, err := controlstore.Change(tb.Context(), s, func(rs *controlstore.Rules) error {
			rs.Rules = append(rs.Rules, rule(id, id))
			return nil
		})
		if err == nil {
			want++
		}
		return err
	}
	if err := edit(s, "first"); err != nil {
		tb.Fatal(err)
	}
	for _, at := range []onceqtest.Op{onceqtest.Get, onceqtest.Settle, onceqtest.Claim, onceqtest.Renew} {
		for _, kind := range []onceqtest.FaultKind{onceqtest.CrashBefore, onceqtest.CrashAfter} {
			name := fmt.Sprintf("%s-%s", at, kind)
			var p onceqtest.Process
			p.At(onceqtest.Fault{Op: at, Kind: kind})
			if err := edit(p.Store(s), name); !errors.Is(err, onceqtest.ErrDead) {
				tb.Fatalf("%s: %v", name, err)
			}
			if at == onceqtest.Renew && kind == onceqtest.CrashAfter {
				want++
			}
			got, err := controlstore.Read(tb.Context(), s)
			if err != nil || got.Version != want || len(got.Rules) != int(want) {
				tb.Errorf("%s: version %d with %d rules, want %d, %v", name, got.Version, len(got.Rules), want, err)
			}
			if err := edit(s, "after-"+name); err != nil {
				tb.Errorf("%s: the next edit: %v", name, err)
			}
		}
	}
}
