package main

var web = []mutant{
	{
		File: "cmd/onceq/internal/cli/web.go", Text: "return session, d.next()", With: "return session, d.url + d.token",
		Package: "cmd/onceq/internal/cli", Test: "TestWeb",
		Why: "the printed address opens the page again, for whoever has read it somewhere",
	},
	{
		File: "cmd/onceq/internal/cli/web.go", Text: "Path: d.base + \"/\", HttpOnly", With: "Path: \"/\", HttpOnly",
		Package: "cmd/onceq/internal/cli", Test: "TestWeb",
		Why: "another user's server on this address is sent the cookie",
	},
	{
		File: "ops/board.go", Text: "if s.At.After(b.reread) {", With: "if !s.At.IsZero() {",
		Package: "ops", Test: "TestBoardReadsRules",
		Why: "a look that was under way brings back the rules of before",
	},
	{
		File: "adapters/webonceq/door.go", Text: "!who.May.has(x.need) {", With: "!who.May.has(x.need & Look) {",
		Package: "adapters/webonceq", Test: "TestEachRouteNeedsItsPermission",
		Why: "whoever may look may act, too",
	},
	{
		File: "adapters/webonceq/door.go", Text: "if !hosts(p.o.Hosts).known(r.Host) {", With: "if r.Host == \"\" {",
		Package: "adapters/webonceq", Test: "TestForeignRequests",
		Why: "a page of another site reaches ours under a name of its own",
	},
	{
		File: "adapters/webonceq/door.go", Text: "if err := p.cross.Check(r); err != nil {", With: "if err := p.cross.Check(r); err != nil && r.Host == \"\" {",
		Package: "adapters/webonceq", Test: "TestForeignRequests",
		Why: "another site's page sends our forms",
	},
	{
		File: "adapters/webonceq/access.go", Text: "if !slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) }) {", With: "if !peer.IsValid() {",
		Package: "adapters/webonceq", Test: "TestForeignRequests",
		Why: "anybody sets the proxy's header, and is who he likes",
	},
	{
		File: "adapters/webonceq/access.go", Text: "a.May &= All; a.Name == \"\"", With: "a.May &= All; a.Name == \"\\x00\"",
		Package: "adapters/webonceq", Test: "TestWithoutANameNobodyActs",
		Why: "nobody acts, and the audit does not know who",
	},
	{
		File: "adapters/webonceq/plans.go", Text: "case x.by != a.who.Name:", With: "case x.by == \"\":",
		Package: "adapters/webonceq", Test: "TestPlanOfSomebodyElse",
		Why: "the plan of one is run by another",
	},
	{
		File: "adapters/webonceq/plans.go", Text: "if x.kind != kind {", With: "if x.kind == \"\" {",
		Package: "adapters/webonceq", Test: "TestPlanOfAnotherAct",
		Why: "an edited replay runs by the address that needs no permission to edit",
	},
	{
		File: "adapters/webonceq/plans.go", Text: "\tif a.can(Bodies) {\n\t\td.Edits = c.edits\n\t}", With: "\td.Edits = c.edits",
		Package: "adapters/webonceq", Test: "TestNoButtonForWhatIsRefused",
		Why: "a plan shows bodies to people who may not see any",
	},
	{
		File: "adapters/webonceq/words.go", Text: "if i < 0 || a.ruleSeen(rules[i], queue).ID == \"\" {", With: "if i < 0 {",
		Package: "adapters/webonceq", Test: "TestRuleOfAllQueues",
		Why: "whoever sees one queue ends the pause of all",
	},
	{
		File: "adapters/webonceq/words.go", Text: "Rule: id, Reason: reason}", With: "Reason: reason}",
		Package: "adapters/webonceq", Test: "TestEndOneRule",
		Why: "the end of one pause ends all pauses of the queue",
	},
	{
		File: "adapters/webonceq/webonceq.go", Text: "MaxActs: MaxActs,", With: "MaxActs: 64,",
		Package: "adapters/webonceq", Test: "TestMostActs",
		Why: "acts beyond the limit begin",
	},
	{
		File: "adapters/webonceq/plans.go", Text: "a.see(\"/acts/\" + act) // a second click\n\t\treturn nil", With: "_ = act\n\t\treturn again(http.StatusConflict, ops.ErrPlanUsed)",
		Package: "adapters/webonceq", Test: "TestDoubleClick",
		Why: "whoever clicks twice is told of an error, though his replay runs",
	},
	{
		File: "adapters/webonceq/letters.go", Text: " && (a.who.Queues == nil || slices.Contains(scopes, k.Scope)) {", With: " && len(scopes) >= 0 {",
		Package: "adapters/webonceq", Test: "TestLetterOfAnothersRecord",
		Why: "who sees one queue reads of a job of another one, by a letter that names it",
	},
	{
		File: "adapters/webonceq/keys.go", Text: "if a.who.Queues != nil { // the table has", With: "if a.who.Queues != nil && d.Price != \"\" { // the table has",
		Package: "adapters/webonceq", Test: "TestSizeOfSharedTable",
		Why: "who sees one queue learns how many records all queues of its table have",
	},
	{
		File: "adapters/webonceq/keys.go", Text: "|| len(scopes) > 0", With: "",
		Package: "adapters/webonceq", Test: "TestKeysOfAQueue",
		Why: "a queue's parked keys are those of all queues of its store, under its name",
	},
	{
		File: "adapters/webonceq/keys.go", Text: "return slices.Contains(scopes, k.Scope), err", With: "return len(scopes) > 0, err",
		Package: "adapters/webonceq", Test: "TestOtherQueuesAreNotThere",
		Why: "whoever sees one queue decides on the keys of all that share its store",
	},
	{
		File: "adapters/webonceq/patch.go", Text: "of = slices.DeleteFunc(of, func(m member) bool { return m.name == c.name })", With: "of = append(of, member{c.name, c.value})",
		Package: "adapters/webonceq", Test: "TestMergePatch",
		Why: "a member that the patch removes is null in each body",
	},
	{
		File: "adapters/webonceq/events.go", Text: "if p.life.streams.Add(1) > MaxStreams {", With: "if p.life.streams.Add(1) < 0 {",
		Package: "adapters/webonceq", Test: "TestStream",
		Why: "each open tab holds a goroutine and a connection, without a limit",
	},
	{
		File: "ops/key.go", Text: "l.Letter.Message = o.shown(l.Letter.Message)", With: "_ = o.shown",
		Package: "ops", Test: "TestLettersAreRedacted",
		Why: "a key's time line shows what Options.Redact hides everywhere else",
	},
	{
		File: "adapters/webonceq/trouble.go", Text: "case a.can(Bodies) || err == nil:", With: "case a.can(Look) || err == nil:",
		Package: "adapters/webonceq", Test: "TestHiddenTroubles",
		Why: "a refused button shows a store's address and user to whoever may look",
	},
	{
		File: "adapters/webonceq/plans.go", Text: "return x.by != by })", With: "return x.by == by })",
		Package: "adapters/webonceq", Test: "TestPlansOfOthersStay",
		Why: "one person's plans push out another one's",
	},
	{
		File: "ops/overview.go", Text: "if v.ts[i].deaf[of].Load() > 0 {", With: "if v.ts[i].deaf[of].Load() < 0 {",
		Package: "ops", Test: "TestBoardDeafQueue",
		Why: "each look leaves one more goroutine at a queue that does not answer",
	},
}
