package main

var core = []mutant{
	{
		File: "internal/engine/halt.go", Text: "\t\ttellWatchers(watchers) // first, because", With: "\t\t_ = watchers // first, because",
		Package: ".", Test: "TestBatchedThatGathersInADrain",
		Why: "a drain leaves what gathers for a Batched claimed, and under Park it becomes dead letters",
	},
	{
		File: "internal/engine/slots.go", Text: "\ttellWatchers(watchers)", With: "\t_ = watchers",
		Package: ".", Test: "TestBatchedUnderALimit",
		Why: "what gathers for a Batched when an operator sets a limit waits for jobs that cannot come",
	},
	{
		File: "batched.go", Text: "\t\troom += f.SlotsNow()", With: "\t\troom += f.Slots()",
		Package: ".", Test: "TestBatchedUnderALimit",
		Why: "under an operator's limit each batch lingers for jobs that cannot come",
	},
	{
		File: "batched.go", Text: "|| slices.ContainsFunc(b.flows, func(f *flow) bool { return !f.IsOpen() })", With: "",
		Package: ".", Test: "TestBatchedJoinedAfterAStop",
		Why: "a job that joins just after a stop begins a gathering that nobody ends",
	},
	{
		File: "internal/engine/work.go", Text: "if parks && !r.Opts.StartsLater && (", With: "if parks && (",
		Package: ".", Test: "TestBatchedRecordsItsStarts",
		Why: "a worker that dies while jobs gather parks them, although f was never called for them",
	},
	{
		File: "batched.go", Text: "\t\tleft = b.askWhoBegins() // the confirmation", With: "\t\t// the confirmation",
		Package: ".", Test: "TestBatchedWhoseStartIsNotConfirmed",
		Why: "a job whose start was not recorded runs under Park, and once more after a crash",
	},
	{
		File: "batched.go", Text: "\t_, bare := h.(*batched)\n\treturn bare", With: "\treturn knownIn(h) != nil",
		Package: ".", Test: "TestBatchedRecordsItsStarts",
		Why: "a middleware around a Batched acts before the start is recorded, and under Park acts twice",
	},
	{
		File: "forward.go", Text: " && !errors.Is(err, broker.ErrThrottled)\n}", With: "\n}",
		Package: ".", Test: "TestForwardDividesCalls",
		Why: "a relay makes many calls of one that was throttled, which is too much already",
	},
	{
		File: "steward.go", Text: "if !atStart && !s.hesitates(ctx, &v) {", With: "if !atStart && ctx.Err() != nil {",
		Package: ".", Test: "TestFleetAfterPause",
		Why: "a fleet goes on as one at the end of a pause, and floods what the pause was for",
	},
	{
		File: "rulebook.go", Text: "err == nil && !sent.Before(b.asked) {", With: "err == nil {",
		Package: ".", Test: "TestOldRulesComeLate",
		Why: "a slow read that began before an operator's pause ends it for a period",
	},
	{
		File: "steward.go", Text: "case isSlow(err) || !s.answersOthers(ctx):", With: "case !s.answersOthers(ctx):",
		Package: ".", Test: "TestSlowRulesAtBoot",
		Why: "a worker that starts during an operator's pause runs jobs, because reading the rules was slow",
	},
	{
		File: "rulebook.go", Text: "time.AfterFunc(b.store.timeout+deafAfter,", With: "time.AfterFunc(24*time.Hour,",
		Package: ".", Test: "TestRulesReadHangsLater",
		Why: "nobody is told that rules are not read, because a read never comes back",
	},
	{
		File: "config.go", Text: "\tc.Logger = slog.New(guarded{c.Logger.Handler()})\n", With: "",
		Package: ".", Test: "TestLoggerPanics",
		Why: "a Logger that panics ends the process, and with it all jobs that run",
	},
	{
		File: "control/once.go", Text: "\tcase <-call.Done():\n\t\treturn dedupe.Renewed{}", With: "\tcase <-make(chan int):\n\t\treturn dedupe.Renewed{}",
		Package: "control", Test: "TestDeafRenew",
		Why: "Alone and Once do not return when f has ended, because the store hangs",
	},
	{
		File: "internal/engine/starts.go", Text: "if dividable(rs, err, func(*Run[J]) int { return n }) {", With: "if false {",
		Package: ".", Test: "TestBatchedWhoseStartIsNotConfirmed",
		Why: "one record on which the call fails keeps all of its batch from beginning",
	},
}
