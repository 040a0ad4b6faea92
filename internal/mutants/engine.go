package main

var engine = []mutant{
	{
		File: "dedupe/machine/table.go", Text: "Resolves: No, ToReleased: Yes, Change: Note", With: "Resolves: No, ToReleased: Yes, ToDone: Yes, Change: Note",
		Package: "internal/model", Test: "TestEverythingHolds/external_effects,_park",
		Why: "a parked job that its own claim releases late is told as waiting, and nothing brings it",
	},
	{
		File: "dedupe/pgstore/settle.go", Text: " AND g.status {<>} 'released'`", With: "`",
		Package: "dedupe/pgstore", Test: "TestConformance/late-release-stays-parked",
		Why: "the same on PostgreSQL (needs a server)",
	},
	{
		File: "dedupe/dynamostore/settle.go", Text: "case t.To == dedupe.Released && !t.Resolves:", With: "case false:",
		Package: "dedupe/dynamostore", Test: "TestConformance/late-release-stays-parked",
		Why: "the same on DynamoDB (needs a server)",
	},
	{
		File: "internal/engine/settle.go", Text: "a.Status == dedupe.Parked && v.To == dedupe.Released", With: "false && v.To == dedupe.Released",
		Package: ".", Test: "TestParkLateRelease",
		Why: "the letter that is put once more says that a job that was interrupted has failed by an error",
	},
}
