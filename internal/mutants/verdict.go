package main

// This file owns the breaks of the table of endings, one for each case of verdict.Judge and of what
// it calls.

var judged = []mutant{
	{
		Rule: "protocol: the store *answered* `ErrLeaseLost`, or a settlement",
		File: "internal/verdict/verdict.go", Text: "case e.Cut == ByTaker:", With: "case e.Cut == ByTaker && e.Returned == Nil:",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a worker that was overtaken settles the job of its successor",
	},
	{
		Rule: "protocol: an adapter says that the work has not begun",
		File: "internal/verdict/verdict.go", Text: "return Verdict{To: dedupe.Released, Uncounted: true}", With: "return Verdict{To: dedupe.Released}",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "messages that no consumer took use up their attempts",
	},
	{
		Rule: "protocol: | handler returns nil |",
		File: "internal/verdict/verdict.go", Text: "case e.Returned == Nil && !e.Joined:", With: "case e.Returned == Nil && !e.Joined && e.Cut == Uncut:",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a handler that ends well during a drain is run again",
	},
	{
		Rule: "protocol: | nil after `CompleteTx`",
		File: "internal/verdict/verdict.go", Text: "case e.Returned == Nil && e.Parks:", With: "case e.Returned == Nil && e.Parks && e.Cut == Uncut:",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "what happened elsewhere happens again, because its transaction did not commit",
	},
	{
		Rule: "protocol: under Park, once started: a panic",
		File: "internal/verdict/verdict.go", Text: "(e.Returned == Panic || e.Cut != Uncut || e.Unknown)", With: "(e.Returned == Panic || e.Cut != Uncut)",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "an effect that the handler calls unknown is tried again under Park",
	},
	{
		Rule: "protocol: | `Permanent(err)`; any error at attempt",
		File: "internal/verdict/verdict.go", Text: "\tcase e.Returned == Permanent:\n\t\tv.To = dedupe.Failed\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "an error that can never pass is tried until the attempts are used up",
	},
	{
		Rule: "protocol: `Postpone(d, why)`, whatever cut",
		File: "internal/verdict/verdict.go", Text: "\tcase e.Returned == Postpone:\n", With: "\tcase e.Returned == Postpone && !e.LastTry:\n",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a job that sleeps in its last attempt becomes a letter",
	},
	{
		Rule: "protocol: handler's context cancelled by `DrainTimeout`",
		File: "internal/verdict/verdict.go", Text: "\tcase e.Cut == ByDrain:\n\t\tv.Uncounted = true\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "each deploy costs the jobs that run an attempt",
	},
	{
		Rule: "protocol: `MaxAttempts` is how often the handler may start",
		File: "internal/verdict/verdict.go", Text: "\tcase e.LastTry:\n\t\tv.To = dedupe.Failed\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a job that always fails never becomes a letter",
	},
	{
		Rule: "protocol: | `RetryAfter(d, err)` |",
		File: "internal/verdict/verdict.go", Text: "v.Backoff = !e.Asks", With: "v.Backoff = true",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a job waits for its backoff, not for as long as its handler has asked",
	},
	{
		Rule: "protocol: | any other error |",
		File: "internal/verdict/verdict.go", Text: "v.Backoff = !e.Asks", With: "v.Backoff = false",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "what fails is tried again at once, and without end while an outage lasts",
	},
	{
		Rule: "protocol: | panic, Goexit |",
		File: "internal/verdict/verdict.go", Text: "\tcase e.Returned == Panic:\n\t\treturn Panicked\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a panic cannot be told from an error",
	},
	{
		File: "internal/verdict/verdict.go", Text: "\tcase e.Returned == Permanent:\n\t\treturn \"\"\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "an error that its handler calls permanent is told as a time limit",
	},
	{
		Rule: "protocol: timeouts (class `timeout`)",
		File: "internal/verdict/verdict.go", Text: "\tcase e.Cut == ByTimeout:\n\t\treturn TimedOut\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a job that is too slow cannot be told from one that fails",
	},
	{
		File: "internal/verdict/verdict.go", Text: "\tcase e.Cut == ByUnconfirmed:\n\t\treturn Unconfirmed\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "jobs that a hung store cut off look like failures of their handler",
	},
	{
		File: "internal/verdict/verdict.go", Text: "\tcase e.Returned == Nil:\n\t\treturn NotCommitted\n", With: "",
		Package: "internal/verdict", Test: "TestJudge",
		Why: "a letter does not say that a transaction was not committed",
	},
	{
		File: "internal/verdict/handled.go", Text: "case h.Panicked:\n\t\te.Returned = Panic", With: "case h.Panicked:\n\t\te.Returned = Error",
		Package: "internal/verdict", Test: "TestOf",
		Why: "under Park a job that panicked is tried again, although nobody knows what it did",
	},
	{
		File: "internal/verdict/handled.go", Text: " && !(e.Unknown && e.Parks) && notBegun", With: " && notBegun",
		Package: "internal/verdict", Test: "TestOf",
		Why: "under Park a job runs again although a middleware around a limiter has said Unknown",
	},
	{
		File: "internal/verdict/handled.go", Text: "notBegun.Holds(h.Cause):\n\t\te.Returned = NotBegun", With: "notBegun.Holds(h.Cause):\n\t\te.Returned = Error",
		Package: "internal/verdict", Test: "TestOf",
		Why: "messages that no consumer took fail",
	},
	{
		File: "internal/verdict/handled.go", Text: "errors.As(h.Err, &permanent):\n\t\te.Returned = Permanent", With: "errors.As(h.Err, &permanent):\n\t\te.Returned = Error",
		Package: "internal/verdict", Test: "TestOf",
		Why: "Permanent changes nothing",
	},
	{
		File: "internal/verdict/handled.go", Text: "e.Returned, after = Postpone, postpone.After", With: "e.Returned = Postpone",
		Package: "internal/verdict", Test: "TestOf",
		Why: "a job that sleeps comes again at once",
	},
	{
		File: "internal/verdict/handled.go", Text: "e.Asks, after = true, retry.After", With: "e.Asks = true",
		Package: "internal/verdict", Test: "TestOf",
		Why: "a job whose handler asked for a delay comes again at once",
	},
	{
		File: "internal/verdict/handled.go", Text: "case cause == nil:\n\t\treturn Uncut", With: "case cause == nil:\n\t\treturn ByCaller",
		Package: "internal/verdict", Test: "TestOf",
		Why: "under Park each plain error parks its job",
	},
	{
		File: "internal/verdict/handled.go", Text: "\t\treturn ByTaker", With: "\t\treturn ByUnconfirmed",
		Package: "internal/verdict", Test: "TestOf",
		Why: "a worker that was overtaken settles by a token that is no longer the record's",
	},
	{
		File: "internal/verdict/handled.go", Text: "\t\treturn ByTimeout", With: "\t\treturn ByCaller",
		Package: "internal/verdict", Test: "TestOf",
		Why: "a job that is too slow has the class of its handler's error",
	},
	{
		File: "internal/verdict/handled.go", Text: "\t\treturn ByUnconfirmed", With: "\t\treturn ByCaller",
		Package: "internal/verdict", Test: "TestOf",
		Why: "jobs that a hung store cut off look like failures of their handler",
	},
	{
		File: "internal/verdict/handled.go", Text: "\t\treturn ByDrain", With: "\t\treturn ByCaller",
		Package: "internal/verdict", Test: "TestOf",
		Why: "each deploy costs the jobs that it cuts off an attempt",
	},
}
