package main

// This file owns the breaks of steps: what a job saves, how it is given back, and how its message
// is sent anew. main.go plays them, one after another; nothing is locked.

var stepped = []mutant{
	{
		File: "steps.go", Text: "case have.Any && j.r.Drains() && !j.r.IsLastTry():", With: "case false:",
		Package: "internal/coretest/jobs", Test: "TestDrainBetweenSteps",
		Why: "a worker that drains begins another step, and is killed in it",
	},
	{
		File: "steps.go", Text: "if j.r.Joined.Load() {", With: "if false {",
		Package: "internal/coretest/jobs", Test: "TestSaveAfterJoin",
		Why: "a save waits for the row that its own caller has locked",
	},
	{
		File: "steps.go", Text: "if j.r == nil || j.r.Fence == 0 {", With: "if j.r == nil {",
		Package: "internal/coretest/jobs", Test: "TestStepWithoutAStore",
		Why: "a step runs although nothing keeps what it did",
	},
	{
		File: "internal/engine/save.go", Text: "for have.unsure != \"\" {", With: "for false {",
		Package: "internal/coretest/jobs", Test: "TestSaveThatItsCallerGivesUp",
		Why: "a handler goes on from a step that nobody has stored",
	},
	{
		File: "internal/engine/save.go", Text: "		r.stopHandler(err)\n", With: "",
		Package: "internal/coretest/jobs", Test: "TestSaveAfterATakeover",
		Why: "a handler that was overtaken goes on",
	},
	{
		File: "internal/engine/save.go", Text: "state, s.no = k.state, k.stateNo", With: "_ = k",
		Package: "internal/coretest/jobs", Test: "TestStepsAndPostponements",
		Why: "each attempt repeats what the ones before have done",
	},
	{
		File: "internal/steps/steps.go", Text: "case v > version:", With: "case false:",
		Package: "internal/coretest/jobs", Test: "TestForeignState",
		Why: "an old worker writes over what a new one has saved",
	},
	{
		File: "ahead.go", Text: "return err == nil && then == now", With: "_, _, _ = now, then, err\n	return true",
		Package: "internal/coretest/jobs", Test: "TestCarriedForItsReceives",
		Why: "a copy under another key is another job: its steps run again",
	},
	{
		File: "internal/ahead/ahead.go", Text: "if q.Receives > 0 && receive+2 > q.Receives {", With: "if false {",
		Package: "internal/coretest/jobs", Test: "TestCarriedBeforeTheLastReceive",
		Why: "a copy is tried at the last receive alone, and a moment's outage then makes a letter of the job",
	},
	{
		File: "ahead.go", Text: "able && q.Refuses(now.Add(step), m.Published, now, m.Attempt) == \"\"", With: "able",
		Package: "internal/coretest/jobs", Test: "TestWaitsThatNothingCarries/refused",
		Why: "the queue deletes a job whose copies it has refused",
	},
	{
		File: "ahead.go", Text: "	if able {\n", With: "	if false {\n",
		Package: "internal/coretest/jobs", Test: "TestOldMessageIsCarried",
		Why: "a job becomes a letter at its message's last receive, although it could be sent anew",
	},
	{
		File: "ahead.go", Text: "case last && !c.triesAgain(r):", With: "case last:",
		Package: "internal/coretest/jobs", Test: "TestCarriedUnderFaults/the_copy_is_refused_for_a_while",
		Why: "a moment's trouble makes a letter of a job",
	},
	{
		File: "ahead.go", Text: "	if !c.isSame(r) {\n", With: "	if false {\n",
		Package: "internal/coretest/jobs", Test: "TestCarriedForItsReceives/by_the_broker's_id",
		Why: "at the last receive a job is sent anew under another key",
	},
	{
		Rule: "contracts: A message is acked after its job was seen done, after its letter is stored",
		File: "internal/engine/work.go", Text: "	case stored:\n", With: "	case true:\n",
		Package: "internal/coretest/jobs", Test: "TestCarriedUnderFaults/the_copy_is_refused/postponed",
		Why: "a job is recorded as postponed whose message comes no more",
	},
	{
		Rule: "protocol: Where a job has to wait, and its message comes for the last time",
		File: "internal/engine/work.go", Text: "	if postponed && r.CarryOr() != nil {\n", With: "	if false {\n",
		Package: "internal/coretest/jobs", Test: "TestCarriedUnderFaults/the_copy_is_refused/postponed",
		Why: "a job is recorded as postponed before its copy is stored, and then no message brings it",
	},
	{
		File: "ahead.go", Text: "	if r.IsCarried() {\n", With: "	if false {\n",
		Package: "internal/coretest/jobs", Test: "TestCarriedUnderFaults/well",
		Why: "the queue dead-letters a message whose copy is stored",
	},
	{
		File: "ahead.go", Text: "return c != nil && m.Meta != nil && !(c.in.ordered && m.Group != \"\")", With: "return c != nil && m.Meta != nil",
		Package: "internal/coretest/jobs", Test: "TestWaitsThatNothingCarries/ordered_group",
		Why: "a message of an ordered group loses its place",
	},
	{
		File: "hosts.go", Text: "return h.tooLong(r, h.crowded(r, err))", With: "return h.crowded(r, err)",
		Package: "internal/coretest/jobs", Test: "TestWaitsThatNothingCarries/no_Carry",
		Why: "the queue deletes a job that sleeps for longer than it keeps messages",
	},
	{
		File: "dedupe/machine/table.go", Text: " && len(r.State) == 0", With: "",
		Package: "dedupe/machine", Test: "TestApplyClaim",
		Why: "what a replay has saved goes to another payload",
	},
	{
		File: "internal/engine/save.go", Text: "	if r.at() >= settling {\n", With: "	if false {\n",
		Package: "internal/coretest/jobs", Test: "TestSaveAfterTheReturn",
		Why: "a save says that it has stored what it has not",
	},
	{
		File: "internal/engine/save.go", Text: " && !errors.Is(r.ctx.EndedBy(), verdict.ErrDraining)", With: "",
		Package: "internal/coretest/jobs", Test: "TestLastAttemptInADrain/cut_off",
		Why: "a job undoes what its next run builds on",
	},
	{
		File: "steps.go", Text: "	if !j.r.BeginStep(name) {", With: "	if !j.r.BeginStep(name) && name == \"\" {",
		Package: "internal/coretest/jobs", Test: "TestStepMisuse/a_name_within_itself",
		Why: "a step within one of its name is kept, and the outer one's value is kept over it",
	},
	{
		File: "internal/engine/save.go", Text: "		if r.Joined.Load() {", With: "		if r.Joined.Load() && name == \"\" {",
		Package: "internal/coretest/jobs", Test: "TestSavedAfterJoin",
		Why: "a look-up waits for its own transaction's lock until the lease ends",
	},
	{
		File: "internal/verdict/verdict.go", Text: "v.Uncounted, v.Class = true, Postponed", With: "v.Class = Postponed",
		Package: "internal/coretest/jobs", Test: "TestStepsAndPostponements",
		Why: "a limit that lasts uses up the attempts",
	},
	{
		File: "broker/codec.go", Text: "	dst = appendTimeMember(dst, `,\"pp\":`, m.Postponed)\n", With: "",
		Package: "adapters/awssqs", Test: "TestLongWaitsAreCarried",
		Why: "the copy of a job that sleeps wakes it at each receive",
	},
	{
		Rule: "contracts: A message is acked after its job was seen done, after its letter is stored",
		File: "ahead.go", Text: "m.Meta.Key, m.ID)", With: "m.Meta.Key)",
		Package: "internal/coretest/jobs", Test: "TestCarriedForItsReceives",
		Why: "a queue leaves out the second copy of a job, and its message is acked: the job is lost",
	},
	{
		File: "ahead.go", Text: "then == now", With: "then == now && o.Body == nil",
		Package: "internal/coretest/jobs", Test: "TestCarriedUnderAKeyOfTheUsers",
		Why: "a job that sleeps for longer than its queue keeps it becomes a letter, because a user's Key is set",
	},
	{
		File: "internal/engine/save.go", Text: "case answered && (", With: "case (",
		Package: "internal/coretest/jobs", Test: "TestSaveBesideOneThatIsTooLarge",
		Why: "a step whose answer did not come is forgotten, because another goroutine's was too large",
	},
	{
		File: "ahead.go", Text: "case <-end.C:", With: "case <-make(chan time.Time):",
		Package: "internal/coretest/jobs", Test: "TestCarryThatHangs",
		Why: "a Sender that ignores its context takes the worker's room from all other jobs",
	},
	{
		File: "ahead.go", Text: "		c.tellRefused(r, e)\n", With: "",
		Package: "internal/coretest/jobs", Test: "TestCarryThatHangs",
		Why: "a role that may not send is noticed when the first letters come, days later",
	},
	{
		File: "internal/engine/save.go", Text: "case k.from != \"\":", With: "case false:",
		Package: "internal/coretest/jobs", Test: "TestLast",
		Why: "after a crash the handler is told of the postponement before it",
	},
	{
		File: "internal/engine/save.go", Text: "for have.unsure != \"\" {", With: "for first := true; first || have.unsure != \"\"; first = false {",
		Package: "internal/coretest/jobs", Test: "TestReadBesideASave",
		Why: "a read waits for the store while another goroutine saves",
	},
	{
		File: "hosts.go", Text: "class == ClassPostponed || ", With: "class == \"-\" || ",
		Package: "dedupe/sqlitestore", Test: "TestBusyHandler",
		Why: "a handler that locks itself out is given back for ever, and never becomes a letter",
	},
	{
		File: "hosts.go", Text: "verdict.IsMarked(err) || ", With: "",
		Package: "dedupe/sqlitestore", Test: "TestBusyHandler",
		Why: "an error that the handler calls permanent is tried again",
	},
	{
		File: "hosts.go", Text: "h.tooLong(r, h.crowded(r, err))", With: "h.tooLong(r, err)",
		Package: "dedupe/sqlitestore", Test: "TestBusyHandler",
		Why: "a busy file costs jobs their attempts",
	},
	{
		File: "ops/key.go", Text: "		l.addSaved(r)\n", With: "",
		Package: "cmd/onceq/internal/cli", Test: "TestKeyShowSaved",
		Why: "nobody sees which of its steps a job has behind it",
	},
	{
		File: "adapters/otelonceq/observer.go", Text: " && r.PrevClass == \"\"", With: "",
		Package: "adapters/otelonceq", Test: "TestPostponedAndCarried",
		Why: "a job that waits for its own reasons looks as if it waited for a worker",
	},
	{
		File: "adapters/otelonceq/sender.go", Text: "	if carried {", With: "	if false {",
		Package: "adapters/otelonceq", Test: "TestPostponedAndCarried",
		Why: "a job that sleeps for long is counted as many",
	},
	{
		File: "internal/engine/letter.go", Text: "first, saved = k.record.FirstErr, lastIn(k.record.State)", With: "first = k.record.FirstErr",
		Package: "internal/tests/matrix", Test: "TestMatrix/^memory$/^park$/^steps$/^renew-2$/^crash-after$",
		Why: "the letter of a worker that was killed does not say what it had done",
	},
	{
		File: "internal/engine/run.go", Text: "return lastIn(r.known.state)", With: "return \"\"",
		Package: "internal/coretest/jobs", Test: "TestLetterNamesTheStepOfAnEarlierAttempt",
		Why: "the letter of a job that has charged says that nothing was saved",
	},
	{
		File: "internal/engine/save.go", Text: "have.form, have.unsure = form, name\n", With: "have.form, have.last, have.unsure = form, name, name\n",
		Package: "internal/tests/matrix", Test: "TestMatrix/^memory$/^park$/^steps$",
		Why: "the letter names a step that is not stored",
	},
	{
		File: "examples/saga/main.go", Text: `if err := onceq.Save(ctx, j, "given up", why); err != nil {`, With: "if err := error(nil); err != nil {",
		Package: "examples/saga", Test: "TestCrashInEachGapOfEachTrouble",
		Why: "after a crash amid the undoing the trip goes on, and has a car beside a flight that is cancelled",
	},
	{
		File: "examples/agent/agent.go", Text: "return onceq.Step(ctx, j, stage, ask)", With: "return ask(ctx)",
		Package: "examples/agent", Test: "TestCrashInEachGap",
		Why: "what was answered and saved is asked for again",
	},
	{
		File: "internal/steps/steps.go", Text: "n := &Form{members: f.members, ", With: "n := &Form{",
		Package: "internal/steps", Test: "TestUnknownMembersAreKept",
		Why: "an older worker drops what a newer one has saved beside the steps",
	},
	{
		File: "internal/engine/save.go", Text: "	have.no++\n", With: "	have.no = 1\n",
		Package: "internal/tests/matrix", Test: "TestMatrix/^memory$/^effect-key$/^steps$",
		Why: "the store takes the second save for a late one, and leaves it out: its step runs again",
	},
	{
		File: "internal/steps/steps.go", Text: "case err != nil, v < 1:", With: "case err != nil:",
		Package: "internal/steps", Test: "TestUnreadable",
		Why: "what another library has written is taken for steps, and written over",
	},
	{
		File: "hosts.go", Text: `if r.Verdict.Class != "" && r.Outcome != engine.Postponed {`, With: `if r.Verdict.Class != "" {`,
		Package: "internal/coretest/operating", Test: "TestPostponedLine",
		Why: "a job that sleeps, or meets a 429, warns at each hop",
	},
	{
		File: "internal/engine/save.go", Text: "		ask.why.Store(new(verdict.Text(err)))\n", With: "",
		Package: "internal/coretest/jobs", Test: "TestSaveThatItsCallerGivesUp",
		Why: "a save that was given up does not say that the handler's own transaction was in its way",
	},
}
