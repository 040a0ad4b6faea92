package controlstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/internal/rig"
	"github.com/onceq/onceq/onceqtest"
)

func entry(reason string) control.AuditEntry {
	return control.AuditEntry{Act: "pause", By: "ana", Reason: reason, Queue: "mails", Detail: map[string]string{"for": "1h"}}
}

func acts(t *testing.T, s dedupe.Store, from, to time.Time) (all []control.AuditEntry) {
	t.Helper()
	for e, err := range controlstore.Acts(t.Context(), s, from, to) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestAudit: an act is there before it is done, with its end when it has ended, day by day, and for
// 400 days.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := newStore(t), time.Now()
		for day := range 3 {
			for n := range 20 {
				a, err := controlstore.Begin(t.Context(), s, entry(fmt.Sprintf("%d/%d", day, n)))
				if want := fmt.Sprintf("2000-01-0%d/%d", day+1, n); err != nil || a.ID() != want {
					t.Fatalf("%v, %v; want %s", a, err, want)
				}
				if n == 7 {
					continue // who acted has died
				}
				var failed error
				if n == 8 {
					failed = errors.New("AccessDenied\x1b[2J")
				}
				<-time.After(time.Second)
				if err := a.End(t.Context(), map[string]string{"rule": "abcde"}, failed); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(24*time.Hour - 19*time.Second)
		}
		all := acts(t, s, begin, time.Now())
		if len(all) != 60 {
			t.Fatalf("%d acts of 60", len(all))
		}
		for i, e := range all {
			day, n := i/20, i%20
			if e.ID != fmt.Sprintf("2000-01-0%d/%d", day+1, n) || e.Reason != fmt.Sprintf("%d/%d", day, n) || e.By != "ana" || e.Act != "pause" || e.Detail["for"] != "1h" {
				t.Errorf("act %d is %+v", i, e)
			}
			switch {
			case n == 7 && (!e.Ended.IsZero() || e.Result != nil), n == 8 && e.Err != "AccessDenied [2J",
				n != 7 && (e.Ended.Sub(e.Began) != time.Second || e.Result["rule"] != "abcde"):
				t.Errorf("act %d is %+v", i, e)
			}
		}
		if got := acts(t, s, begin.Add(24*time.Hour), begin.Add(24*time.Hour+5*time.Second)); len(got) != 6 {
			t.Errorf("within five seconds there are %d acts of 6", len(got))
		}
		if e, err := controlstore.ReadAct(t.Context(), s, "2000-01-02/3"); err != nil || e == nil || e.Reason != "1/3" {
			t.Errorf("%+v, %v", e, err)
		}
		if e, err := controlstore.ReadAct(t.Context(), s, "2000-01-02/99"); err != nil || e != nil {
			t.Errorf("%+v, %v", e, err)
		}
		<-time.After(395 * 24 * time.Hour)
		if got := acts(t, s, begin, begin.Add(72*time.Hour)); len(got) != 60 {
			t.Errorf("after 398 days %d acts of 60 are kept", len(got))
		}
	})
}

// TestActsAtOnce: of acts that begin at once, each has a number of its own, and none is passed
// over.
func TestActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				a, err := controlstore.Begin(t.Context(), s, entry(fmt.Sprint(i)))
				if err == nil {
					err = a.End(t.Context(), nil, nil)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		reasons := map[string]bool{}
		for _, e := range acts(t, s, time.Now(), time.Now()) {
			reasons[e.Reason] = true
		}
		if len(reasons) != 50 {
			t.Errorf("%d acts of 50", len(reasons))
		}
	})
}

// TestLostAudit: an act is not begun where its record is not known to be written; an end that was
// not written may be written again.
func TestLostAudit(t *testing.T) {
	for _, op := range []onceqtest.Op{"get", "claim", "renew", "settle"} {
		for _, applied := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := rig.NewStore(t)
				s.SetFault(rig.Bads(op, 3, faulty.Err(errCut, applied)))
				a, err := controlstore.Begin(t.Context(), s, entry("x"))
				if err != nil {
					t.Fatal(op, err)
				}
				if err := a.End(t.Context(), nil, nil); err != nil {
					t.Fatal(op, err)
				}
				if got := acts(t, s, time.Now().Add(-time.Minute), time.Now()); len(got) != 1 || got[0].Ended.IsZero() {
					t.Errorf("%s: %+v", op, got)
				}
				s.Befalls(faulty.Err(errCut, applied), op)
				a, err = controlstore.Begin(t.Context(), s, entry("x"))
				if (err != nil) != (op != "settle") {
					t.Fatal(op, err)
				}
				if a != nil {
					if err := a.End(t.Context(), nil, nil); !errors.Is(err, errCut) {
						t.Error(op, err)
					}
					s.Heals()
					if err := a.End(t.Context(), nil, nil); err != nil {
						t.Error(op, err)
					}
				}
			})
		}
	}
}

func TestRefusedActs(t *testing.T) {
	for want, change := range map[string]func(*control.AuditEntry){
		"AuditEntry.Act: is required":                     func(e *control.AuditEntry) { e.Act = "" },
		"AuditEntry.By: is required":                      func(e *control.AuditEntry) { e.By = "" },
		"AuditEntry.Reason: is required":                  func(e *control.AuditEntry) { e.Reason = "\t" },
		"AuditEntry.Reason: has 257 bytes":                func(e *control.AuditEntry) { e.Reason = strings.Repeat("x", 257) },
		"AuditEntry.Object: has 1281 bytes, the limit is": func(e *control.AuditEntry) { e.Object = strings.Repeat("x", 1281) },
		"bytes, the limit is 16384":                       func(e *control.AuditEntry) { e.Detail["x"] = strings.Repeat("x", 17000) },
	} {
		e := entry("x")
		change(&e)
		if _, err := controlstore.Begin(t.Context(), newStore(t), e); !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// What came of an act is always written, cut where it is too long.
	s := newStore(t)
	a, err := controlstore.Begin(t.Context(), s, entry("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.End(t.Context(), map[string]string{"x": strings.Repeat("x", 1<<20)}, nil); err != nil {
		t.Fatal(err)
	}
	if e, err := controlstore.ReadAct(t.Context(), s, a.ID()); err != nil || e.Ended.IsZero() || e.Result["cut"] == "" {
		t.Errorf("%+v, %v", e, err)
	}
}
