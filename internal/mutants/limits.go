package main

// This file owns the breaks of limits and breakers. main.go plays them, one after another; nothing
// is locked.

var limited = []mutant{
	{
		File: "limit/rate.go", Text: "paced := time.Duration(n - atOnce + 1)", With: "paced := time.Duration(n)",
		Package: "limit", Test: "TestRateNeverAbove",
		Why: "a burst beside the pace goes above the limit",
	},
	{
		File: "limit/rate.go", Text: "at = max(first, p.tail)", With: "_ = p.tail",
		Package: "limit", Test: "TestRateInTurn",
		Why: "jobs that come later take the times of those that wait",
	},
	{
		File: "limit/rate.go", Text: "p.tail = min(p.tail, now)", With: "_ = now",
		Package: "limit", Test: "TestRateSilent",
		Why: "jobs wait for hours for others that are gone",
	},
	{
		File: "limit/limiter.go", Text: " || endsWithin(ctx, wait))", With: ")",
		Package: "limit", Test: "TestWaitBeyondTimeout",
		Why: "a job holds a slot until its Timeout cuts it off, again and again, and nobody sees which limiter keeps it",
	},
	{
		File: "limit/limiter.go", Text: "case endsWithin(ctx, 0) || !retry.Rest(ctx, wait):", With: "case !retry.Rest(context.WithoutCancel(ctx), wait):",
		Package: "limit", Test: "TestCutOffInTheLimiter",
		Why: "a job that has not begun is parked, and an operator looks for what it may have done",
	},
	{
		File: "internal/verdict/words.go", Text: "return cause != nil || !e.IfCut", With: "return !e.IfCut",
		Package: "limit", Test: "TestCutOffAsItIsRefused",
		Why: "a job that its limiter refuses in the moment in which its Timeout strikes is parked, and it has not begun",
	},
	{
		File: "limit/limiter.go", Text: "if ok || len(t.m) < t.most {", With: "if true {",
		Package: "limit", Test: "TestHostileKeys",
		Why: "a sender who makes up keys takes all memory",
	},
	{
		File: "limit/limiter.go", Text: "			delete(t.m, k)\n", With: "			_ = k\n",
		Package: "limit", Test: "TestHostileKeys",
		Why: "keys that nobody uses any more keep others out",
	},
	{
		File: "limit/limiter.go", Text: "func (e *refusal) ErrorClass() string { return ClassLimit }", With: "",
		Package: "limit", Test: "TestLimiterFails",
		Why: "nobody can tell a limiter's failure from that of a job",
	},
	{
		File: "limit/limiter.go", Text: " || expiresIn(j) < wait || ", With: " || ",
		Package: "limit", Test: "TestExpiresBeforeItsTime",
		Why: "a job runs after it has expired, because it waited in its slot",
	},
	{
		File: "limit/limiter.go", Text: "return &verdict.NotBegunError{Err: fmt.Errorf(\"limit: %s: cut off", With: "return &refusal{err: fmt.Errorf(\"limit: %s: cut off",
		Package: "limit", Test: "TestDrainWhileItWaits",
		Why: "a deploy parks jobs that had not begun",
	},
	{
		File: "limit/shared.go", Text: "ran, err := control.RunOnce(ctx, r.store, names[i], r.kept,", With: "ran, err := control.RunOnce(ctx, r.store, names[i], r.kept/2,",
		Package: "limit", Test: "TestSharedNeverAbove",
		Why: "two uses of a block are less than a window apart",
	},
	{
		File: "limit/shared.go", Text: "until: now + r.use, wall: wall.Add(time.Duration(r.use))", With: "until: now + int64(r.kept), wall: wall.Add(r.kept)",
		Package: "limit", Test: "TestSharedBlockEnds",
		Why: "starts of a block are used beside those of its next owner",
	},
	{
		File: "limit/shared.go", Text: "		return b.wait(a, now, every), nil, b.err\n", With: "		return 0, nil, nil\n",
		Package: "limit", Test: "TestSharedStoreAway",
		Why: "jobs run without a limit while the store is away",
	},
	{
		File: "limit/slots.go", Text: "context.WithCancelCause(context.WithoutCancel(ctx))", With: "context.WithCancelCause(ctx)",
		Package: "limit", Test: "TestSlotsHoldsWhileItRuns",
		Why: "a handler that ignores its context loses its place, and another runs beside it",
	},
	{
		File: "limit/slots.go", Text: "return !time.Now().Before(r.LeaseUntil) ||", With: "return",
		Package: "limit", Test: "TestSlotsDeadHolder",
		Why: "the place of a process that died stays taken for twice as long",
	},
	{
		File: "limit/breaker.go", Text: "StateHalfOpen: 1 + b.hung}", With: "StateHalfOpen: 1}",
		Package: "limit", Test: "TestBreakerHungHandlers",
		Why: "one handler that hangs keeps a worker from all work, long after the provider is back",
	},
	{
		File: "limit/breaker.go", Text: "if failed && left > 0 && ended && !isFinal(j, err) {", With: "if failed && left < 0 && ended {",
		Package: "limit", Test: "TestBreakerOutage",
		Why: "each probe of a long outage is an attempt of some job",
	},
	{
		File: "limit/shared.go", Text: "	if !ok {\n		return full(), nil, nil", With: "	if !ok && b != nil {\n		return full(), nil, nil",
		Package: "limit", Test: "TestHostileKeys/shared",
		Why: "a sender who makes up keys takes all memory of a process",
	},
	{
		File: "limit/breaker.go", Text: "return failed == b.o.Runs || len", With: "return len",
		Package: "limit", Test: "TestBreakerOutage/a_job_a_minute",
		Why: "where jobs are few an outage uses up their attempts, and the breaker stays closed",
	},
	{
		File: "limit/breaker.go", Text: "b.runs = b.runs[:copy(b.runs, b.runs[1:])]", With: "",
		Package: "limit", Test: "TestBreakerSomeFail",
		Why: "some failures a day stop all work in the end, as if the provider were away",
	},
	{
		File: "bounds.go", Text: "if o.slots > 0 && (slots == 0 || o.slots < slots) {", With: "if o.slots > 0 {",
		Package: "internal/coretest/operating", Test: "TestLowestLimit",
		Why: "an operator's limit raises that of the program, or the other way round",
	},
	{
		File: "bounds.go", Text: "delete(b.brakes, me)", With: "clear(b.brakes)",
		Package: "internal/coretest/operating", Test: "TestBrakes",
		Why: "one breaker that closes lets jobs run into another one's outage",
	},
	{
		File: "control/once.go", Text: "\t\t\tif errors.Is(a.Err, dedupe.ErrLeaseLost) {\n", With: "\t\t\tif true {\n",
		Package: "control", Test: "TestLockOutlivesAnOutage",
		Why: "what runs loses its place to others some time after an outage of the store",
	},
	{
		File: "control/once.go", Text: "_ = storecall.Settle(last, s, dedupe.Settlement{Key: k, Token: token, To: dedupe.Released, Uncounted: true, Retain: onceKept})", With: "_, _ = last, onceKept",
		Package: "internal/tests/matrix", Test: "TestLimits/^memory$/^slots$/^rerun$",
		Why: "a place stays taken for half a minute after each job",
	},
	{
		File: "limit/shared.go", Text: "\t\tcase err != nil:\n\t\t\treturn g, err\n\t\tcase ran:", With: "\t\tcase ran || err != nil:",
		Package: "limit", Test: "TestSharedTakerDies",
		Why: "a block that was not recorded is used, and another process has it, too",
	},
	{
		File: "limit/limiter.go", Text: "\t\t\t\treturn refused(name, err)\n", With: "\t\t\t\treturn next.Handle(ctx, j)\n",
		Package: "internal/tests/matrix", Test: "TestLimits/^memory$/^shared$/^rerun$/^get-3$",
		Why: "a limiter that has failed lets the job run without a limit",
	},
	{
		File: "limit/limiter.go", Text: "return onceq.Postpone(2*time.Second+rand.N(8*time.Second), err)", With: "_ = rand.N(8); return err",
		Package: "internal/tests/matrix", Test: "TestLimits/^memory$/^shared$/^rerun$/^get-3$",
		Why: "while the store is away each job uses up its attempts",
	},
	{
		File: "limit/slots.go", Text: "return false, refused(p.name, away(err))", With: "return true, next.Handle(ctx, j)",
		Package: "limit", Test: "TestSlotsStoreAway",
		Why: "a job whose place the store did not confirm runs beside those that have one",
	},
	{
		File: "limit/slots.go", Text: "\t\tp.mine[i] = false\n", With: "\t\t_ = i\n",
		Package: "internal/tests/matrix", Test: "TestLimits/^memory$/^slots$/^rerun$/^ack-2$",
		Why: "a place that another process had once is lost to this one for ever",
	},
	{
		File: "adapters/membroker/options.go", Text: "maxInFlight: math.MaxInt, groups: true, minReceives: 1,", With: "maxInFlight: math.MaxInt, groups: false, minReceives: 1,",
		Package: "limit", Test: "TestPostponedHeadHoldsItsGroup",
		Why: "what comes behind a postponed job of its group overtakes it",
	},
}
