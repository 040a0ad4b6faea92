package dedupe_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/onceq/onceq/dedupe"
)

var ats = []dedupe.At{
	dedupe.AtNone, dedupe.AtReleased, dedupe.AtLive, dedupe.AtDead, dedupe.AtDone, dedupe.AtFailed, dedupe.AtParked,
}

// situations are all combinations, those included that no record can bring about.
func situations() []dedupe.Situation {
	var all []dedupe.Situation
	for _, at := range ats {
		for bits := range 16 {
			all = append(all, dedupe.Situation{At: at, Own: bits&1 > 0, Differs: bits&2 > 0, Interrupted: bits&4 > 0, Reopens: bits&8 > 0})
		}
	}
	return all
}

// claimRule is the claim once more, in words of its own: which row must decide.
func claimRule(s dedupe.Situation) string {
	if s.At == dedupe.AtNone {
		return "no record"
	}
	if s.Reopens && (s.At == dedupe.AtFailed || s.At == dedupe.AtParked) {
		return "reopened"
	}
	if s.Differs {
		return "another payload"
	}
	switch s.At {
	case dedupe.AtLive:
		if s.Own {
			return "own claim again"
		}
		return "live claim of another"
	case dedupe.AtDead:
		switch {
		case s.Own:
			return "own claim again"
		case s.Interrupted:
			return "interrupted"
		}
		return "dead claim of another"
	case dedupe.AtReleased:
		if s.Own {
			return "late packet"
		}
		return "released"
	case dedupe.AtDone:
		return "done"
	}
	if s.At == dedupe.AtFailed {
		return "failed"
	}
	return "parked"
}

func decides[R any](rows []R, matches func(*R) bool) int {
	return slices.IndexFunc(rows, func(r R) bool { return matches(&r) })
}

func TestClaimTableIsTotal(t *testing.T) {
	reached := make(map[string]bool)
	for _, s := range situations() {
		i := decides(dedupe.ClaimTable, func(r *dedupe.ClaimRow) bool { return r.Matches(s) })
		if i < 0 {
			t.Errorf("no row decides %+v", s)
			continue
		}
		got := dedupe.ClaimTable[i].Name
		reached[got] = true
		if want := claimRule(s); got != want {
			t.Errorf("%+v is decided by %q, want %q", s, got, want)
		}
	}
	for _, r := range dedupe.ClaimTable {
		if !reached[r.Name] {
			t.Errorf("row %q is never reached", r.Name)
		}
	}
}

func TestRenewTableIsTotal(t *testing.T) {
	for _, s := range situations() {
		i := decides(dedupe.RenewTable, func(r *dedupe.RenewRow) bool { return r.Matches(s) })
		want := "not ours any more"
		if s.Own && (s.At == dedupe.AtLive || s.At == dedupe.AtDead) {
			want = "own claim"
		}
		if i < 0 || dedupe.RenewTable[i].Name != want {
			t.Errorf("%+v is decided by row %d, want %q", s, i, want)
		}
	}
}

// settleRule is the settlement once more, in words of its own.
func settleRule(s dedupe.Situation, to dedupe.Status, joined bool) string {
	if !s.Own {
		return "stale token"
	}
	switch s.At {
	case dedupe.AtNone:
		return "no record"
	case dedupe.AtLive, dedupe.AtDead:
		if to == dedupe.Done && joined {
			return "joined, not committed"
		}
		return "own claim"
	case dedupe.AtParked:
		switch {
		case to == dedupe.Done && joined:
			return "joined, not committed"
		case to == dedupe.Parked:
			return "parked again"
		}
		return "late word of the parked claim"
	}
	return "settled before"
}

func TestSettleTableIsTotal(t *testing.T) {
	reached := make(map[string]bool)
	for _, s := range situations() {
		for _, to := range []dedupe.Status{dedupe.Done, dedupe.Failed, dedupe.Released, dedupe.Parked} {
			for _, joined := range []bool{false, true} {
				i := decides(dedupe.SettleTable, func(r *dedupe.SettleRow) bool { return r.Matches(s, to, joined) })
				if i < 0 {
					t.Errorf("no row decides %+v to %v, joined %v", s, to, joined)
					continue
				}
				got := dedupe.SettleTable[i].Name
				reached[got] = true
				if want := settleRule(s, to, joined); got != want {
					t.Errorf("%+v to %v, joined %v is decided by %q, want %q", s, to, joined, got, want)
				}
			}
		}
	}
	for _, r := range dedupe.SettleTable {
		if !reached[r.Name] {
			t.Errorf("row %q is never reached", r.Name)
		}
	}
}

// What rows answer. Their order is pinned, too: stores outside Go copy it by hand.
func TestClaimRows(t *testing.T) {
	want := []struct {
		name    string
		outcome dedupe.Outcome
		change  dedupe.Change
	}{
		{"no record", dedupe.Won, dedupe.TakeFresh},
		{"reopened", dedupe.Won, dedupe.TakeReopen},
		{"another payload", dedupe.Mismatch, dedupe.Keep},
		{"own claim again", dedupe.Won, dedupe.Prolong},
		{"live claim of another", dedupe.InProgress, dedupe.Keep},
		{"interrupted", dedupe.IsParked, dedupe.ParkIt},
		{"dead claim of another", dedupe.Won, dedupe.TakeNext},
		{"late packet", dedupe.Stale, dedupe.Keep},
		{"released", dedupe.Won, dedupe.TakeNext},
		{"done", dedupe.AlreadyDone, dedupe.Keep},
		{"failed", dedupe.AlreadyFailed, dedupe.Keep},
		{"parked", dedupe.IsParked, dedupe.Keep},
	}
	if len(dedupe.ClaimTable) != len(want) {
		t.Fatalf("the table has %d rows, want %d", len(dedupe.ClaimTable), len(want))
	}
	for i, r := range dedupe.ClaimTable {
		if w := want[i]; r.Name != w.name || r.Outcome != w.outcome || r.Change != w.change {
			t.Errorf("row %d is %q, %v, change %d; want %+v", i, r.Name, r.Outcome, r.Change, w)
		}
	}
}

func TestRenewRows(t *testing.T) {
	want := []dedupe.RenewRow{
		{Name: "own claim", At: dedupe.AtClaimed, Own: dedupe.Yes, Change: dedupe.Prolong},
		{Name: "not ours any more", At: dedupe.AtAny, Err: dedupe.ErrLeaseLost},
	}
	if !slices.Equal(dedupe.RenewTable, want) {
		t.Errorf("the table is %+v, want %+v", dedupe.RenewTable, want)
	}
}

func TestSettleRows(t *testing.T) {
	want := []struct {
		name   string
		err    error
		change dedupe.Change
		here   bool
	}{
		{"stale token", dedupe.ErrLeaseLost, dedupe.Keep, false},
		{"no record", dedupe.ErrLeaseLost, dedupe.Keep, false},
		{"joined, not committed", nil, dedupe.Keep, true},
		{"own claim", nil, dedupe.Write, false},
		{"parked again", nil, dedupe.Keep, true},
		{"late word of the parked claim", nil, dedupe.Write, false},
		{"settled before", nil, dedupe.Keep, true},
	}
	if len(dedupe.SettleTable) != len(want) {
		t.Fatalf("the table has %d rows, want %d", len(dedupe.SettleTable), len(want))
	}
	for i, r := range dedupe.SettleTable {
		w := want[i]
		if r.Name != w.name || !errors.Is(r.Err, w.err) || r.Change != w.change || r.AnswersHere != w.here {
			t.Errorf("row %d is %+v, want %+v", i, r, w)
		}
	}
}
