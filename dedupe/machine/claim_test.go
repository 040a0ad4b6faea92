package machine_test

import (
	"cmp"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
)

var (
	now    = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	past   = now.Add(-time.Hour)
	jobKey = dedupe.Key{Scope: "orders", Key: "7"}
	mine   = dedupe.Token{1}
	theirs = dedupe.Token{2}
)

const (
	lease  = time.Minute
	fenced = 41 // the fence of the records, and the counter before the claim
)

// record is one under status, with everything else filled in that it can have.
func record(s dedupe.Status) dedupe.Record {
	r := dedupe.Record{
		Key: jobKey, Status: s, Fence: fenced, Token: theirs, Attempt: 3, Owner: "w-1", MessageID: "m-1", State: []byte("step"), StateNo: 1,
		ErrClass: "timeout", FirstErr: "first", LastErr: "last", Created: past.Add(-time.Hour), ClaimedAt: past, Updated: past,
	}
	switch s {
	case dedupe.Claimed:
		r.LeaseUntil = now.Add(time.Second)
	case dedupe.Released:
		r.Expires = now.Add(time.Hour)
	case dedupe.Done:
		r.ErrClass, r.FirstErr, r.LastErr = "", "", ""
		r.Result = []byte("result")
		r.Finished, r.Expires = past, now.Add(time.Hour)
	case dedupe.Failed:
		r.Finished, r.Expires = past, now.Add(time.Hour)
	case dedupe.Parked:
		r.Started, r.Policy, r.Finished = true, dedupe.Park, past
	}
	return r
}

func with(r dedupe.Record, change ...func(*dedupe.Record)) dedupe.Record {
	for _, f := range change {
		f(&r)
	}
	return r
}

func dead(r *dedupe.Record)    { r.LeaseUntil = now }
func started(r *dedupe.Record) { r.Started = true }
func park(r *dedupe.Record)    { r.Policy = dedupe.Park }
func printed(r *dedupe.Record) { r.Fingerprint = []byte("A") }
func own(r *dedupe.Record)     { r.Token = mine }
func expired(r *dedupe.Record) { r.Expires = now }

func untouched(r *dedupe.Record) {
	r.Attempt, r.ErrClass, r.LastErr, r.FirstErr = 0, "", "", ""
	r.State, r.StateNo = nil, 0
}
func stepped(r *dedupe.Record)    { r.State, r.StateNo = []byte("step"), 1 }
func failedOnce(r *dedupe.Record) { r.ErrClass = "error" }

// taken is a record that the request of the tests has won.
func taken(attempt int) func(*dedupe.Record) {
	return func(r *dedupe.Record) {
		if r.Past == nil {
			folded(false)(r)
		}
		r.Status, r.Fence, r.Token, r.Attempt = dedupe.Claimed, fenced+1, mine, attempt
		r.Owner, r.MessageID = "w-2", "m-2"
		r.Started, r.Policy = false, dedupe.Rerun
		r.ClaimedAt, r.Updated, r.LeaseUntil = now, now, now.Add(lease)
		r.Finished, r.Expires = time.Time{}, time.Time{}
	}
}

// folded leaves the attempt that record shows in its Past.
func folded(reopened bool) func(*dedupe.Record) {
	return func(r *dedupe.Record) {
		at := past.Truncate(time.Microsecond)
		a := dedupe.Attempt{
			Number: r.Attempt, Fence: fenced, Owner: "w-1", Claimed: at, Ended: at, End: r.Status,
			Class: r.ErrClass, Err: r.LastErr, Reopened: reopened,
		}
		if r.Status == dedupe.Claimed {
			a.Ended, a.Class, a.Err = now.Truncate(time.Microsecond), "", ""
		}
		r.Past = []dedupe.Attempt{a}
	}
}

var fresh = dedupe.Record{
	Key: jobKey, Status: dedupe.Claimed, Fence: fenced + 1, Token: mine, Attempt: 1, Owner: "w-2", MessageID: "m-2",
	Created: now, ClaimedAt: now, Updated: now, LeaseUntil: now.Add(lease),
}

func TestApplyClaim(t *testing.T) {
	type request = dedupe.ClaimRequest
	printB := func(q *request) { q.Fingerprint = []byte("B") }
	reopens := func(q *request) { q.Reopen = fenced }
	reopensOther := func(q *request) { q.Reopen = fenced - 1 }
	parks := func(q *request) { q.Policy = dedupe.Park }
	none := func(*request) {}
	same := func(r dedupe.Record) dedupe.Record { return r }
	parkedNow := func(r *dedupe.Record) {
		r.Status, r.Finished, r.Updated, r.LeaseUntil = dedupe.Parked, now, now, time.Time{}
		r.ErrClass = dedupe.ClassInterrupted
	}
	reopened := func(r *dedupe.Record) {
		folded(true)(r)
		r.FirstErr, r.LastErr, r.ErrClass, r.Fingerprint = "", "", "", nil
	}
	live, gone := record(dedupe.Claimed), with(record(dedupe.Claimed), dead)
	for _, c := range []struct {
		name    string
		before  dedupe.Record
		request func(*request)
		outcome dedupe.Outcome
		after   dedupe.Record
	}{
		{"no record", dedupe.Record{}, none, dedupe.Won, fresh},
		{"no record: a fingerprint is kept", dedupe.Record{}, printB, dedupe.Won, with(fresh, func(r *dedupe.Record) { r.Fingerprint = []byte("B") })},
		{"no record: Reopen is an ordinary claim", dedupe.Record{}, reopens, dedupe.Won, fresh},
		{"no record: the policy is kept", dedupe.Record{}, parks, dedupe.Won, with(fresh, park)},
		{"no record: done expired", with(record(dedupe.Done), expired), none, dedupe.Won, fresh},
		{"no record: failed expired", with(record(dedupe.Failed), expired), reopens, dedupe.Won, fresh},
		{"no record: released expired", with(record(dedupe.Released), expired), none, dedupe.Won, fresh},
		{"no record: its own expired one", with(record(dedupe.Released), expired, own), none, dedupe.Won, fresh},
		{"no record: expired, with another payload", with(record(dedupe.Done), expired, printed), printB, dedupe.Won, with(fresh, func(r *dedupe.Record) { r.Fingerprint = []byte("B") })},

		{"another payload: live", with(live, printed), printB, dedupe.Mismatch, with(live, printed)},
		{"another payload: own", with(live, printed, own), printB, dedupe.Mismatch, with(live, printed, own)},
		{"another payload: dead", with(gone, printed), printB, dedupe.Mismatch, with(gone, printed)},
		{"another payload: released", with(record(dedupe.Released), printed), printB, dedupe.Mismatch, with(record(dedupe.Released), printed)},
		{"another payload: done", with(record(dedupe.Done), printed), printB, dedupe.Mismatch, with(record(dedupe.Done), printed)},
		{"another payload: parked", with(record(dedupe.Parked), printed), printB, dedupe.Mismatch, with(record(dedupe.Parked), printed)},
		{"another payload: an empty one", with(live, func(r *dedupe.Record) { r.Fingerprint = []byte{} }), printB, dedupe.Mismatch, with(live, func(r *dedupe.Record) { r.Fingerprint = []byte{} })},
		{"the record alone has a fingerprint", with(live, printed), none, dedupe.InProgress, with(live, printed)},
		{"the request alone has a fingerprint", live, printB, dedupe.InProgress, live},

		{"own claim again", with(live, own), none, dedupe.Won, with(live, own, func(r *dedupe.Record) { r.LeaseUntil, r.Updated = now.Add(lease), now })},
		{"own claim again: dead", with(gone, own, started, park), none, dedupe.Won, with(gone, own, started, park, func(r *dedupe.Record) { r.LeaseUntil, r.Updated = now.Add(lease), now })},
		{"own claim again: not shortened", with(live, own, func(r *dedupe.Record) { r.LeaseUntil = now.Add(time.Hour) }), none, dedupe.Won, with(live, own, func(r *dedupe.Record) { r.LeaseUntil, r.Updated = now.Add(time.Hour), now })},

		{"live claim of another", live, none, dedupe.InProgress, live},
		{"live claim of another: started under Park", with(live, started, park), parks, dedupe.InProgress, with(live, started, park)},
		{"live claim of another: Reopen means nothing", live, reopens, dedupe.InProgress, live},

		{"interrupted: the record says Park", with(gone, started, park), none, dedupe.IsParked, with(gone, started, park, parkedNow)},
		{"interrupted: the request says Park", with(gone, started), parks, dedupe.IsParked, with(gone, started, parkedNow)},

		{"dead claim of another", gone, none, dedupe.Won, with(gone, taken(4))},
		{"dead claim of another: Park, not started", with(gone, park), parks, dedupe.Won, with(gone, taken(4), park)},
		{"dead claim of another: started under Rerun", with(gone, started), none, dedupe.Won, with(gone, taken(4))},

		{"late packet", with(record(dedupe.Released), own), none, dedupe.Stale, with(record(dedupe.Released), own)},
		{"released", record(dedupe.Released), none, dedupe.Won, with(record(dedupe.Released), taken(4))},
		{"released: the fingerprint stays", with(record(dedupe.Released), printed), none, dedupe.Won, with(record(dedupe.Released), printed, taken(4))},

		{"released: nothing has run, so another payload may", with(record(dedupe.Released), printed, untouched), printB, dedupe.Won, with(record(dedupe.Released), untouched, taken(1), func(r *dedupe.Record) { r.Fingerprint = []byte("B") })},
		{"released: nothing has run, and its payload is forgotten", with(record(dedupe.Released), printed, untouched), none, dedupe.Won, with(record(dedupe.Released), untouched, taken(1))},
		{"released: a reopened job, given back unstarted, has steps", with(record(dedupe.Released), printed, untouched, stepped), printB, dedupe.Mismatch, with(record(dedupe.Released), printed, untouched, stepped)},
		{"released: cut off in a run that does not count", with(record(dedupe.Released), printed, untouched, failedOnce), printB, dedupe.Mismatch, with(record(dedupe.Released), printed, untouched, failedOnce)},

		{"reopened: failed", with(record(dedupe.Failed), printed), reopens, dedupe.Won, with(record(dedupe.Failed), reopened, taken(1))},
		{"reopened: parked", record(dedupe.Parked), reopens, dedupe.Won, with(record(dedupe.Parked), reopened, taken(1))},
		{
			"reopened: the fingerprint is replaced", with(record(dedupe.Failed), printed), func(q *request) { reopens(q); printB(q) }, dedupe.Won,
			with(record(dedupe.Failed), reopened, taken(1), func(r *dedupe.Record) { r.Fingerprint = []byte("B") }),
		},

		{"done", record(dedupe.Done), none, dedupe.AlreadyDone, record(dedupe.Done)},
		{"done: its own", with(record(dedupe.Done), own), none, dedupe.AlreadyDone, with(record(dedupe.Done), own)},
		{"done: Reopen opens nothing", with(record(dedupe.Done), printed), reopens, dedupe.AlreadyDone, with(record(dedupe.Done), printed)},
		{"done: Reopen does not hide another payload", with(record(dedupe.Done), printed), func(q *request) { reopens(q); printB(q) }, dedupe.Mismatch, with(record(dedupe.Done), printed)},
		{"released: Reopen does not hide another payload", with(record(dedupe.Released), printed), func(q *request) { reopens(q); printB(q) }, dedupe.Mismatch, with(record(dedupe.Released), printed)},
		{"parked: another fence does not hide another payload", with(record(dedupe.Parked), printed), func(q *request) { reopensOther(q); printB(q) }, dedupe.Mismatch, with(record(dedupe.Parked), printed)},
		{"failed", record(dedupe.Failed), none, dedupe.AlreadyFailed, record(dedupe.Failed)},
		{"failed: its own", with(record(dedupe.Failed), own), none, dedupe.AlreadyFailed, with(record(dedupe.Failed), own)},
		{"failed: another fence", record(dedupe.Failed), reopensOther, dedupe.AlreadyFailed, record(dedupe.Failed)},
		{"failed: another fence and payload", with(record(dedupe.Failed), printed), func(q *request) { reopensOther(q); printB(q) }, dedupe.Mismatch, with(record(dedupe.Failed), printed)},
		{"parked", record(dedupe.Parked), none, dedupe.IsParked, record(dedupe.Parked)},
		{"parked: another fence", record(dedupe.Parked), reopensOther, dedupe.IsParked, record(dedupe.Parked)},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := request{Key: jobKey, Token: mine, TTL: lease, Owner: "w-2", MessageID: "m-2"}
			c.request(&q)
			r := same(c.before)
			got, changed := machine.ApplyClaim(&r, &q, now, func() uint64 { return fenced + 1 })
			if got.Outcome != c.outcome || got.Err != nil {
				t.Fatalf("the answer is %v, %v; want %v", got.Outcome, got.Err, c.outcome)
			}
			wantRecord(t, &r, &c.after)
			if want := !reflect.DeepEqual(c.before, c.after); changed != want {
				t.Errorf("changed is %v, want %v", changed, want)
			}
			checkAnswer(t, &got, &c.after)
		})
	}
}

// checkAnswer compares what an answer tells with the record after it.
func checkAnswer(t *testing.T, got *dedupe.Claim, after *dedupe.Record) {
	t.Helper()
	want := dedupe.Claim{Outcome: got.Outcome}
	switch got.Outcome {
	case dedupe.Won:
		want.Lease = dedupe.Lease{Key: after.Key, Token: mine, Fence: after.Fence, Attempt: after.Attempt}
		want.Fresh = after.Created.Equal(now)
		want.Created, want.FirstErr, want.State, want.StateNo = after.Created, after.FirstErr, after.State, after.StateNo
		want.ErrClass = after.ErrClass
		if n := len(after.Past); n > 0 {
			last := after.Past[n-1]
			want.LastEnd, want.ErrClass = last.Ended, cmp.Or(after.ErrClass, last.Class)
			if last.End == dedupe.Claimed {
				want.From, want.DeadFor = last.Owner, after.ClaimedAt.Sub(last.Ended)
			}
		}
		want.ErrClass, want.From, want.DeadFor = got.ErrClass, got.From, got.DeadFor // see past_test.go
	case dedupe.InProgress:
		want.Left, want.Age = after.LeaseUntil.Sub(now), now.Sub(after.ClaimedAt)
		want.Term = after.LeaseUntil.Sub(after.Updated)
	case dedupe.AlreadyDone, dedupe.AlreadyFailed, dedupe.IsParked, dedupe.Mismatch:
		want.Record = after
		want.Fresh = got.Outcome == dedupe.IsParked && after.Finished.Equal(now)
	case dedupe.Stale:
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("the answer is\n%+v, want\n%+v", *got, want)
	}
}

func wantRecord(t *testing.T, got, want *dedupe.Record) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the record is\n%+v, want\n%+v", *got, *want)
	}
}

func TestClaimAnswersCopies(t *testing.T) {
	r := record(dedupe.Done)
	c, _ := machine.ApplyClaim(&r, &dedupe.ClaimRequest{Key: jobKey, Token: mine, TTL: lease}, now, nil)
	c.Record.Result[0], c.Record.State[0] = '!', '!'
	wantRecord(t, &r, new(record(dedupe.Done)))

	r = record(dedupe.Released)
	print := []byte("A")
	q := dedupe.ClaimRequest{Key: jobKey, Token: mine, TTL: lease, Fingerprint: print}
	c, _ = machine.ApplyClaim(&r, &q, now, func() uint64 { return fenced + 1 })
	c.State[0], print[0] = '!', '!'
	if string(r.State) != "step" || string(r.Fingerprint) != "A" {
		t.Errorf("the record shares state %q or fingerprint %q", r.State, r.Fingerprint)
	}
}

// The answer to a claim that was lost is given again, also after what the owner did since.
func TestRepeatedClaimIsAsFresh(t *testing.T) {
	q := dedupe.ClaimRequest{Key: jobKey, Token: mine, TTL: lease}
	next := func() uint64 { return fenced + 1 }
	r := dedupe.Record{}
	for i := range 3 {
		c, _ := machine.ApplyClaim(&r, &q, now.Add(time.Duration(i)*time.Hour), next)
		if c.Outcome != dedupe.Won || !c.Fresh || c.Lease.Fence != fenced+1 || c.Lease.Attempt != 1 {
			t.Errorf("claim %d is answered %+v", i, c)
		}
	}
	r = record(dedupe.Released)
	for i := range 3 {
		c, _ := machine.ApplyClaim(&r, &q, now, next)
		if c.Outcome != dedupe.Won || c.Fresh || c.Lease.Attempt != 4 {
			t.Errorf("claim %d after a release is answered %+v", i, c)
		}
	}
	// All at one instant: time does not tell the two claims apart, the attempt does.
	r = fresh
	machine.ApplySettle(&r, &dedupe.Settlement{Key: jobKey, Token: mine, To: dedupe.Released}, now)
	q.Token = theirs
	for i := range 3 {
		if c, _ := machine.ApplyClaim(&r, &q, now, next); c.Outcome != dedupe.Won || c.Fresh {
			t.Errorf("claim %d after a release at once is answered %+v", i, c)
		}
	}
}

// The clock of a store may jump back.
func TestInProgressIsNeverNegative(t *testing.T) {
	r := with(record(dedupe.Claimed), func(r *dedupe.Record) { r.ClaimedAt = now.Add(time.Hour) })
	c, _ := machine.ApplyClaim(&r, &dedupe.ClaimRequest{Key: jobKey, Token: mine, TTL: lease}, now, nil)
	if c.Age != 0 {
		t.Errorf("the age is %v", c.Age)
	}
}

// A record that nobody understands must not be overwritten.
func TestUnknownStatus(t *testing.T) {
	r := dedupe.Record{Key: jobKey, Status: 77, Token: mine}
	was := r
	c, changed := machine.ApplyClaim(&r, &dedupe.ClaimRequest{Key: jobKey, Token: mine, TTL: lease}, now, func() uint64 { return 1 })
	if !errors.Is(c.Err, dedupe.ErrBadRequest) || c.Outcome != 0 || changed {
		t.Errorf("the claim is answered %v, %v", c.Outcome, c.Err)
	}
	if err := machine.ApplyRenew(&r, &dedupe.Renewal{Key: jobKey, Token: mine, TTL: lease}, now); !errors.Is(err, dedupe.ErrLeaseLost) {
		t.Errorf("the renewal is answered %v", err)
	}
	a, changed := machine.ApplySettle(&r, &dedupe.Settlement{Key: jobKey, Token: mine, To: dedupe.Done}, now)
	if !errors.Is(a.Err, dedupe.ErrLeaseLost) || changed {
		t.Errorf("the settlement is answered %v, %v", a.Status, a.Err)
	}
	wantRecord(t, &r, &was)
}
