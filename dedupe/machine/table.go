package machine

import (
	"bytes"
	"slices"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// This file owns the tables of the claim, the renewal and the settlement, and what they are made
// of. The tables are data that never changes, so many goroutines may read them at once. Callers get
// copies, so that nobody changes a rule for everybody.

// At is what a call finds under its key. As a pattern in a table it is a set.
type At uint8

// What a call may find.
const (
	AtNone     At = 1 << iota // no record, or, for a claim, an expired one
	AtReleased                // given back
	AtLive                    // claimed, and the lease lives
	AtDead                    // claimed, and the lease has run out
	AtDone
	AtFailed
	AtParked

	AtClaimed = AtLive | AtDead
	AtAny     = AtNone | AtReleased | AtClaimed | AtDone | AtFailed | AtParked
)

// Cond is a condition of a row.
type Cond uint8

// The conditions: Either is met by both answers.
const (
	Either Cond = iota
	Yes
	No
)

func (c Cond) meets(v bool) bool { return c == Either || (c == Yes) == v }

// Situation is all that the answer to a call depends on.
type Situation struct {
	At          At   // one value, not a set
	Own         bool // the call's token is the record's
	Differs     bool // both fingerprints are given and differ, and the record's job may have run
	Interrupted bool // the claim had started, and the record or the request says Park
	Reopens     bool // the request's Reopen is the record's fence
	Unparks     bool // the settlement may release a parked record
}

// Change is what a row does to the record.
type Change uint8

// The changes.
const (
	Keep       Change = iota // nothing
	Prolong                  // the same claim, its lease prolonged
	TakeFresh                // a new record: higher fence, attempt 1
	TakeNext                 // a new claim of the same job: higher fence, attempt + 1
	TakeReopen               // a failed or parked job: higher fence, attempt 1, new fingerprint
	ParkIt                   // claimed becomes parked
	Write                    // the settlement's status and outcome
	Note                     // the settlement's error, beside the status that stays
)

// ClaimRow is one rule of the claim. The first row that matches decides.
type ClaimRow struct {
	Name                               string
	At                                 At
	Own, Differs, Interrupted, Reopens Cond
	Outcome                            dedupe.Outcome
	Change                             Change
}

// Matches reports whether the row's pattern covers s.
func (r *ClaimRow) Matches(s Situation) bool {
	return r.At&s.At != 0 && r.Own.meets(s.Own) && r.Differs.meets(s.Differs) &&
		r.Interrupted.meets(s.Interrupted) && r.Reopens.meets(s.Reopens)
}

// ClaimTable is the claim, whole. Its order matters: the first row that matches decides. The caller
// gets a copy.
func ClaimTable() []ClaimRow { return slices.Clone(claimTable) }

var claimTable = []ClaimRow{
	{Name: "no record", At: AtNone, Outcome: dedupe.Won, Change: TakeFresh},
	// Only what is really reopened may bring another payload, because anybody can write a Reopen
	// that fits no failure.
	{Name: "reopened", At: AtFailed | AtParked, Reopens: Yes, Outcome: dedupe.Won, Change: TakeReopen},
	{Name: "another payload", At: AtAny, Differs: Yes, Outcome: dedupe.Mismatch},
	{Name: "own claim again", At: AtClaimed, Own: Yes, Outcome: dedupe.Won, Change: Prolong},
	{Name: "live claim of another", At: AtLive, Outcome: dedupe.InProgress},
	{Name: "interrupted", At: AtDead, Interrupted: Yes, Outcome: dedupe.IsParked, Change: ParkIt},
	{Name: "dead claim of another", At: AtDead, Outcome: dedupe.Won, Change: TakeNext},
	{Name: "late packet", At: AtReleased, Own: Yes, Outcome: dedupe.Stale},
	{Name: "released", At: AtReleased, Outcome: dedupe.Won, Change: TakeNext},
	{Name: "done", At: AtDone, Outcome: dedupe.AlreadyDone},
	{Name: "failed", At: AtFailed, Outcome: dedupe.AlreadyFailed},
	{Name: "parked", At: AtParked, Outcome: dedupe.IsParked},
}

// RenewRow is one rule of the renewal.
type RenewRow struct {
	Name   string
	At     At
	Own    Cond
	Err    error
	Change Change
}

// Matches reports whether the row's pattern covers s.
func (r *RenewRow) Matches(s Situation) bool { return r.At&s.At != 0 && r.Own.meets(s.Own) }

// RenewTable is the renewal, whole: a dead lease that nobody took is renewed. The caller gets a
// copy.
func RenewTable() []RenewRow { return slices.Clone(renewTable) }

var renewTable = []RenewRow{
	{Name: "own claim", At: AtClaimed, Own: Yes, Change: Prolong},
	{Name: "not ours any more", At: AtAny, Err: dedupe.ErrLeaseLost},
}

// SettleRow is one rule of the settlement. ToDone, ToParked, ToReleased and Joined are the
// settlement's.
type SettleRow struct {
	Name        string
	At          At
	Own         Cond
	Unparks     Cond
	ToDone      Cond // To is Done
	ToParked    Cond // To is Parked
	ToReleased  Cond // To is Released
	Joined      Cond
	Err         error
	Change      Change
	AnswersHere bool // the answer is the record's present status, not To
}

// Matches reports whether the row's pattern covers s and a settlement.
func (r *SettleRow) Matches(s Situation, to dedupe.Status, joined bool) bool {
	return r.At&s.At != 0 && r.Own.meets(s.Own) && r.Unparks.meets(s.Unparks) && r.ToDone.meets(to == dedupe.Done) &&
		r.ToParked.meets(to == dedupe.Parked) && r.ToReleased.meets(to == dedupe.Released) && r.Joined.meets(joined)
}

// SettleTable is the settlement, whole. Its order matters: the first row that matches decides. The
// caller gets a copy.
func SettleTable() []SettleRow { return slices.Clone(settleTable) }

var settleTable = []SettleRow{
	{Name: "stale token", At: AtAny, Own: No, Err: dedupe.ErrLeaseLost},
	{Name: "no record", At: AtNone, Err: dedupe.ErrLeaseLost},
	{Name: "joined, not committed", At: AtClaimed | AtParked, Own: Yes, ToDone: Yes, Joined: Yes, AnswersHere: true},
	{Name: "own claim", At: AtClaimed, Own: Yes, Change: Write},
	{Name: "parked again", At: AtParked, Own: Yes, ToParked: Yes, AnswersHere: true},
	// The message of a parked job was acked when its letter was stored. Released, the job would be
	// told as waiting for a message that never comes. Unparks says that the message is still there,
	// or that an operator knows what becomes of the letter.
	{Name: "late release of the parked claim", At: AtParked, Own: Yes, Unparks: No, ToReleased: Yes, Change: Note, AnswersHere: true},
	{Name: "late word of the parked claim", At: AtParked, Own: Yes, Change: Write},
	{Name: "settled before", At: AtReleased | AtDone | AtFailed, Own: Yes, AnswersHere: true},
}

// Meet classifies what a claim finds in r (the zero Record: nothing) at now.
func Meet(r *dedupe.Record, q *dedupe.ClaimRequest, now time.Time) Situation {
	if r.Expired(now) {
		return Situation{At: AtNone}
	}
	return Situation{
		At:          at(r, now),
		Own:         r.Token == q.Token,
		Differs:     r.Fingerprint != nil && q.Fingerprint != nil && !bytes.Equal(r.Fingerprint, q.Fingerprint) && !untouched(r),
		Interrupted: r.Started && (r.Policy == dedupe.Park || q.Policy == dedupe.Park),
		Reopens:     q.Reopen != 0 && q.Reopen == r.Fence,
	}
}

// untouched reports whether nothing of the job has run: all claims were given back before the
// handler began, and no step is saved. Such a record holds nobody's payload. Otherwise a message
// that came too late to run would keep out the one that is due.
func untouched(r *dedupe.Record) bool {
	return r.Status == dedupe.Released && r.Attempt == 0 && r.ErrClass == "" && len(r.State) == 0
}

// at is what r is, whatever its Expires says: a token outlives its record's retention.
func at(r *dedupe.Record, now time.Time) At {
	switch r.Status {
	case dedupe.Claimed:
		if now.Before(r.LeaseUntil) {
			return AtLive
		}
		return AtDead
	case dedupe.Released:
		return AtReleased
	case dedupe.Done:
		return AtDone
	case dedupe.Failed:
		return AtFailed
	case dedupe.Parked:
		return AtParked
	case 0:
		return AtNone
	}
	// No row matches it: what nobody understands must not pass for nothing.
	return 0
}
