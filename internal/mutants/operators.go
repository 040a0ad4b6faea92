package main

var operators = []mutant{
	{
		File: "cmd/onceq/internal/cli/keyresolve.go",
		Text: "		if r.letter = \"none\"; to == dedupe.Released {", With: "		if r.letter = \"none\"; false {",
		Package: "cmd/onceq/internal/cli", Test: "TestResolveRuns",
		Why: "a parked job that is released without a letter never runs, because its message was acked",
	},
	{
		File: "cmd/onceq/internal/cli/keyresolve.go",
		Text: "			l.Judgement, l.Why = dlq.Remove, \"its job is done\"\n", With: "",
		Package: "cmd/onceq/internal/cli", Test: "TestResolveLetters",
		Why: "the letter of a job that is done must not be sent",
	},
	{
		File: "cmd/onceq/internal/cli/keyresolve.go",
		Text: "		case r.was.Fence != r.Fence:", With: "		case false:",
		Package: "cmd/onceq/internal/cli", Test: "TestResolveMany",
		Why: "a job that was parked anew since somebody looked is not the one that he decides on",
	},
	{
		File: "ops/resolve.go",
		Text: "asked[Failure{dedupe.Key{Key: f.Key.Key}, f.Fence}] = true", With: "asked[Failure{dedupe.Key{Key: f.Key.Key}, 0}] = true",
		Package: "ops", Test: "TestPlanLetters",
		Why: "a letter of an older version does not name its record, and is the job's all the same",
	},
	{
		File: "ops/resolve.go",
		Text: "	f = Failure{dedupe.Key{Scope: d.Scope, Key: d.Key}, d.Fence}", With: "	f = Failure{dedupe.Key{Scope: d.Scope, Key: d.Key}, 7}",
		Package: "ops", Test: "TestPlanLetters",
		Why: "a letter of another failure of the job is not the one that is decided on",
	},
}
