package main

// This file owns the breaks of PostgreSQL and SQLite: queues and stores. Each entry is data:
// main.go plays it, and a test sees that it still fits its file. Nothing is locked.

var databases = []mutant{
	{
		File: "dedupe/pgstore/claim.go", Text: `g.new_key OFFSET 0) t ON true`, With: `g.new_key) t ON true`,
		Package: "dedupe/pgstore", Test: "TestLookups", Server: true,
		Why: "a connection that has planned on an empty, vacuumed table reads the whole table at each claim, however it grows",
	},
	{
		File: "dedupe/pgstore/renew.go", Text: `t.key {=} g.key OFFSET 0) t
WHERE (SELECT`, With: `t.key {=} g.key) t
WHERE (SELECT`,
		Package: "dedupe/pgstore", Test: "TestLookups", Server: true,
		Why: "the same, in each renewal and settlement that could not write all",
	},
	{
		File: "dedupe/pgstore/pipeline.go", Text: "t.ctid {=} g.place AND t.tableoid {=} g.part", With: "t.ctid {=} g.place",
		Package: "dedupe/pgstore", Test: "TestLookupsOfPartitions", Server: true,
		Why: "on a partitioned table a renewal or a settlement writes into the records of other keys",
	},
	{
		File: "internal/engine/claim.go", Text: "f != 0 && f <= known", With: "f != 0 && f <= known && false",
		Package: "internal/coretest/outages", Test: "TestStoreWentBack",
		Why: "a database that was restored under running workers gives out fences a second time, and nobody says a word",
	},
	{
		File: "internal/engine/claim.go", Text: "c.Outcome == dedupe.Won && !r.asked", With: "c.Outcome == dedupe.Won && r != nil",
		Package: "internal/coretest/outages", Test: "TestRepeatedClaimIsNoPast",
		Why: "one lost answer stops a queue, because a repeated claim has its first fence",
	},
	{
		File: "internal/steering/steward.go", Text: "if rs.Version < obeyed {", With: "if rs.Version > obeyed {",
		Package: "internal/coretest/outages", Test: "TestRulesWentBack",
		Why: "a restore that takes a pause away lets the workers go on",
	},
	{
		File: "internal/steering/restored.go", Text: "if err == nil && !back {", With: "if err == nil && !back && false {",
		Package: "internal/coretest/outages", Test: "TestFencesInNoOrder",
		Why: "a sequence with a CACHE stops a queue at each claim",
	},
	{
		File: "internal/runbook/runbook.go", Text: "if code != s.Exit {", With: "if code < 0 {",
		Package: "internal/runbook", Test: "TestPlayDiffers",
		Why: "a runbook whose commands fail stays green",
	},
	{
		File: "internal/steering/restored.go", Text: "if got <= known {", With: "if got < known {",
		Package: "internal/coretest/outages", Test: "TestSeatWentBack",
		Why: "an idle worker goes on beside a store that was restored behind it",
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
		File:    "adapters/pgbroker/schema.go",
		Text:    "t.seq {=} ANY (ARRAY(SELECT c.seq FROM c))\nRETURNING",
		With:    "t.seq IN (SELECT c.seq FROM c)\nRETURNING",
		Package: "adapters/pgbroker", Test: "TestPlans", Server: true,
		Why: "A receive whose plan was made on a drained queue reads the whole backlog for each message.",
	},
	{
		File:    "adapters/pgbroker/schema.go",
		Text:    "t.fresh AND t.seq {>} $3::bigint\nORDER BY t.queue, t.seq",
		With:    "t.fresh AND t.seq {>} $3::bigint\nORDER BY t.seq",
		Package: "adapters/pgbroker", Test: "TestPlans", Server: true,
		Why: "The look for messages of groups goes down the primary key, through the whole table.",
	},
	{
		File:    "adapters/pgbroker/schema.go",
		Text:    "first   = ` ORDER BY t.waits, t.seq LIMIT 1`",
		With:    "first   = ` ORDER BY t.seq LIMIT 1`",
		Package: "adapters/pgbroker", Test: "TestPlans", Server: true,
		Why: "The look for a group's next message goes through the whole table.",
	},
	{
		File:    "adapters/pgbroker/schema.go",
		Text:    "AND x.fresh::integer {=} 1",
		With:    "AND x.fresh",
		Package: "adapters/pgbroker", Test: "TestPlans", Server: true,
		Why: "The flags of fresh rows are cleared by reading all fresh rows of the queue.",
	},
	{
		File:    "adapters/pgbroker/groups.go",
		Text:    "if last := fresh[len(fresh)-1].seq; filled && !most && windows < maxWindows {",
		With:    "if last := fresh[len(fresh)-1].seq; filled && !most && windows < 1 {",
		Package: "adapters/pgbroker", Test: "TestHeldRowStopsItsGroupAlone", Server: true,
		Why: "A row that an operator holds stops every group of the queue.",
	},
	{
		File:    "adapters/pgbroker/groups.go",
		Text:    "if locks++; locks > maxLocks {",
		With:    "if locks++; locks > maxFresh {",
		Package: "adapters/pgbroker", Test: "TestFewLocks", Server: true,
		Why: "Ordering groups takes 500 of the locks that the server shares with everybody.",
	},
	{
		File:    "adapters/pgbroker/settle.go",
		Text:    "if twin || locked && locks == maxLocks {",
		With:    "if twin {",
		Package: "adapters/pgbroker", Test: "TestFewLocks", Server: true,
		Why: "An ack takes 100 of the locks that the server shares with everybody.",
	},
	{
		File:    "adapters/pgbroker/settle.go",
		Text:    "if twin || locked && locks == maxLocks {",
		With:    "if twin && len(es) < 0 || locked && locks == maxLocks {",
		Package: "adapters/pgbroker", Test: "TestPortions", Server: true,
		Why: "An older receipt in the same call hides the valid one, whose message comes again.",
	},
	{
		File:    "adapters/pgbroker/groups.go",
		Text:    "\tcase s.full && filled && last < g.at:\n",
		With:    "\tcase s.full && filled && last < 0:\n",
		Package: "adapters/pgbroker", Test: "TestFreshFloor", Server: true,
		Why: "Many messages of groups that were committed late come by 500 each 4 s.",
	},
	{
		File:    "adapters/pgbroker/groups.go",
		Text:    "\tif now := time.Now(); now.Sub(g.since) >= slack {",
		With:    "\tif now := time.Now(); now.Sub(g.since) >= 0 {",
		Package: "adapters/pgbroker", Test: "TestFreshFloor", Server: true,
		Why: "A message of a group that was committed a moment late waits for the next full look.",
	},
	{
		File:    "adapters/pgbroker/groups.go",
		Text:    "return freshStart{full: true, behind: front, lowered: g.lowered}",
		With:    "return freshStart{full: true, behind: g.at, lowered: g.lowered}",
		Package: "adapters/pgbroker", Test: "TestLateCommitOfGroup", Server: true,
		Why: "A message of a group that was committed late is never found.",
	},
	{
		File:    "adapters/pgbroker/schema.go",
		Text:    "groupHash = `pg_catalog.hashtextextended(x.grp, pg_catalog.hashtextextended($1::pg_catalog.text, 0::bigint))`",
		With:    "groupHash = `pg_catalog.hashtextextended(x.grp, pg_catalog.hashtextextended($1::pg_catalog.text, 0::bigint)) {/} 2::bigint`",
		Package: "adapters/pgbroker", Test: "TestGroupsLocked", Server: true,
		Why: "Programs of different versions on one table do not exclude each other, and a message may be stuck for ever.",
	},
	{
		File:    "adapters/pgbroker/errors.go",
		Text:    "case pgkit.OutOfMemory, pgkit.TooManyConnections:",
		With:    "case pgkit.TooManyConnections:",
		Package: "adapters/pgbroker", Test: "TestNoRoomForLocks",
		Why: "A busy server's refusal closes the connection, and says that the outcome is unknown.",
	},
	{
		File:    "adapters/pgbroker/migrate.go",
		Text:    "\tif have.low {\n",
		With:    "\tif have.low && have.version == 0 {\n",
		Package: "adapters/pgbroker", Test: "TestNumbersOfACopy", Server: true,
		Why: "Sends into a copy of the table are refused as duplicates, also in the user's transaction.",
	},
	{
		File:    "adapters/pgbroker/migrate.go",
		Text:    "\t\t\trefused = q.nameHolder(ctx, err)",
		With:    "\t\t\trefused = err",
		Package: "adapters/pgbroker", Test: "TestMigrateBesideAWriter", Server: true,
		Why: "Nobody is told whose open transaction keeps the program from starting.",
	},
	{
		File:    "adapters/pgbroker/migrate.go",
		Text:    `	indexTimeout = "500ms"`,
		With:    `	indexTimeout = "60s"`,
		Package: "adapters/pgbroker", Test: "TestMigrateBesideAWriter", Server: true,
		Why: "A starter that waits for an index lets all sends and acks wait behind it.",
	},
	{
		File:    "adapters/pgbroker/receive.go",
		Text:    "ordered = ordered || l.ordered && from.full",
		With:    "ordered = ordered || l.ordered",
		Package: "adapters/pgbroker", Test: "TestEmptyIsCertainOfGroups", Server: true,
		Why: "A receive that does not wait says that nothing is there, while a group's message is.",
	},
	{
		File:    "adapters/pgbroker/notice.go",
		Text:    "\t\t\tq.pause(ctx, conn)\n",
		With:    "",
		Package: "adapters/pgbroker", Test: "TestNotifiedTooOften", Server: true,
		Why: "Whoever may connect to the database makes a worker look as often as he notifies.",
	},
	{
		File: "dedupe/pgstore/complete.go", Text: `t.Elem().Name() == "dbSimulatedNestedTx"`, With: `t.Elem().Name() == "nobody"`,
		Package: "dedupe/pgstore", Test: "TestCompleteTxSavepoint", Server: true,
		Why: "a library that nests transactions has its effects once for each attempt",
	},
	{
		File: "dedupe/pgstore/migrate.go", Text: "range min(asked, pool.Config().MaxConns)", With: "range min(1, pool.Config().MaxConns)",
		Package: "dedupe/pgstore", Test: "TestMigrateNamesThePooler", Server: true,
		Why: "a pooler that knows no prepared statements passes Migrate, and then nearly nothing works",
	},
	{
		File: "dedupe/pgstore/migrate.go", Text: "greatest(f.clock {+} $1::bigint, $3::bigint)", With: "(f.clock {+} $1::bigint)",
		Package: "dedupe/pgstore", Test: "TestRaiseFence", Server: true,
		Why: "after a restore to some seconds ago the fences since come a second time",
	},
}
