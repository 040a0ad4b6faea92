package main

var databases = []mutant{
	{
		File: "dedupe/pgstore/claim.go", Text: `g.new_key OFFSET 0) t ON true`, With: `g.new_key) t ON true`,
		Package: "dedupe/pgstore", Test: "TestLookups",
		Why: "a connection that has planned on an empty, vacuumed table reads the whole table at each claim, however it grows",
	},
	{
		File: "dedupe/pgstore/renew.go", Text: `t.key {=} g.key OFFSET 0) t
WHERE (SELECT`, With: `t.key {=} g.key) t
WHERE (SELECT`,
		Package: "dedupe/pgstore", Test: "TestLookups",
		Why: "the same, in each renewal and settlement that could not write all",
	},
	{
		File: "dedupe/pgstore/pipeline.go", Text: "t.ctid {=} g.place AND t.tableoid {=} g.part", With: "t.ctid {=} g.place",
		Package: "dedupe/pgstore", Test: "TestLookupsOfPartitions",
		Why: "on a partitioned table a renewal or a settlement writes into the records of other keys",
	},
}
