package main

// This file owns the breaks of the engine, and of what holds letters. Each entry is data: main.go
// plays it, and a test sees that it still fits its file. Nothing is locked.

var engine = []mutant{
	{
		File: "dedupe/machine/table.go", Text: "Unparks: No, ToReleased: Yes, Change: Note", With: "Unparks: No, ToReleased: Yes, ToDone: Yes, Change: Note",
		Package: "internal/model", Test: "TestEverythingHolds/external_effects,_park",
		Why: "a parked job that its own claim releases late is told as waiting, and nothing brings it",
	},
	{
		File: "dedupe/pgstore/settle.go", Text: " AND g.status {<>} 'released'`", With: "`",
		Package: "dedupe/pgstore", Test: "TestConformance/pgx/late-release-stays-parked", Server: true,
		Why: "the same on PostgreSQL (needs a server)",
	},
	{
		File: "dedupe/dynamostore/settle.go", Text: "case t.To == dedupe.Released && !t.Unparks:", With: "case false:",
		Package: "dedupe/dynamostore", Test: "TestConformance/late-release-stays-parked", Server: true,
		Why: "the same on DynamoDB (needs a server)",
	},
	{
		File: "internal/engine/settle.go", Text: "a.Status == dedupe.Parked && v.To == dedupe.Released", With: "false && v.To == dedupe.Released",
		Package: "internal/coretest/claims", Test: "TestParkLateRelease",
		Why: "the letter that is put once more says that a job that was interrupted has failed by an error",
	},
	{
		Rule: "protocol: *What is kept can always run again.*",
		File: "internal/engine/claim.go", Text: "case en.HoldsBack(r):", With: "case false:",
		Package: "internal/coretest/letters", Test: "TestHeldHeadRunsOnceMended",
		Why: "the head of a group is dead for ever once its attempts are used up",
	},
	{
		File: "internal/engine/claim.go", Text: "if en.rests(r) {", With: "if en.rests(r) || true {",
		Package: "internal/coretest/letters", Test: "TestRedrivenJobRuns",
		Why: "a message that the queue moved back runs nothing, whatever was mended",
	},
	{
		Rule: "protocol: An attempt beyond `MaxAttempts` whose predecessor died",
		File: "internal/engine/kept.go", Text: `return r.known != nil && (r.known.from != "" || r.known.deadFor > 0)`, With: "return false",
		Package: "internal/coretest/letters", Test: "TestHeldJobThatKillsItsWorkers",
		Why: "a job under HoldGroup that kills its process kills one each lease",
	},
	{
		File: "internal/engine/kept.go", Text: "Uncounted: true, Kept: true", With: "Kept: true",
		Package: "internal/coretest/letters", Test: "TestHeldJobThatKillsItsWorkers",
		Why: "attempts count although no handler was started",
	},
	{
		File: "internal/engine/kept.go", Text: "return (r.Attempt-r.Opts.Most)%2 == 1", With: "return true",
		Package: "internal/coretest/letters", Test: "TestHeldWithoutAStore",
		Why: "without a store the head of a group never runs again",
	},
	{
		Rule: "protocol: When half of the queue's retention is over, and it is known",
		File: "internal/engine/kept.go", Text: "left < keeps/2", With: "left < 0",
		Package: "internal/coretest/letters", Test: "TestHeldBeyondHalfOfTheRetention",
		Why: "a queue drops the head of a group, and nobody was told in time",
	},
	{
		Rule: "protocol: A parked job is kept, too",
		File: "internal/engine/settle.go", Text: "t.Unparks = en.HoldsBack(r)", With: "t.Unparks = false",
		Package: "internal/coretest/letters", Test: "TestHeldLateRelease",
		Why: "a parked job whose message stays in its queue never runs, although its worker said that nothing had happened",
	},
	{
		File: "internal/engine/settle.go", Text: " || r.f.Terms.Letters == ToCaller", With: "",
		Package: "internal/coretest/doing", Test: "TestDoLateRelease",
		Why: "a caller of Do that comes again finds its key parked, although f had said that nothing had happened",
	},
	{
		File: "internal/engine/settle.go", Text: "return r.Joined.Load() && errors.Is(err, dedupe.ErrBusy)", With: "return true",
		Package: "internal/coretest/claims", Test: "TestEndOfALockedRecordIsRepeated",
		Why: "while a store is locked entry by entry for longer than SettleTimeout, effects repeat",
	},
	{
		Rule: "protocol: *Groups* run in order",
		File: "internal/engine/claim.go", Text: "if lost && r.grouped() {", With: "if false {",
		Package: "internal/coretest/life", Test: "TestLostDeliveryWhileClaiming",
		Why: "a group's job starts although its delivery was lost while it was claimed",
	},
	{
		File: "internal/engine/hold.go", Text: "case err == nil && !late:", With: "case err == nil:",
		Package: "internal/engine", Test: "TestAnswerToAnExtension",
		Why: "SQS answers OK to an extension that comes too late, and does nothing: without a store two handlers run at once",
	},
	{
		File: "internal/engine/hold.go", Text: "case r.receipt != h.batch[i].Receipt:", With: "case false:",
		Package: "internal/engine", Test: "TestAnswerToAnExtension",
		Why: "an old receipt that has expired drops the delivery that was handed over",
	},
	{
		File: "internal/engine/hold.go", Text: "case r.lapsed(now):", With: "case false:",
		Package: "internal/engine", Test: "TestLapsedDeliveryIsNotExtended",
		Why: "the extension of a lapsed delivery may hide the message from whoever has it now",
	},
	{
		File: "internal/engine/claimapart.go", Text: "case errors.Is(err, context.DeadlineExceeded):", With: "case false:",
		Package: "internal/engine", Test: "TestHangingStoreIsNoErrorOfTheEntry",
		Why: "messages are given back one by one while the store hangs, and count receives",
	},
	{
		Rule: "replay: **What it holds.**",
		File: "dlq/hold.go", Text: "	leases.Release(&h.Held) // the answer", With: "	// the answer",
		Package: "dlq", Test: "TestLetterThatCameAgainIsHeld",
		Why: "a letter that came again is not held, and is met twice",
	},
	{
		File: "dlq/hold.go", Text: "errs[i] == nil && req[n].For < whole {", With: "false {",
		Package: "dlq", Test: "TestLastExtensionOfALetter",
		Why: "letters are beaten on although the broker holds them no longer",
	},
	{
		File: "internal/instant/instant.go", Text: "return m.marked() == v", With: "return m != nil",
		Package: "internal/coretest/doing", Test: "TestDoWithAStoreThatHangsForEver",
		Why: "a call of Do does not return when its context ends, where a store that hangs embeds a memory store",
	},
	{
		File: "internal/engine/alone.go", Text: "return en.instant && r.f.o.Slots == 1", With: "return en.instant",
		Package: "internal/coretest/life", Test: "TestOneHandlerOverAnInstantStore/two",
		Why: "many handlers over a memory store have batches of one",
	},
	{
		File: "internal/engine/slots.go", Text: "f.sendFew(out, r.Ran)", With: "f.sendFew(out, true)",
		Package: "internal/coretest/life", Test: "TestOneHandlerOverAnInstantStore/one",
		Why: "each duplicate of a backlog is found from within the one before it, and the stack grows without a bound",
	},
	{
		File: "internal/engine/settle.go", Text: "		en.settleBatch(one[:])\n", With: "		if en.settleBatch(one[:]); r.tries > 0 {\n			en.finish(r, Ack, 0, Done)\n		}\n",
		Package: "internal/coretest/claims", Test: "TestSettleIsRepeated",
		Why: "an end that one handler over a memory store has not recorded is acked",
	},
	{
		File: "internal/engine/claim.go", Text: "en.isAlone(r) {\n		en.claimBatch(rs)", With: "en.isAlone(r) {\n		draw(rs)\n		if as, sent, err := en.ask(rs); err != nil {\n			r.advance(claimed)\n			launch(rs)\n		} else {\n			en.landClaims(rs, as, sent)\n		}",
		Package: "internal/coretest/outages", Test: "TestOutageBurnsNoReceives",
		Why: "one handler over a memory store runs a job that it has not claimed",
	},
	{
		File: "internal/engine/settle.go", Text: "if !r.f.Terms.Waits && r.f.isFull() {", With: "if false {",
		Package: "internal/coretest/claims", Test: "TestSettlementThatIsRefusedToOneHandler",
		Why: "one record that the store does not take stops a worker of one handler for ever",
	},
	{
		File: "internal/engine/slots.go", Text: "go f.send(slices.Clone(out))", With: "f.send(slices.Clone(out))",
		Package: "internal/coretest/life", Test: "TestBacklogIsNotGivenBackFromWithinItself",
		Why: "each message of a paused type is given back from within the one before it: 16 MB of stack behind 20,000",
	},
	{
		File: "do.go", Text: "if ctx.Err() != nil { // while the claim was won", With: "if false { // while the claim was won",
		Package: ".", Test: "TestDoClaimWonAsTheContextEnds",
		Why: "f starts although its caller's context has ended",
	},
	{
		File: "internal/engine/claim.go", Text: "(r.Message.Attempt == 0 || r.Message.Attempt >= refusedReceives)", With: "true",
		Package: "internal/coretest/outages", Test: "TestClaimRefusedAfterALongWait",
		Why: "what has waited for a day becomes a dead letter as soon as the store refuses its claim for a moment",
	},
	{
		File: "internal/engine/claim.go", Text: "from = latest(latest(from, r.Message.Meta.NotBefore), r.Message.Meta.Postponed)", With: "from = latest(from, r.Message.Meta.NotBefore)",
		Package: "internal/coretest/outages", Test: "TestClaimRefusedAfterALongWait",
		Why: "the same, of a job that its handler had postponed",
	},
	{
		File: "internal/engine/settle.go", Text: "since = time.Since(r.f.epoch) - lasts // before", With: "_ = lasts // before",
		Package: "internal/coretest/outages", Test: "TestRefusalAfterAnOutageOfSettlements",
		Why: "an end that waited for an outage is given up at the first error of its own, and its job runs again",
	},
	{
		File: "internal/engine/settle.go", Text: "if v.Class != verdict.Postponed {\n", With: "if true {\n",
		Package: "internal/coretest/jobs", Test: "TestCarriedUnderAKeyOfTheUsers",
		Why: "a job that sleeps for longer than Retention loses its steps, and becomes a letter instead of going on",
	},
}
