package main

// This file owns the list of the tables, and what is played or listed beside them. The tables have
// a file each. All of it is data that never changes.

// The tables by area.
var tables = map[string][]mutant{
	"bridges":   bridges,
	"cancel":    cancels,
	"clouds":    clouds,
	"core":      core,
	"databases": databases,
	"delays":    delays,
	"engine":    engine,
	"fan":       fanned,
	"limits":    limited,
	"machine":   machined,
	"operators": operators,
	"page":      page,
	"replays":   replays,
	"rules":     ruled,
	"schedules": schedules,
	"security":  security,
	"steps":     stepped,
	"verdict":   judged,
	"web":       web,
}

var families = []family{
	{Area: "drivers", Package: "broker/brokertest", Test: "TestFaultsAreFound"},
	{Area: "stores", Package: "dedupe/dedupetest", Test: "TestFaultyStores"},
	{Area: "model", Package: "internal/model", Test: "TestEachRuleIsNeeded"},
	{Area: "model", Package: "internal/model", Test: "TestEachTimedRuleIsNeeded"},
}

var equivalents = []equivalent{
	{
		File: "internal/verdict/verdict.go", Text: "case e.Parks && e.Returned != Nil && (", With: "case e.Parks && (",
		Why: "a nil under Park has met one of the two cases before: done, or parked without its transaction",
	},
	{
		File: "dedupe/machine/table.go", Text: "At: AtDead, Outcome: dedupe.Won, Change: TakeNext", With: "At: AtClaimed, Outcome: dedupe.Won, Change: TakeNext",
		Why: "a live claim has met one of the rows above: its own, or another's",
	},
	{
		File: "dedupe/machine/table.go", Text: "{Name: \"own claim\", At: AtClaimed, Own: Yes, Change: Write}", With: "{Name: \"own claim\", At: AtClaimed, Change: Write}",
		Why: "another's token has met the first row",
	},
	{
		File: "adapters/awssqs/internal/leansqs/scan.go", Text: "if *to != nil {", With: "if to == nil {",
		Why: "of a field that comes twice the SDK takes the last, too",
	},
	{
		File: "adapters/awssqs/internal/leansqs/attempt.go", Text: "res.StatusCode == http.StatusOK", With: "res.StatusCode < 300",
		Why: "the SDK reads the answers of all successes alike",
	},
	{
		File: "adapters/awssqs/internal/leansqs/plan.go", Text: "r.URL.RawQuery != \"\" || ", With: "",
		Why: "the SDK drops an endpoint's query before this looks, and middleware that adds one is refused before",
	},
	{
		File: "adapters/awssqs/internal/leansqs/body.go", Text: "c > '~',", With: "c > 0x7f,",
		Why: "the SDK does not escape DEL either: to leave such a text to it costs time, and changes no byte",
	},
	{
		File: "internal/steering/rulebook.go", Text: " && !r.OfQueue() && now.Before(r.Until)", With: " && !r.OfQueue()",
		Why: "a rule that is over costs each job a look at it, and For leaves it out",
	},
}
