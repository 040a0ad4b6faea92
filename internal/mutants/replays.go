package main

// This file owns the breaks of docs/replay.md: what a letter permits, what a replay sends and
// removes, plans and ramps.

var replays = []mutant{
	{
		Rule: "replay: 1. It freezes its set first",
		File: "dlq/pass.go", Text: "case !failedAt(l.m).Before(p.start):", With: "case failedAt(l.m).IsZero():",
		Package: "dlq", Test: "TestReplayFreezesItsSet",
		Why: "a replay without a canary goes round in a circle with a job that fails at once",
	},
	{
		Rule: "replay: 2. It is rate limited",
		File: "dlq/replay.go", Text: "if r.next.After(now) {", With: "if r.next.IsZero() {",
		Package: "dlq", Test: "TestReplayRate",
		Why: "a replay floods what has just recovered",
	},
	{
		Rule: "replay: 3. It sends a letter, then removes it",
		File: "dlq/replay.go", Text: "done = append(done, l)\n\t\t\tcase letter.IsUnfit(err) && letter", With: "done = append(done, l)\n\t\t\tcase err != nil && r.o.Edit == nil && len(batch) > 0 && !letter.IsUnfit(err):\n\t\t\t\tdone = append(done, l)\n\t\t\tcase letter.IsUnfit(err) && letter",
		Package: "dlq", Test: "TestReplayFaults",
		Why: "a letter whose send has failed is removed, and its job is lost",
	},
	{
		Rule: "replay: **Copies.**",
		File: "dlq/entry.go", Text: "keyOf(m.Meta), string(m.Body))...)\n}", With: "keyOf(m.Meta))...)\n}",
		Package: "dlq", Test: "TestReplayOfDifferentBodies",
		Why: "two jobs whose Meta.Key is equal count as one, and the second is removed unsent",
	},
	{
		Rule: "replay: **Ends.**",
		File: "dlq/pass.go", Text: `p.stuck = fmt.Errorf("dlq: letters that were dealt with cannot be removed: %w", err)`, With: `_ = fmt.Errorf("dlq: letters that were dealt with cannot be removed: %w", err)`,
		Package: "dlq", Test: "TestReplayEndsWhereNothingCanBeRemoved",
		Why: "a replay goes on sending what it cannot remove, and the next one sends it again",
	},
	{
		Rule: "replay: **Attributes** that were moved",
		File: "dlq/outgoing.go", Text: "\tunfold(&out, l)\n", With: "",
		Package: "dlq", Test: "TestReplayUnfolds",
		Why: "a job that had many attributes runs without them",
	},
	{
		Rule: "replay: **On FIFO queues** the deduplication id",
		File: "dlq/outgoing.go", Text: "keyOf(out.Meta), string(out.Body)}", With: "keyOf(out.Meta)}",
		Package: "dlq", Test: "TestReplayOfTwoBodiesIsTwoMessages",
		Why: "a corrected replay is swallowed within five minutes, and its letter is gone",
	},
	{
		Rule: "replay: | of a failure, with its fence |",
		File: "internal/engine/claim.go", Text: "q.Fingerprint, q.Reopen = r.known.fingerprint, r.known.reopens", With: "q.Fingerprint = r.known.fingerprint",
		Package: "internal/coretest/letters", Test: "TestReplayReopensOnce",
		Why: "no replay runs anything",
	},
	{
		Rule: "replay: | without `Dead` (the broker's own redrive) |",
		File: "dlq/entry.go", Text: `case d == nil || d.Fence == 0 && m.Meta.ID == "":`, With: `case d == nil && m.MetaErr != nil || d != nil && d.Fence == 0 && m.Meta.ID == "":`,
		Package: "dlq", Test: "TestReplayOfForeignLetters",
		Why: "a message that the queue has moved by itself ends the program",
	},
	{
		Rule: "replay: fence 0, where nothing failed",
		File: "dlq/outgoing.go", Text: "case classTooEarly, classDuplicate, classNoKey,", With: "case classTooEarly, classNoKey,",
		Package: "dlq", Test: "TestReplayByClass",
		Why: "the letter of a duplicate can never be replayed",
	},
	{
		Rule: "replay: fence 0, of a worker that was set up wrong",
		File: "dlq/outgoing.go", Text: "classDuplicate, classNoKey, classBadKey,", With: "classDuplicate, classBadKey,",
		Package: "dlq", Test: "TestReplayByClass",
		Why: "what a wrong configuration has put there can never be replayed",
	},
	{
		Rule: "replay: | fence 0, `claim-refused` |",
		File: "dlq/outgoing.go", Text: ", classError, classClaimRefused:", With: ", classError:",
		Package: "dlq", Test: "TestReplayByClass",
		Why: "a message whose record was mended can never be replayed",
	},
	{
		Rule: "replay: fence 0 of any other class",
		File: "dlq/outgoing.go", Text: "\treturn errNoFence\n", With: "\treturn nil\n",
		Package: "dlq", Test: "TestReplayByClass",
		Why: "a replay sends what is refused again at once",
	},
	{
		Rule: "replay: | of a parked job |",
		File: "dedupe/machine/table.go", Text: `At: AtFailed | AtParked, Reopens: Yes,`, With: `At: AtFailed, Reopens: Yes,`,
		Package: "dedupe/memstore", Test: "TestConformance/i3-failed-and-parked-change-by-their-fence",
		Why: "a parked job can never run again",
	},
	{
		Rule: "replay: **Whose failure it is.**",
		File: "internal/engine/contentsum.go", Text: "\taddText(&s, m.Body)\n", With: "",
		Package: "internal/coretest/letters", Test: "TestOwnIsToldByTheContent",
		Why: "another body under the key of a failure gets the permission to run",
	},
	{
		Rule: "replay: **Signed letters.**",
		File: "dlq/sign.go", Text: "signed = hmac.Equal(sum, letterMAC(k, m.Body, m.Attributes, m.Meta)) || signed", With: "signed = len(sum) == len(letterMAC(k, m.Body, m.Attributes, m.Meta)) || signed",
		Package: "internal/coretest/letters", Test: "TestOnlySignedLettersReopen",
		Why: "whoever may send to the queue reopens any failure",
	},
	{
		Rule: "replay: **From a letter to its record.**",
		File: "internal/engine/letter.go", Text: "l.dead.Scope, l.dead.Key = r.Key.Scope, r.Key.Key", With: "l.dead.Scope, l.dead.Key = en.o.Source, r.Key.Key",
		Package: "internal/coretest/letters", Test: "TestLetterNamesItsRecord",
		Why: "an operator looks at another job's record",
	},
	{
		Rule: "replay: **A group** is one kind of failure",
		File: "dlq/fingerprint.go", Text: `text, _, _ = strings.Cut(text, "\n")`, With: `_, text, _ = strings.Cut(text, "\n")`,
		Package: "dlq", Test: "TestFingerprintsStay",
		Why: "a ticket names another group than the one that it was written for",
	},
	{
		Rule: "replay: a letter was added, also of the same group",
		File: "dlq/planned.go", Text: `return w.open && m.ID != ""`, With: `return m.ID != "" && w.plan.Rest != nil || w.plan.Rest == nil && m.ID != "" && w.open`,
		Package: "dlq", Test: "TestPlanOfMoreThanIsHeld",
		Why: "a plan's rest counts while the list is not through",
	},
	{
		Rule: "replay: a job of the plan failed anew",
		File: "dlq/planned.go", Text: "planned && ref.Fence > most {", With: "planned && ref.Fence < most {",
		Package: "dlq", Test: "TestPlanLeavesWhatFailedAnew",
		Why: "a job that failed by another error since is sent with those that somebody has looked at",
	},
	{
		Rule: "replay: a letter was taken by somebody else",
		File: "dlq/pass.go", Text: "p.report.Missing = len(p.planned.left)", With: "p.report.Missing = 0",
		Package: "dlq", Test: "TestPlanLeavesWhatFailedAnew",
		Why: "nobody learns that another operator has replayed a part of the plan",
	},
	{
		Rule: "replay: The plan is JSON with a checksum",
		File: "dlq/planfile.go", Text: "known != nil || f.Sum != sum || got.ID", With: `known != nil || sum == "" || got.ID`,
		Package: "dlq", Test: "TestPlanFileIsRefused",
		Why: "an edited plan sends what nobody has looked at",
	},
	{
		Rule: "replay: all are done | goes on at once",
		File: "dlq/canary.go", Text: "\t\t\tif b.Done >= len(r.batch) {\n\t\t\t\tproven = true\n\t\t\t\tbreak", With: "\t\t\tif b.Done >= len(r.batch) {\n\t\t\t\tproven = true",
		Package: "dlq", Test: "TestRampIsToldThatJobsAreDone",
		Why: "each step of a ramp takes its whole minute",
	},
	{
		Rule: "replay: **A ramp** sends 5 letters here",
		File: "dlq/canary.go", Text: "\t\tnext *= 5\n", With: "\t\tnext *= 50\n",
		Package: "dlq", Test: "TestRamp",
		Why: "the second batch of a ramp is most of an outage",
	},
	{
		Rule: "replay: **A plan** is a frozen set",
		File: "dlq/planned.go", Text: "\tcase !w.fits(l.m):\n\t\tp.tell(l, Unchosen, nil)\n\t\treturn nil\n", With: "",
		Package: "dlq", Test: "TestPlanFreezesTheSet",
		Why: "letters that came after the look are sent with the plan",
	},
	{
		Rule: "replay: `ReplayOptions.Judge` is asked for these letters",
		File: "dlq/planned.go", Text: "\t\tif l.Decision != Take {\n", With: "\t\tif false {\n",
		Package: "dlq", Test: "TestRestIsJudged",
		Why: "a letter whose job is done since is sent with the rest of a plan",
	},
	{
		Rule: "replay: | the words of `Dead.Class` |",
		File: "dlq/doc.go", Text: `classDuplicate = "duplicate"`, With: `classDuplicate = "duplicates"`,
		Package: "dlq", Test: "TestReplayByClass",
		Why: "the letters of duplicates that lie in queues can never be replayed",
	},
	{
		Rule: "replay: | what the signature covers |",
		File: "dlq/sign.go", Text: `form := []string{"onceq letter 1"}`, With: `form := []string{"onceq letter 3"}`,
		Package: "dlq", Test: "TestSignatureStays",
		Why: "signed letters that lie in queues reopen nothing after an upgrade",
	},
	{
		Rule: "replay: the deduplication id | `internal/letter`",
		File: "internal/letter/letter.go", Text: `dedupID(k, d.Fence, "letter", m.ID, f)`, With: `dedupID(k, 0, "letter", m.ID, f)`,
		Package: "internal/letter", Test: "TestDedupID",
		Why: "the letter of a second failure is swallowed within five minutes, and the job is lost",
	},
	{
		Rule: "replay: | the steps in which a letter shrinks |",
		File: "internal/letter/fit.go", Text: "\tif f >= Folded {\n", With: "\tif f > Folded {\n",
		Package: "internal/letter", Test: "TestLetter",
		Why: "a letter with many attributes is refused for ever",
	},
	{
		Rule: "replay: the metadata of a foreign message's letter",
		File: "internal/letter/letter.go", Text: "\tif k.Key != \"\" {\n\t\tmeta.ID = m.ID\n\t}\n", With: "\tmeta.ID = m.ID\n",
		Package: "internal/letter", Test: "TestForeignWithoutAKey",
		Why: "a replay takes the broker's id for a key, and a redrive makes another job of it",
	},
	{
		Rule: "replay: the sum of the content. The record",
		File: "internal/engine/contentsum.go", Text: "\t\ts.number(0) // in the place", With: "\t\t_ = 0 // in the place",
		Package: "internal/engine", Test: "TestContentSumStays",
		Why: "a failure that an older worker has recorded is not known again",
	},
}
