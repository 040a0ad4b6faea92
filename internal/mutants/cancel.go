package main

var cancels = []mutant{
	{
		Rule: "protocol: claim says failed, class `cancelled`",
		File: "internal/engine/claim.go", Text: "if c.Outcome == dedupe.AlreadyFailed && c.Record.ErrClass == verdict.Cancelled {", With: "if false {",
		Package: "internal/coretest/claims", Test: "TestCancelledIsAcked",
		Why: "each message of a cancelled job becomes a letter, and a replay of all letters runs what was cancelled",
	},
	{
		File: "internal/engine/claim.go", Text: "	if c.ErrClass == verdict.Cancelled {\n", With: "	if false {\n",
		Package: "internal/coretest/claims", Test: "TestCancelledLetterReopensNothing",
		Why: "the letter of a job that failed while it was cancelled runs it",
	},
	{
		Rule: "protocol: A [cancel](cancel.md) writes *failed*",
		File: "internal/engine/settle.go", Text: "if a.Err == nil && a.Status == dedupe.Failed && r.Verdict.To != dedupe.Failed {", With: "if false {",
		Package: "internal/coretest/claims", Test: "TestCancelInTheEnd",
		Why: "a handler that ends after the cancel puts a letter of no class, which reopens the cancelled job",
	},
	{
		File: "internal/engine/beat.go", Text: "cause = verdict.ErrCancelled", With: "_ = verdict.ErrCancelled",
		Package: "internal/coretest/claims", Test: "TestCancelWhileItRuns",
		Why: "a cancelled handler is told that another has its key, and somebody looks for that one",
	},
	{
		File: "internal/engine/beat.go", Text: "time.AfterFunc(tellCause, func() { r.stopHandler(verdict.ErrTaken) })", With: "_ = tellCause",
		Package: "internal/coretest/claims", Test: "TestCancelWhileItRuns",
		Why: "a handler without a claim runs on for as long as the store does not say why",
	},
	{
		File: "internal/engine/beat.go", Text: "if rs = living(rs); len(rs) == 0 {", With: "if len(rs) == 0 {",
		Package: "internal/coretest/claims", Test: "TestNobodyIsReadThatHasEnded",
		Why: "a store is called that its owner has closed, because all jobs had ended",
	},
	{
		File: "internal/engine/beat.go", Text: "		r.ctx.Lose()\n",
		Package: "internal/coretest/batches", Test: "TestBulkLeavesOutWhatIsAboutToEnd",
		Why: "a batch begins with a job that the store has said is another's, while it is asked why",
	},
	{
		File: "internal/verdict/words.go", Text: "class != \"\" && class != Cancelled {", With: "class != \"\" {",
		Package: "internal/coretest/claims", Test: "TestCancelledByClass",
		Why: "a handler's own class makes its failure look cancelled: a crash before its letter loses the job",
	},
	{
		File: "ops/cancel.go", Text: "			q.Reopen = r.Fence\n", With: "			_ = q\n",
		Package: "ops", Test: "TestCancel/failed",
		Why: "a failed job cannot be cancelled, and its letter runs it",
	},
	{
		File: "ops/cancel.go", Text: "Retain: max(spec.Keep, r.Expires.Sub(r.Updated)),", With: "Retain: spec.Keep,",
		Package: "internal/coretest/claims", Test: "TestCancelledSleeper",
		Why: "a job that sleeps for longer than a cancel is kept wakes, and runs",
	},
	{
		File: "ops/cancel.go", Text: "case r.Status == dedupe.Parked:", With: "case false:",
		Package: "ops", Test: "TestCancel/parked",
		Why: "nobody is asked any more whether the effect of an interrupted job has happened",
	},
	{
		File: "ops/replay.go", Text: "case r.Fence == l.Fence && IsCancelled(r):", With: "case false:",
		Package: "ops", Test: "TestCancelledLetters",
		Why: "a replay of all letters runs a job that was cancelled as it failed",
	},
	{
		File: "ops/reconcilejudge.go", Text: "	case IsCancelled(r):\n", With: "	case false:\n",
		Package: "ops", Test: "TestReconcileTable/cancelled",
		Why: "a cancelled job is a lost failure, and --resend runs it",
	},
	{
		File: "ops/doctor.go", Text: " && !IsCancelled(r) {", With: " {",
		Package: "ops", Test: "TestDoctorChecks/a_cancelled_job",
		Why: "the doctor looks for letters that nobody puts",
	},
}
