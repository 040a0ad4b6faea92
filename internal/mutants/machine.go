package main

// This file owns the breaks of the state machine's tables, one for each row. Stores run the tables,
// or are held to them by dedupetest, whose broken stores break the same rows.

var machined = []mutant{
	{
		Rule: "claim: no record", File: "dedupe/machine/table.go", Text: `{Name: "no record", At: AtNone, Outcome: dedupe.Won, Change: TakeFresh}`, With: `{Name: "no record", At: AtNone, Outcome: dedupe.Won, Change: TakeNext}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "a record that has expired leaves its attempts and its steps to the job after it",
	},
	{
		Rule: "claim: reopened", File: "dedupe/machine/table.go", Text: "At: AtFailed | AtParked, Reopens: Yes,", With: "At: AtFailed | AtParked | AtDone, Reopens: Yes,",
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "a letter of a failure runs a job again that is done since",
	},
	{
		Rule: "claim: another payload", File: "dedupe/machine/table.go", Text: "At: AtAny, Differs: Yes, Outcome: dedupe.Mismatch", With: "At: AtClaimed, Differs: Yes, Outcome: dedupe.Mismatch",
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "another order under a key that is done is acked, and never carried out",
	},
	{
		Rule: "claim: own claim again", File: "dedupe/machine/table.go", Text: `{Name: "own claim again", At: AtClaimed,`, With: `{Name: "own claim again", At: AtDead,`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "a caller whose answer was lost is kept out by its own claim for a whole lease",
	},
	{
		Rule: "claim: live claim of another", File: "dedupe/machine/table.go", Text: `{Name: "live claim of another", At: AtLive, Outcome: dedupe.InProgress}`, With: `{Name: "live claim of another", At: AtLive, Own: No, Outcome: dedupe.Won, Change: TakeNext}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "two workers run one job at the same time",
	},
	{
		Rule: "claim: interrupted", File: "dedupe/machine/table.go", Text: `{Name: "interrupted", At: AtDead, Interrupted: Yes, Outcome: dedupe.IsParked, Change: ParkIt}`, With: `{Name: "interrupted", At: AtDead, Interrupted: Yes, Outcome: dedupe.IsParked}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "what is told as parked is not written so, and an operator cannot resolve it",
	},
	{
		Rule: "claim: dead claim of another", File: "dedupe/machine/table.go", Text: `{Name: "dead claim of another", At: AtDead, Outcome: dedupe.Won, Change: TakeNext}`, With: `{Name: "dead claim of another", At: AtDead, Outcome: dedupe.InProgress}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "the job of a worker that died is never taken over",
	},
	{
		Rule: "claim: late packet", File: "dedupe/machine/table.go", Text: `{Name: "late packet", At: AtReleased, Own: Yes, Outcome: dedupe.Stale}`, With: `{Name: "late packet", At: AtReleased, Own: Yes, Outcome: dedupe.Won, Change: TakeNext}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "a packet that comes late wins a claim that nobody owns",
	},
	{
		Rule: "claim: released", File: "dedupe/machine/table.go", Text: `{Name: "released", At: AtReleased, Outcome: dedupe.Won, Change: TakeNext}`, With: `{Name: "released", At: AtReleased, Outcome: dedupe.Won, Change: TakeFresh}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "attempts never add up, so a job that always fails is tried for ever",
	},
	{
		Rule: "claim: done", File: "dedupe/machine/table.go", Text: `{Name: "done", At: AtDone, Outcome: dedupe.AlreadyDone}`, With: `{Name: "done", At: AtDone, Outcome: dedupe.Won, Change: TakeNext}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "a duplicate has its effect a second time",
	},
	{
		Rule: "claim: failed", File: "dedupe/machine/table.go", Text: `{Name: "failed", At: AtFailed, Outcome: dedupe.AlreadyFailed}`, With: `{Name: "failed", At: AtFailed, Outcome: dedupe.Won, Change: TakeNext}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "a duplicate runs a job that has failed for good, behind its letter's back",
	},
	{
		Rule: "claim: parked", File: "dedupe/machine/table.go", Text: `{Name: "parked", At: AtParked, Outcome: dedupe.IsParked}`, With: `{Name: "parked", At: AtParked, Outcome: dedupe.Won, Change: TakeNext}`,
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "an effect that may have happened happens again",
	},
	{
		Rule: "renew: own claim", File: "dedupe/machine/table.go", Text: `{Name: "own claim", At: AtClaimed, Own: Yes, Change: Prolong}`, With: `{Name: "own claim", At: AtLive, Own: Yes, Change: Prolong}`,
		Package: "dedupe/machine", Test: "TestApplyRenew",
		Why: "a worker that was slow once loses a claim that nobody has taken",
	},
	{
		Rule: "renew: not ours any more", File: "dedupe/machine/table.go", Text: `{Name: "not ours any more", At: AtAny, Err: dedupe.ErrLeaseLost}`, With: `{Name: "not ours any more", At: AtAny}`,
		Package: "dedupe/machine", Test: "TestApplyRenew",
		Why: "a worker that was overtaken goes on, and its effect comes twice",
	},
	{
		Rule: "settle: stale token", File: "dedupe/machine/table.go", Text: `{Name: "stale token", At: AtAny, Own: No, Err: dedupe.ErrLeaseLost}`, With: `{Name: "stale token", At: AtAny, Own: No, AnswersHere: true}`,
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "a worker that was overtaken is told that its end was written, and acks what its successor does",
	},
	{
		Rule: "settle: no record", File: "dedupe/machine/table.go", Text: `{Name: "no record", At: AtNone, Err: dedupe.ErrLeaseLost}`, With: `{Name: "no record", At: AtNone | AtParked, Err: dedupe.ErrLeaseLost}`,
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "what is there counts as gone: a parked job never hears that its handler is done",
	},
	{
		Rule: "settle: joined, not committed", File: "dedupe/machine/table.go", Text: "ToDone: Yes, Joined: Yes, AnswersHere: true", With: "ToDone: Yes, Joined: Yes, Change: Write",
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "a job is done although its transaction was rolled back",
	},
	{
		Rule: "settle: own claim", File: "dedupe/machine/table.go", Text: `{Name: "own claim", At: AtClaimed, Own: Yes, Change: Write}`, With: `{Name: "own claim", At: AtLive, Own: Yes, Change: Write}`,
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "what a worker did is not recorded, because its lease was over, and is done again",
	},
	{
		Rule: "settle: parked again", File: "dedupe/machine/table.go", Text: `{Name: "parked again", At: AtParked, Own: Yes, ToParked: Yes, AnswersHere: true}`, With: `{Name: "parked again", At: AtParked, Own: Yes, ToParked: Yes, Change: Write}`,
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "each repeat of a settlement moves the time at which a job was parked",
	},
	{
		Rule: "settle: late release of the parked claim", File: "dedupe/machine/table.go", Text: "ToReleased: Yes, Change: Note, AnswersHere: true", With: "ToReleased: Yes, AnswersHere: true",
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "the operator who resolves a parked job is not told that its worker said nothing had happened",
	},
	{
		Rule: "settle: late word of the parked claim", File: "dedupe/machine/table.go", Text: `{Name: "late word of the parked claim", At: AtParked, Own: Yes, Change: Write}`, With: `{Name: "late word of the parked claim", At: AtParked, Own: Yes, AnswersHere: true}`,
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "a parked job stays in doubt although its handler has said that it is done",
	},
	{
		Rule: "settle: settled before", File: "dedupe/machine/table.go", Text: `{Name: "settled before", At: AtReleased | AtDone | AtFailed, Own: Yes, AnswersHere: true}`, With: `{Name: "settled before", At: AtReleased | AtDone | AtFailed, Own: Yes, Change: Write}`,
		Package: "dedupe/machine", Test: "TestApplySettle",
		Why: "a late copy of a settlement writes over done",
	},
}
