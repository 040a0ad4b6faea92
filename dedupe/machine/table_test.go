package machine_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

var ats = []machine.At{
	machine.AtNone, machine.AtReleased, machine.AtLive, machine.AtDead, machine.AtDone, machine.AtFailed, machine.AtParked,
}

// situations are all combinations, those included that no record can bring about.
func situations() []machine.Situation {
	var all []machine.Situation
	for _, at := range ats {
		for bits := range 32 {
			all = append(all, machine.Situation{At: at, Own: bits&1 > 0, Differs: bits&2 > 0, Interrupted: bits&4 > 0, Reopens: bits&8 > 0, Unparks: bits&16 > 0})
		}
	}
	return all
}

// claimRule is the claim once more, in words of its own: which row must decide.
func claimRule(s machine.Situation) string {
	if s.At == machine.AtNone {
		return "no record"
	}
	if s.Reopens && (s.At == machine.AtFailed || s.At == machine.AtParked) {
		return "reopened"
	}
	if s.Differs {
		return "another payload"
	}
	switch s.At {
	case machine.AtLive:
		if s.Own {
			return "own claim again"
		}
		return "live claim of another"
	case machine.AtDead:
		switch {
		case s.Own:
			return "own claim again"
		case s.Interrupted:
			return "interrupted"
		}
		return "dead claim of another"
	case machine.AtReleased:
		if s.Own {
			return "late packet"
		}
		return "released"
	case machine.AtDone:
		return "done"
	}
	if s.At == machine.AtFailed {
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
		i := decides(machine.ClaimTable(), func(r *machine.ClaimRow) bool { return r.Matches(s) })
		if i < 0 {
			t.Errorf("no row decides %+v", s)
			continue
		}
		got := machine.ClaimTable()[i].Name
		reached[got] = true
		if want := claimRule(s); got != want {
			t.Errorf("%+v is decided by %q, want %q", s, got, want)
		}
	}
	for _, r := range machine.ClaimTable() {
		if !reached[r.Name] {
			t.Errorf("row %q is never reached", r.Name)
		}
	}
}

func TestRenewTableIsTotal(t *testing.T) {
	for _, s := range situations() {
		i := decides(machine.RenewTable(), func(r *machine.RenewRow) bool { return r.Matches(s) })
		want := "not ours any more"
		if s.Own && (s.At == machine.AtLive || s.At == machine.AtDead) {
			want = "own claim"
		}
		if i < 0 || machine.RenewTable()[i].Name != want {
			t.Errorf("%+v is decided by row %d, want %q", s, i, want)
		}
	}
}

// settleRule is the settlement once more, in words of its own.
func settleRule(s machine.Situation, to dedupe.Status, joined bool) string {
	if !s.Own {
		return "stale token"
	}
	switch s.At {
	case machine.AtNone:
		return "no record"
	case machine.AtLive, machine.AtDead:
		if to == dedupe.Done && joined {
			return "joined, not committed"
		}
		return "own claim"
	case machine.AtParked:
		switch {
		case to == dedupe.Done && joined:
			return "joined, not committed"
		case to == dedupe.Parked:
			return "parked again"
		case to == dedupe.Released && !s.Unparks:
			return "late release of the parked claim"
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
				i := decides(machine.SettleTable(), func(r *machine.SettleRow) bool { return r.Matches(s, to, joined) })
				if i < 0 {
					t.Errorf("no row decides %+v to %v, joined %v", s, to, joined)
					continue
				}
				got := machine.SettleTable()[i].Name
				reached[got] = true
				if want := settleRule(s, to, joined); got != want {
					t.Errorf("%+v to %v, joined %v is decided by %q, want %q", s, to, joined, got, want)
				}
			}
		}
	}
	for _, r := range machine.SettleTable() {
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
		change  machine.Change
	}{
		{"no record", dedupe.Won, machine.TakeFresh},
		{"reopened", dedupe.Won, machine.TakeReopen},
		{"another payload", dedupe.Mismatch, machine.Keep},
		{"own claim again", dedupe.Won, machine.Prolong},
		{"live claim of another", dedupe.InProgress, machine.Keep},
		{"interrupted", dedupe.IsParked, machine.ParkIt},
		{"dead claim of another", dedupe.Won, machine.TakeNext},
		{"late packet", dedupe.Stale, machine.Keep},
		{"released", dedupe.Won, machine.TakeNext},
		{"done", dedupe.AlreadyDone, machine.Keep},
		{"failed", dedupe.AlreadyFailed, machine.Keep},
		{"parked", dedupe.IsParked, machine.Keep},
	}
	if len(machine.ClaimTable()) != len(want) {
		t.Fatalf("the table has %d rows, want %d", len(machine.ClaimTable()), len(want))
	}
	for i, r := range machine.ClaimTable() {
		if w := want[i]; r.Name != w.name || r.Outcome != w.outcome || r.Change != w.change {
			t.Errorf("row %d is %q, %v, change %d; want %+v", i, r.Name, r.Outcome, r.Change, w)
		}
	}
}

func TestRenewRows(t *testing.T) {
	want := []machine.RenewRow{
		{Name: "own claim", At: machine.AtClaimed, Own: machine.Yes, Change: machine.Prolong},
		{Name: "not ours any more", At: machine.AtAny, Err: dedupe.ErrLeaseLost},
	}
	if !slices.Equal(machine.RenewTable(), want) {
		t.Errorf("the table is %+v, want %+v", machine.RenewTable(), want)
	}
}

func TestSettleRows(t *testing.T) {
	want := []struct {
		name   string
		err    error
		change machine.Change
		here   bool
	}{
		{"stale token", dedupe.ErrLeaseLost, machine.Keep, false},
		{"no record", dedupe.ErrLeaseLost, machine.Keep, false},
		{"joined, not committed", nil, machine.Keep, true},
		{"own claim", nil, machine.Write, false},
		{"parked again", nil, machine.Keep, true},
		{"late release of the parked claim", nil, machine.Note, true},
		{"late word of the parked claim", nil, machine.Write, false},
		{"settled before", nil, machine.Keep, true},
	}
	if len(machine.SettleTable()) != len(want) {
		t.Fatalf("the table has %d rows, want %d", len(machine.SettleTable()), len(want))
	}
	for i, r := range machine.SettleTable() {
		w := want[i]
		if r.Name != w.name || !errors.Is(r.Err, w.err) || r.Change != w.change || r.AnswersHere != w.here {
			t.Errorf("row %d is %+v, want %+v", i, r, w)
		}
	}
}
