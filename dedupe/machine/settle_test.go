package machine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

func TestApplyRenew(t *testing.T) {
	prolonged := func(r *dedupe.Record) { r.LeaseUntil, r.Updated = now.Add(lease), now }
	live, gone := with(record(dedupe.Claimed), own), with(record(dedupe.Claimed), own, dead)
	long := func(r *dedupe.Record) { r.LeaseUntil = now.Add(time.Hour) }
	for _, c := range []struct {
		name    string
		before  dedupe.Record
		renewal dedupe.Renewal
		err     error
		after   dedupe.Record
	}{
		{"own claim", live, dedupe.Renewal{}, nil, with(live, prolonged)},
		{"own claim: dead", gone, dedupe.Renewal{}, nil, with(gone, prolonged)},
		{"own claim: never shortened", with(live, long), dedupe.Renewal{}, nil, with(live, prolonged, long)},
		{"own claim: started", live, dedupe.Renewal{Started: true}, nil, with(live, prolonged, started)},
		{"own claim: started stays", with(live, started), dedupe.Renewal{}, nil, with(live, prolonged, started)},
		{"own claim: state", live, dedupe.Renewal{State: []byte("two"), StateNo: 2}, nil, with(live, prolonged, func(r *dedupe.Record) { r.State, r.StateNo = []byte("two"), 2 })},
		{"own claim: late state", live, dedupe.Renewal{State: []byte("late"), StateNo: 1}, nil, with(live, prolonged)},
		{"own claim: empty state", live, dedupe.Renewal{State: []byte{}, StateNo: 2}, nil, with(live, prolonged, func(r *dedupe.Record) { r.State, r.StateNo = []byte{}, 2 })},
		{"not ours: another's", record(dedupe.Claimed), dedupe.Renewal{State: []byte("x"), StateNo: 2}, dedupe.ErrLeaseLost, record(dedupe.Claimed)},
		{"not ours: none", dedupe.Record{}, dedupe.Renewal{}, dedupe.ErrLeaseLost, dedupe.Record{}},
		{"not ours: released", with(record(dedupe.Released), own), dedupe.Renewal{}, dedupe.ErrLeaseLost, with(record(dedupe.Released), own)},
		{"not ours: done", with(record(dedupe.Done), own), dedupe.Renewal{}, dedupe.ErrLeaseLost, with(record(dedupe.Done), own)},
		{"not ours: failed", with(record(dedupe.Failed), own), dedupe.Renewal{}, dedupe.ErrLeaseLost, with(record(dedupe.Failed), own)},
		{"not ours: parked", with(record(dedupe.Parked), own), dedupe.Renewal{Started: true}, dedupe.ErrLeaseLost, with(record(dedupe.Parked), own)},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := c.renewal
			n.Key, n.Token, n.TTL = jobKey, mine, lease
			r := c.before
			if err := machine.ApplyRenew(&r, &n, now); !errors.Is(err, c.err) {
				t.Errorf("the answer is %v, want %v", err, c.err)
			}
			wantRecord(t, &r, &c.after)
		})
	}
}

func TestApplySettle(t *testing.T) {
	const keep = time.Hour
	type settlement = dedupe.Settlement
	to := func(s dedupe.Status) settlement { return settlement{To: s, Retain: keep} }
	joined := func(t settlement) settlement { t.Joined = true; return t }
	resolving := func(t settlement) settlement { t.Unparks = true; return t }
	noted := func(why string) func(*dedupe.Record) {
		return func(r *dedupe.Record) {
			r.Updated, r.LastErr = now, "given back late by its worker, so its letter may be replayed"+why
		}
	}
	failing := func(t settlement) settlement { t.ErrClass, t.ErrText = "panic", "boom"; return t }
	ended := func(s dedupe.Status) func(*dedupe.Record) {
		return func(r *dedupe.Record) {
			r.Status, r.Updated, r.Finished, r.LeaseUntil, r.Expires = s, now, now, time.Time{}, now.Add(keep)
			switch s {
			case dedupe.Done:
				r.MessageID, r.State, r.StateNo = "", nil, 0
				r.ErrClass, r.FirstErr, r.LastErr = "", "", ""
			case dedupe.Released:
				r.Finished, r.Started = time.Time{}, false
			case dedupe.Parked:
				r.Expires = time.Time{}
			}
		}
	}
	boomed := func(r *dedupe.Record) { r.ErrClass, r.LastErr = "panic", "boom" }
	noErr := func(r *dedupe.Record) { r.ErrClass, r.FirstErr, r.LastErr = "", "", "" }
	attempt := func(n int) func(*dedupe.Record) { return func(r *dedupe.Record) { r.Attempt = n } }
	live := with(record(dedupe.Claimed), own, started)
	gone := with(live, dead)
	parked := with(record(dedupe.Parked), own)
	uncounted := to(dedupe.Released)
	uncounted.Uncounted = true
	result := func(b []byte) settlement { t := to(dedupe.Done); t.Result = b; return t }
	for _, c := range []struct {
		name       string
		before     dedupe.Record
		settlement settlement
		status     dedupe.Status
		err        error
		after      dedupe.Record
	}{
		{"stale token: claimed", record(dedupe.Claimed), to(dedupe.Done), 0, dedupe.ErrLeaseLost, record(dedupe.Claimed)},
		{"stale token: parked", record(dedupe.Parked), to(dedupe.Done), 0, dedupe.ErrLeaseLost, record(dedupe.Parked)},
		{"stale token: joined", record(dedupe.Done), joined(to(dedupe.Released)), 0, dedupe.ErrLeaseLost, record(dedupe.Done)},
		{"no record", dedupe.Record{}, to(dedupe.Done), 0, dedupe.ErrLeaseLost, dedupe.Record{}},

		{"joined, not committed", live, joined(to(dedupe.Done)), dedupe.Claimed, nil, live},
		{"joined, not committed: parked", parked, joined(to(dedupe.Done)), dedupe.Parked, nil, parked},

		{"own claim: done", live, to(dedupe.Done), dedupe.Done, nil, with(live, ended(dedupe.Done))},
		{"own claim: done with a result", live, result([]byte("x")), dedupe.Done, nil, with(live, ended(dedupe.Done), func(r *dedupe.Record) { r.Result = []byte("x") })},
		{"own claim: done with an empty result", live, result([]byte{}), dedupe.Done, nil, with(live, ended(dedupe.Done), func(r *dedupe.Record) { r.Result = []byte{} })},
		{"own claim: done, dead lease", gone, to(dedupe.Done), dedupe.Done, nil, with(gone, ended(dedupe.Done))},
		{"own claim: failed", live, failing(to(dedupe.Failed)), dedupe.Failed, nil, with(live, ended(dedupe.Failed), boomed)},
		{"own claim: failed, first error", with(live, noErr), failing(to(dedupe.Failed)), dedupe.Failed, nil, with(live, ended(dedupe.Failed), boomed, func(r *dedupe.Record) { r.FirstErr = "boom" })},
		{"own claim: released", live, failing(to(dedupe.Released)), dedupe.Released, nil, with(live, ended(dedupe.Released), boomed)},
		{"own claim: released without a word", live, to(dedupe.Released), dedupe.Released, nil, with(live, ended(dedupe.Released))},
		{"own claim: uncounted", live, uncounted, dedupe.Released, nil, with(live, ended(dedupe.Released), attempt(2))},
		{"own claim: uncounted at 0", with(live, attempt(0)), uncounted, dedupe.Released, nil, with(live, ended(dedupe.Released), attempt(0))},
		{"own claim: parked", live, failing(to(dedupe.Parked)), dedupe.Parked, nil, with(live, ended(dedupe.Parked), boomed)},
		{"own claim: joined release", live, joined(to(dedupe.Released)), dedupe.Released, nil, with(live, ended(dedupe.Released))},
		{"own claim: a result counts for done only", live, settlement{To: dedupe.Failed, Result: []byte("x"), Retain: keep}, dedupe.Failed, nil, with(live, ended(dedupe.Failed))},
		{"own claim: default retention", live, settlement{To: dedupe.Done}, dedupe.Done, nil, with(live, ended(dedupe.Done), func(r *dedupe.Record) { r.Expires = now.Add(31 * 24 * time.Hour) })},

		{"parked again", parked, failing(to(dedupe.Parked)), dedupe.Parked, nil, parked},
		{"late word: done", parked, result([]byte("x")), dedupe.Done, nil, with(parked, ended(dedupe.Done), func(r *dedupe.Record) { r.Result = []byte("x") })},
		{"late word: failed", parked, failing(to(dedupe.Failed)), dedupe.Failed, nil, with(parked, ended(dedupe.Failed), boomed)},
		{"late word: resolved to released", parked, resolving(to(dedupe.Released)), dedupe.Released, nil, with(parked, ended(dedupe.Released))},
		{"late release", parked, failing(to(dedupe.Released)), dedupe.Parked, nil, with(parked, noted(": boom"))},
		{"late release: joined", parked, joined(to(dedupe.Released)), dedupe.Parked, nil, with(parked, noted(""))},
		{"late release: uncounted", parked, uncounted, dedupe.Parked, nil, with(parked, noted(""))},
		{"late release: first error", with(parked, noErr), failing(to(dedupe.Released)), dedupe.Parked, nil, with(parked, noErr, noted(": boom"), func(r *dedupe.Record) { r.FirstErr = "boom" })},

		{"settled before: released", with(record(dedupe.Released), own), to(dedupe.Done), dedupe.Released, nil, with(record(dedupe.Released), own)},
		{"settled before: uncounted once", with(record(dedupe.Released), own), uncounted, dedupe.Released, nil, with(record(dedupe.Released), own)},
		{"settled before: done", with(record(dedupe.Done), own), failing(to(dedupe.Failed)), dedupe.Done, nil, with(record(dedupe.Done), own)},
		{"settled before: done, joined", with(record(dedupe.Done), own), joined(to(dedupe.Done)), dedupe.Done, nil, with(record(dedupe.Done), own)},
		{"settled before: failed", with(record(dedupe.Failed), own), to(dedupe.Done), dedupe.Failed, nil, with(record(dedupe.Failed), own)},
		{"settled before: expired", with(record(dedupe.Done), own, expired), to(dedupe.Done), dedupe.Done, nil, with(record(dedupe.Done), own, expired)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.settlement
			s.Key, s.Token = jobKey, mine
			r := c.before
			got, changed := machine.ApplySettle(&r, &s, now)
			if got.Status != c.status || !errors.Is(got.Err, c.err) {
				t.Errorf("the answer is %v, %v; want %v, %v", got.Status, got.Err, c.status, c.err)
			}
			wantRecord(t, &r, &c.after)
			if want := !r.Updated.Equal(c.before.Updated); changed != want {
				t.Errorf("changed is %v, want %v", changed, want)
			}
		})
	}
}

func TestSettleCopiesTheResult(t *testing.T) {
	r := with(record(dedupe.Claimed), own)
	b := []byte("x")
	machine.ApplySettle(&r, &dedupe.Settlement{Key: jobKey, Token: mine, To: dedupe.Done, Result: b}, now)
	b[0] = '!'
	if string(r.Result) != "x" {
		t.Errorf("the record shares its result: %q", r.Result)
	}
	s := []byte("x")
	r = with(record(dedupe.Claimed), own)
	if err := machine.ApplyRenew(&r, &dedupe.Renewal{Key: jobKey, Token: mine, TTL: lease, State: s, StateNo: 2}, now); err != nil {
		t.Fatal(err)
	}
	s[0] = '!'
	if string(r.State) != "x" {
		t.Errorf("the record shares its state: %q", r.State)
	}
}

func TestApplyForget(t *testing.T) {
	live := record(dedupe.Claimed)
	for _, c := range []struct {
		name   string
		record dedupe.Record
		fence  uint64
		force  bool
		remove bool
		err    error
	}{
		{"no record", dedupe.Record{}, 7, false, false, nil},
		{"live", live, fenced, false, false, dedupe.ErrBusy},
		{"live, forced", live, fenced, true, true, nil},
		{"live, forced, another fence", live, fenced + 1, true, false, dedupe.ErrLeaseLost},
		{"dead", with(live, dead), fenced, false, true, nil},
		{"released", record(dedupe.Released), fenced, false, true, nil},
		{"done", record(dedupe.Done), fenced, false, true, nil},
		{"done, another fence", record(dedupe.Done), 0, true, false, dedupe.ErrLeaseLost},
		{"done, expired, another fence", with(record(dedupe.Done), expired), 0, false, true, nil},
		{"parked", record(dedupe.Parked), fenced, false, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.record
			remove, err := machine.ApplyForget(&r, &dedupe.Forgotten{Key: jobKey, Fence: c.fence, Force: c.force}, now)
			if remove != c.remove || !errors.Is(err, c.err) {
				t.Errorf("the answer is %v, %v; want %v, %v", remove, err, c.remove, c.err)
			}
			wantRecord(t, &r, &c.record)
		})
	}
}
