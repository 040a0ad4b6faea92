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
		File: "internal/engine/starts.go", Text: "if dividable(rs, err, func(*Run[J]) int { return n }) {", With: "if false {",
		Package: ".", Test: "TestBatchedWhoseStartIsNotConfirmed",
		Why: "one record on which the call fails keeps all of its batch from beginning",
	},
}
