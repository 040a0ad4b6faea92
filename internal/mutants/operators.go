package main

var operators = []mutant{
	{
		File: "dlq/planned.go", Text: " && m.Published.Before(w.plan.Made)",
		With:    "",
		Package: "dlq", Test: "TestPlanOfMoreThanIsHeld",
		Why: "a letter that came after the plan is sent where its worker's clock is behind",
	},
	{
		File: "dlq/planned.go", Text: "w.plan.Rest.Filter.chooses(m) && ",
		With:    "",
		Package: "dlq", Test: "TestPlanOfMoreThanIsHeld",
		Why: "letters of another failure are sent that nobody agreed to",
	},
	{
		File: "dlq/plan.go", Text: `		return p.Rest.Filter.Max`,
		With:    `		return of`,
		Package: "dlq", Test: "TestPlanOfMoreThanIsHeld",
		Why: "more letters are sent than --max was",
	},
	{
		File: "dlq/planned.go", Text: `		p.clearOut(p.q.o.MaxHeld, 0)`,
		With:    "",
		Package: "dlq", Test: "TestPlanOfMoreThanIsHeld",
		Why: "of a long queue nothing can be replayed",
	},
	{
		File: "dlq/planned.go", Text: `	p.clearOut(max(1, p.q.o.MaxHeld/4), after)`,
		With:    "",
		Package: "dlq", Test: "TestPlanBehindNewerLetters",
		Why: "a plan cannot be kept to when more letters came than are held",
	},
	{
		File: "dlq/planned.go", Text: "w != nil && !w.open && len(w.left) == 0",
		With:    "w != nil && len(w.left) == 0",
		Package: "dlq", Test: "TestRestIsJudged",
		Why: "a replay ends when the list is through, and the rest stays",
	},
	{
		File: "dlq/walk.go", Text: "d.InFlight <= int64(w.k.len())",
		With:    "d.InFlight >= 0",
		Package: "dlq", Test: "TestLookEndsEarly",
		Why: "a look misses letters that others give back",
	},
	{
		File: "dlq/hold.go", Text: `	if len(k.brief) < holdBriefly+lengthened {`,
		With:    `	if len(k.brief) < 100*holdBriefly {`,
		Package: "dlq", Test: "TestManyAreHeld",
		Why: "a look at 100,000 letters makes hundreds of requests a second",
	},
	{
		File: "dlq/canary.go", Text: `	if len(r.back) > 0 || !proven {`,
		With:    `	if len(r.back) > 0 || !proven && false {`,
		Package: "ops", Test: "TestCanariesPassWhenDone",
		Why: "canaries that nobody ran prove the others",
	},
	{
		File: "dlq/canary.go", Text: `			if len(b.Failed) > 0 && !r.o.CanaryAny {`,
		With:    `			if false {`,
		Package: "ops", Test: "TestCanariesPassWhenDone",
		Why: "canaries that failed and are retried hold nobody up",
	},
	{
		File: "ops/canary.go", Text: `since(a.Fence, a.Claimed) && a.Class != ""`,
		With:    `since(a.Fence, a.Claimed) && a.Class == "-"`,
		Package: "ops", Test: "TestCanariesPassWhenDone",
		Why: "a canary that runs again after an error counts as running",
	},
	{
		File: "ops/canary.go", Text: "rules.For(t.known, of.scope, of.typ, now)",
		With:    `rules.For(t.known, "", "", now)`,
		Package: "ops", Test: "TestCanariesAreRefused",
		Why: "canaries of a paused type are sent, and wait",
	},
	{
		File: "dlq/import.go", Text: `name != "" && seen[name]`,
		With:    "false",
		Package: "ops", Test: "TestPurgedLettersComeBack",
		Why: "a letter that was exported twice comes back twice",
	},
	{
		File: "dlq/import.go", Text: `	out = broker.Outgoing{Body: x.Base64, Attributes: x.Attributes, Group: x.Group}`,
		With:    `	out = broker.Outgoing{Body: x.Base64, Group: x.Group}`,
		Package: "cmd/onceq/internal/cli", Test: "TestSendFrom",
		Why: "a message comes back without its attributes",
	},
	{
		File: "dlq/list.go", Text: `				e.Message = show(e.Message)`,
		With:    "",
		Package: "ops", Test: "TestLettersAreRedacted",
		Why: "the first screen shows what the service hides",
	},
	{
		File: "cmd/onceq/internal/cli/keep_unix.go", Text: "const noFollow = syscall.O_NOFOLLOW",
		With:    "const noFollow = syscall.O_RDONLY",
		Package: "cmd/onceq/internal/cli", Test: "TestPurgeKeepsInOwnFile",
		Why: "letters go through a link into somebody else's file",
	},
}
