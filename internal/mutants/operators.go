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
	{
		File: "ops/overview.go",
		Text: "		w.waitsFor(w.Stands)\n	}\n	w.full(seats)", With: "	}\n	w.full(seats)",
		Package: "cmd/onceq/internal/cli", Test: "TestStandstill",
		Why: "where nothing begins, the wait of the last job that began tells of the past",
	},
	{
		File: "ops/overview.go",
		Text: "	if free {\n		w.Stands = 0", With: "	if free {",
		Package: "cmd/onceq/internal/cli", Test: "TestStandstill",
		Why: "while one worker has a free slot the queue's head does not wait for the others",
	},
	{
		File: "ops/overview.go",
		Text: "		least = max(least, 2*d)", With: "		least = max(least, d/100)",
		Package: "cmd/onceq/internal/cli", Test: "TestLongJobs",
		Why: "jobs that always take minutes are no standstill",
	},
	{
		File: "card.go",
		Text: "	if g.slots == 0 || g.busy < g.slots {", With: "	if g.slots == 0 {",
		Package: ".", Test: "TestFullOnCard",
		Why: "a worker with a free slot stands still for nobody",
	},
	{
		File: "sketch.go",
		Text: "	case OutcomeRetried, OutcomeFailed, OutcomeParked:", With: "	case OutcomeRetried, OutcomeParked:",
		Package: ".", Test: "TestMinuteOnCard",
		Why: "a job that failed for good is a failure of the last minute",
	},
	{
		File: "card.go",
		Text: "now.Sub(c.ran[1].at) >= time.Minute {", With: "now.Sub(c.ran[1].at) >= time.Hour {",
		Package: ".", Test: "TestMinuteOnCard",
		Why: "failures of an hour ago are not those of now",
	},
	{
		File: "control/card.go",
		Text: "cmp.Compare(m[b][1], m[a][1]), ", With: "",
		Package: "control", Test: "TestFailingTypes",
		Why: "where a card has no room, the types that fail most are those to keep",
	},
	{
		File: "neighbours.go",
		Text: "	case own.Scope != other.Scope:", With: "	case false:",
		Package: ".", Test: "TestStrict",
		Why: "a worker with another scope does each job once more",
	},
	{
		File: "neighbours.go",
		Text: "		l.next = now.Add(soonAgain)\n", With: "",
		Package: ".", Test: "TestNeighbours",
		Why: "workers that start together do not see each other at the first look",
	},
	{
		File: "neighbours.go",
		Text: "		if t.Owner == owner || !t.Live(now) {", With: "		if t.Owner == owner {",
		Package: ".", Test: "TestNeighbours",
		Why: "a worker that has left does no job",
	},
	{
		File: "ops/seats.go",
		Text: "			return true // its record is elsewhere (JobOptions.Scope), or its key was cut", With: "			return false",
		Package: "ops", Test: "TestBuried",
		Why: "a dead worker's job of which nothing is known may be its own still",
	},
	{
		File: "ops/key.go",
		Text: "		if a.End == dedupe.Claimed {\n			l.Gaps", With: "		if false {\n			l.Gaps",
		Package: "cmd/onceq/internal/cli", Test: "TestPerhapsTwice",
		Why: "a job that a worker may have done before it went silent may have been done twice",
	},
	{
		File: "cmd/onceq/internal/cli/queuerules.go",
		Text: "r.Slots < slots && (least", With: "r.Slots > slots && (least",
		Package: "cmd/onceq/internal/cli", Test: "TestRuleWords",
		Why: "the lowest limit holds, so a higher one changes nothing",
	},
}
