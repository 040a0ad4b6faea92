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
	{
		File: "internal/engine/claim.go", Text: "f != 0 && f <= known", With: "f != 0 && f <= known && false",
		Package: ".", Test: "TestStoreWentBack",
		Why: "a database that was restored under running workers gives out fences a second time, and nobody says a word",
	},
	{
		File: "internal/engine/claim.go", Text: "c.Outcome == dedupe.Won && r.tries == 0", With: "c.Outcome == dedupe.Won && r != nil",
		Package: ".", Test: "TestRepeatedClaimIsNoPast",
		Why: "one lost answer stops a queue, because a repeated claim has its first fence",
	},
	{
		File: "steward.go", Text: "if rs.Version < obeyed {", With: "if rs.Version > obeyed {",
		Package: ".", Test: "TestRulesWentBack",
		Why: "a restore that takes a pause away lets the workers go on",
	},
	{
		File: "restored.go", Text: "if err == nil && !back {", With: "if err == nil && !back && false {",
		Package: ".", Test: "TestFencesInNoOrder",
		Why: "a sequence with a CACHE stops a queue at each claim",
	},
	{
		File: "internal/sqlitewriter/writer.go", Text: "len(w.turns) == 0 || len(w.queue) > 0 && time.Since(since) > stint", With: "len(w.turns) == 0 || since.IsZero()",
		Package: "internal/sqlitewriter", Test: "TestTurns",
		Why: "while handlers commit, no claim, renewal or settlement gets through, and leases run out",
	},
	{
		File: "internal/sqlitewriter/others.go", Text: "before, last = v, time.Now()", With: "before = v",
		Package: "internal/sqlitewriter", Test: "TestRest",
		Why: "a busy worker keeps the file to itself, and other programs' transactions are refused",
	},
	{
		File: "dedupe/sqlitestore/commit.go", Text: "s.sql.complete, &lease, job, nil); err != nil {", With: "s.sql.complete, &lease, job, nil); err != nil && f == nil {",
		Package: "dedupe/sqlitestore", Test: "TestCommitRefused",
		Why: "a handler whose claim was taken away has its effect beside the other's",
	},
	{
		File: "dedupe/pgstore/complete.go", Text: `t.Elem().Name() == "dbSimulatedNestedTx"`, With: `t.Elem().Name() == "nobody"`,
		Package: "dedupe/pgstore", Test: "TestCompleteTxSavepoint",
		Why: "a library that nests transactions has its effects once for each attempt",
	},
	{
		File: "dedupe/pgstore/migrate.go", Text: "range min(asked, pool.Config().MaxConns)", With: "range min(1, pool.Config().MaxConns)",
		Package: "dedupe/pgstore", Test: "TestMigrateNamesThePooler",
		Why: "a pooler that knows no prepared statements passes Migrate, and then nearly nothing works",
	},
	{
		File: "dedupe/pgstore/migrate.go", Text: "greatest(f.clock {+} $1::bigint, $3::bigint)", With: "(f.clock {+} $1::bigint)",
		Package: "dedupe/pgstore", Test: "TestRaiseFence",
		Why: "after a restore to some seconds ago the fences since come a second time",
	},
}
