package main

// This file owns the breaks of Bulk and Forward, and of how operators' rules are read. Each entry
// is data: main.go plays it, and a test sees that it still fits its file. Nothing is locked.

var core = []mutant{
	{
		File: "internal/engine/halt.go", Text: "\t\ttellWatchers(watchers) // first, because", With: "\t\t_ = watchers // first, because",
		Package: "internal/coretest/batches", Test: "TestBulkThatGathersInADrain",
		Why: "a drain leaves what gathers for a Bulk claimed, and under Park it becomes dead letters",
	},
	{
		File: "internal/engine/slots.go", Text: "\ttellWatchers(watchers)", With: "\t_ = watchers",
		Package: "internal/coretest/batches", Test: "TestBulkUnderALimit",
		Why: "what gathers for a Bulk when an operator sets a limit waits for jobs that cannot come",
	},
	{
		File: "bulk.go", Text: "\t\troom += f.SlotsNow()", With: "\t\troom += f.Slots()",
		Package: "internal/coretest/batches", Test: "TestBulkUnderALimit",
		Why: "under an operator's limit each batch lingers for jobs that cannot come",
	},
	{
		File: "bulk.go", Text: "|| slices.ContainsFunc(b.flows, func(f *flow) bool { return !f.IsOpen() })", With: "",
		Package: "internal/coretest/batches", Test: "TestBulkJoinedAfterAStop",
		Why: "a job that joins just after a stop begins a gathering that nobody ends",
	},
	{
		Rule: "protocol: A `Bulk` that is the handler itself",
		File: "internal/engine/work.go", Text: "if r.parks() && !r.Opts.StartsLater && (", With: "if r.parks() && (",
		Package: "internal/coretest/batches", Test: "TestBulkRecordsItsStarts",
		Why: "a worker that dies while jobs gather parks them, although f was never called for them",
	},
	{
		File: "bulk.go", Text: "\t\tleft = b.askWhoBegins() // the confirmation", With: "\t\t// the confirmation",
		Package: "internal/coretest/batches", Test: "TestBulkWhoseStartIsNotConfirmed",
		Why: "a job whose start was not recorded runs under Park, and once more after a crash",
	},
	{
		File: "handler.go", Text: "\tk, bare := h.(known)\n\treturn bare && k.waits()", With: "\treturn knownIn(h) != nil",
		Package: "internal/coretest/batches", Test: "TestBulkRecordsItsStarts",
		Why: "a middleware around a Bulk acts before the start is recorded, and under Park acts twice",
	},
	{
		File: "forward.go", Text: " && !errors.Is(err, broker.ErrThrottled)\n}", With: "\n}",
		Package: "internal/coretest/jobs", Test: "TestForwardDividesCalls",
		Why: "a relay makes many calls of one that was throttled, which is too much already",
	},
	{
		File: "internal/steering/steward.go", Text: "if !atStart && !s.jitterHolds(ctx, &v) {", With: "if !atStart && ctx.Err() != nil {",
		Package: "internal/coretest/operating", Test: "TestFleetAfterPause",
		Why: "a fleet goes on as one at the end of a pause, and floods what the pause was for",
	},
	{
		File: "internal/steering/rulebook.go", Text: "err == nil && !sent.Before(b.asked) && (rs.Version >= b.rules.Version || sent.After(b.came)) {", With: "err == nil {",
		Package: "internal/coretest/operating", Test: "TestOldRulesComeLate",
		Why: "a slow read that began before an operator's pause ends it for a period",
	},
	{
		File: "internal/steering/steward.go", Text: "case isSlow(err) || !s.answersOthers(ctx):", With: "case !s.answersOthers(ctx):",
		Package: "internal/coretest/operating", Test: "TestSlowRulesAtBoot",
		Why: "a worker that starts during an operator's pause runs jobs, because reading the rules was slow",
	},
	{
		File: "internal/steering/rulebook.go", Text: "time.AfterFunc(b.store.timeout+deafAfter,", With: "time.AfterFunc(24*time.Hour,",
		Package: "internal/coretest/operating", Test: "TestRulesReadHangsLater",
		Why: "nobody is told that rules are not read, because a read never comes back",
	},
	{
		File: "config.go", Text: "c.Logger = safelog.New(c.Logger)", With: "_ = safelog.New(c.Logger)",
		Package: "internal/coretest/operating", Test: "TestLoggerPanics",
		Why: "a Logger that panics ends the process, and with it all jobs that run",
	},
	{
		File: "schedule/run.go", Text: "r.log = safelog.New(o.Logger)", With: "r.log = o.Logger\n\t_ = safelog.New",
		Package: "schedule", Test: "TestLoggerPanics",
		Why: "a Logger that panics ends the scheduler's process",
	},
	{
		File: "adapters/sqslambda/options.go", Text: "o.Logger = safelog.New(o.Logger)", With: "_ = safelog.New(o.Logger)",
		Package: "adapters/sqslambda", Test: "TestLoggerPanics",
		Why: "a Logger that panics ends each invocation",
	},
	{
		File: "control/once.go", Text: "\tcase <-call.Done():\n\t\treturn dedupe.Renewed{}", With: "\tcase <-make(chan int):\n\t\treturn dedupe.Renewed{}",
		Package: "control", Test: "TestDeafRenew",
		Why: "Alone and Once do not return when f has ended, because the store hangs",
	},
	{
		File: "bulk.go", Text: "\tif b.h.o.Divide {", With: "\tif false {",
		Package: "internal/coretest/batches", Test: "TestBulkDivides",
		Why: "one poison row makes dead letters of its 99 neighbours",
	},
	{
		File: "bulk.go", Text: "case parks && errors.As(err, &unknown), errors.As(err, &later):", With: "case parks && errors.As(err, &unknown) && false, errors.As(err, &later):",
		Package: "internal/coretest/batches", Test: "TestBulkDivides",
		Why: "under Park f is called again for a job whose effect may have happened",
	},
	{
		File: "bulk.go", Text: "case b.ctxs[i].Err() == nil:", With: "case true:",
		Package: "internal/coretest/batches", Test: "TestBulkDividedInADrain",
		Why: "f is called again for jobs that a drain has cut off",
	},
	{
		File: "bulk.go", Text: "\t\tcase parks && !b.cut[i] && errors.Is(context.Cause(b.ctxs[i]), verdict.ErrDraining):", With: "\t\tcase false:",
		Package: "internal/coretest/batches", Test: "TestBulkDividedInADrain",
		Why: "a deploy parks jobs of which f has said that nothing happened",
	},
	{
		File: "bulk.go", Text: "failed > wholeParts && !some && !b.isLastTry(part)", With: "failed > wholeParts && !some && b.isLastTry(part)",
		Package: "internal/coretest/batches", Test: "TestBulkDividesNoOutage",
		Why: "a database that is away gets twice as many calls as there are jobs",
	},
	{
		File: "internal/engine/starts.go", Text: "if dividable(rs, err, func(*Run[J]) int { return n }) {", With: "if false {",
		Package: "internal/coretest/batches", Test: "TestBulkWhoseStartIsNotConfirmed",
		Why: "one record on which the call fails keeps all of its batch from beginning",
	},
	{
		File: "bulk.go", Text: "parks && !b.cut[i] && errors.Is", With: "parks && errors.Is",
		Package: "internal/coretest/batches", Test: "TestBulkDividedWhoseCallIsCut",
		Why: "under Park a batch that a drain cut off runs again, although nobody knows what it did",
	},
	{
		File: "internal/engine/claim.go", Text: "errors.Is(err, context.DeadlineExceeded) && n > 0 && n < 10 {", With: "false && n > 0 {",
		Package: "internal/coretest/outages", Test: "TestSlowClaimIsNotRefused",
		Why: "a store that is slow for a moment puts jobs off for five minutes",
	},
	{
		File: "internal/engine/claim.go", Text: "en.o.Lease<<(n-1)", With: "en.o.Lease",
		Package: "internal/coretest/outages", Test: "TestSlowClaimIsNotRefused",
		Why: "a store that is slow for hours uses up the receives that the queue counts",
	},
	{
		File: "internal/engine/claim.go", Text: "c.Outcome == dedupe.Won && !r.asked {", With: "c.Outcome == dedupe.Won && r.tries == 0 {",
		Package: "internal/coretest/outages", Test: "TestClaimsApartAreNoPast",
		Why: "one record that cannot be claimed pauses the queue of a healthy store",
	},
	{
		File: "internal/steering/rulebook.go", Text: " && (rs.Version >= b.rules.Version || sent.After(b.came))", With: "",
		Package: "internal/coretest/outages", Test: "TestReadsThatCrossAreNoPast",
		Why: "two reads of the rules that cross pause the queue of a healthy store",
	},
	{
		File: "bulk.go", Text: "\t\tf.Unwatch(b)\n", With: "\t\t_ = f\n",
		Package: "internal/coretest/batches", Test: "TestBulkIsForgotten",
		Why: "a worker keeps each batch that it has done, messages and all, until its memory is full",
	},
	{
		File: "internal/engine/starts.go", Text: "min(en.o.Store.Limits().MaxBatch, MaxStoreBatch)", With: "len(at)",
		Package: "internal/coretest/batches", Test: "TestBulkRecordsItsStartsInParts",
		Why: "under Park a batch that is larger than a call of the store may be never begins",
	},
	{
		File: "internal/engine/starts.go", Text: "if rs[i].f.en == en {", With: "if en != nil {",
		Package: "internal/coretest/batches", Test: "TestBulkIsShared",
		Why: "the start of a job is asked of another worker's store, which does not know it, and the job never begins",
	},
	{
		File: "bulk.go", Text: "\th.askForSlots(j)\n", With: "\th.mu.Lock()\n\th.askForSlots(j)\n\th.mu.Unlock()\n",
		Package: ".", Test: "TestBulkLogsUnderNoLock",
		Why: "a Logger that blocks holds up all batches of a Bulk",
	},
	{
		File: "bulk.go", Text: ", errors.Is(err, context.Canceled):", With: ":",
		Package: "internal/coretest/batches", Test: "TestBulkDividesNoOutage",
		Why: "f is called again for each job alone, although all that failed was its context",
	},
	{
		File: "internal/steering/steward.go", Text: "\t\t\trefused = time.Time{}\n", With: "",
		Package: "internal/coretest/operating", Test: "TestRefusalsAmongSlowRules",
		Why: "a worker that starts during a pause runs jobs, because reading the rules was slow between two refusals",
	},
	{
		File: "internal/steering/steward.go", Text: ` || strings.HasPrefix(code, "ProvisionedThroughputExceeded")`, With: "",
		Package: "internal/coretest/operating", Test: "TestSlowRulesAtBoot",
		Why: "the same, where DynamoDB throttles a table with its own capacity",
	},
	{
		File: "internal/steering/steward.go", Text: `case "08", "40", "53", "55", "57":`, With: `case "53", "57":`,
		Package: "internal/coretest/operating", Test: "TestSlowRulesAtBoot",
		Why: "the same, where PostgreSQL has a failover, or the row is locked",
	},
	{
		File: "internal/steering/steward.go", Text: "\tdefer s.book.watchCall(ctx)()\n", With: "",
		Package: "internal/coretest/operating", Test: "TestStoreHangsAtBoot",
		Why: "no line of the log says why a worker does not start, because a call never comes back",
	},
	{
		File: "internal/steering/rulebook.go", Text: "return engine.Guard(func() (A, error) { return call(one, qs) })", With: "return call(one, qs)",
		Package: "internal/coretest/operating", Test: "TestSlowRulesAtBoot",
		Why: "a store that panics when the rules are read ends the process, and with it all jobs that run",
	},
	{
		File: "batches.go", Text: "h.norule = in.book.Require(ctx)", With: "_ = in.book.Require(ctx)",
		Package: "internal/coretest/operating", Test: "TestRequiredRulesUnread",
		Why: "a function runs jobs during an operator's pause, although its rules are required and were never read",
	},
}
