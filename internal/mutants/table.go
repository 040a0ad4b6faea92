package main

// This file owns what a table is made of, and the list of the tables. All of it is data that never
// changes once the program runs; the tables have a file each.

// A mutant is one deliberate break of the product, and the test that notices it.
type mutant struct {
	// File is the path from the repository's root, and Text stands in it exactly once.
	File, Text string
	// With takes Text's place. The package must still build.
	With string
	// Package is the folder of the test that must turn red, from the root; Test is its name,
	// which may have the form "TestA/case".
	Package, Test string
	// Why says what a user would lose by the break.
	Why string
	// Rule names what the break leaves out: "claim: NAME", "renew: NAME" or "settle: NAME" for a row
	// of dedupe/machine, or a page of docs and a text that stands in one of its rules alone:
	// "protocol: settle failed". Empty where no page has such a rule.
	Rule string
	// Server says that the test needs a back end that runs. Such a row is played where it is asked
	// for.
	Server bool
}

// A family is a test whose parts are broken things, each of which the test must refuse. They are
// counted beside the mutants.
type family struct {
	// What is broken: drivers, stores.
	What string
	// Package and Test are as in a mutant. Each part of the test is named by what is broken.
	Package, Test string
}

// An equivalent is a change that no test can notice, because nobody can. It is listed, so that it is
// not found again, and not counted.
type equivalent struct {
	File, Text, With string
	// Why says why nothing changes.
	Why string
}

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
	{What: "broken drivers", Package: "broker/brokertest", Test: "TestFaultsAreFound"},
	{What: "broken stores", Package: "dedupe/dedupetest", Test: "TestFaultyStores"},
	{What: "rules that the model goes without", Package: "internal/model", Test: "TestEachRuleIsNeeded"},
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
}
