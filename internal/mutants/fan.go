package main

// This file owns the breaks of fans, of Wait and of SendOnce. main.go plays them, one after
// another; nothing is locked.

var fanned = []mutant{
	{
		File: "fan/fan.go", Text: "m.Meta.ID, m.Meta.Created, m.DedupID = m.Meta.Key, f.At, \"\"", With: "m.Meta.Key += time.Now().String()",
		Package: "fan", Test: "TestCrashesOfAParent",
		Why: "children that are sent twice run twice",
	},
	{
		File: "fan/fan.go", Text: "			f.Sent++\n", With: "			f.Sent = to\n",
		Package: "fan", Test: "TestSendFails",
		Why: "a child that the queue has refused is never sent",
	},
	{
		File: "fan/fan.go", Text: "	case st.N != c.N || st.Scope != c.Scope:", With: "	case false:",
		Package: "fan", Test: "TestChanged",
		Why: "a parent goes on with other children than it has begun with",
	},
	{
		File: "fan/fan.go", Text: "!begun && class != onceq.ClassPostponed", With: "begun && class != \"\"",
		Package: "fan", Test: "TestReplayIsSoon",
		Why: "a parent that is replayed waits for hours",
	},
	{
		File: "fan/fan.go", Text: "m.Group != \"\" && m.Group == f.j.Message.Group", With: "false",
		Package: "fan", Test: "TestOrderedGroup",
		Why: "a parent and its children wait for each other",
	},
	{
		File: "fan/fan.go", Text: "if drains, _ := ctx.Value(jointctx.Drains{}).(bool); drains {", With: "if drains, _ := ctx.Value(jointctx.Drains{}).(bool); drains && false {",
		Package: "fan", Test: "TestCutShort/drain,_parks",
		Why: "a deploy parks a parent amid its sends",
	},
	{
		File: "fan/fan.go", Text: "if !f.until.IsZero() && time.Now().After(f.until) {", With: "if false {",
		Package: "fan", Test: "TestCutShort/timeout,_parks",
		Why: "a Timeout parks a parent amid its sends",
	},
	{
		File: "fan/fan.go", Text: "if final || back || !further {", With: "if final || back || further || !further {",
		Package: "fan", Test: "TestSendFails",
		Why: "a queue that refuses now and then uses up the attempts of a large fan",
	},
	{
		File: "fan/fan.go", Text: "digest.Of(\"onceq fan 1\", parent.Scope, parent.Key, name)", With: "digest.Of(\"onceq fan 1\", parent.Key, name)",
		Package: "fan", Test: "TestKeys",
		Why: "parents of one key in two scopes share their children",
	},
	{
		File: "fan/look.go", Text: "if rec == nil || rec.Status != dedupe.Done {", With: "if rec == nil || rec.Status == dedupe.Claimed {",
		Package: "fan", Test: "TestWaitForReplay",
		Why: "a parent goes on although a child has failed",
	},
	{
		File: "fan/look.go", Text: "		f.Ahead += len(rs)\n", With: "",
		Package: "fan", Test: "TestFailParent",
		Why: "a child that failed behind a slow one is noticed when that ends",
	},
	{
		File: "fan/look.go", Text: "case r == nil && gone(now),", With: "case",
		Package: "fan", Test: "TestUnproven",
		Why: "a parent waits for ever for a child that is forgotten",
	},
	{
		File: "fan/look.go", Text: "return f.end(ClassChild, \"child %d: %w\", from+n, &onceq.FailedError", With: "return f.end(r.ErrClass, \"child %d: %w\", from+n, &onceq.FailedError",
		Package: "fan", Test: "TestChildErrors",
		Why: "a parent has the class of its child, and operators take it for that",
	},
	{
		File: "fan/look.go", Text: "case r == nil || r.Status != dedupe.Done:", With: "case r == nil:\n		return v, nil\n	case r.Status != dedupe.Done:",
		Package: "fan", Test: "TestResults",
		Why: "a result that is gone counts as zero",
	},
	{
		File: "wait.go", Text: "rec.Status == dedupe.Claimed && rec.MessageID != \"\" && time.Now().Before(rec.LeaseUntil)", With: "rec.Status == dedupe.Claimed",
		Package: "internal/coretest/doing", Test: "TestSendOnce",
		Why: "a job whose worker died, or that a call of Do had, is never sent",
	},
	{
		File: "wait.go", Text: "	case err != nil || rec == nil:\n", With: "	case err != nil:\n		return nil, nil\n	case rec == nil:\n",
		Package: "internal/coretest/doing", Test: "TestSendOnce",
		Why: "a store that is away swallows what is to be sent",
	},
	{
		File: "wait.go", Text: "if err := endOf(k, rec); err != nil {\n				return nil, err\n			}", With: "",
		Package: "internal/coretest/doing", Test: "TestWait",
		Why: "a caller waits for a job that has failed",
	},
	{
		Rule: "protocol: *Do*: done returns the stored result",
		File: "do.go", Text: "case OutcomeRetried, OutcomePostponed, OutcomeHandedBack:", With: "case OutcomeRetried, OutcomeHandedBack:",
		Package: "internal/coretest/doing", Test: "TestDoPostponed",
		Why: "who calls Do is told that nothing is recorded, where its job was given back",
	},
	{
		File: "fan/look.go", Text: "case f.c.Failed == FailParent && f.isOver(now, r):", With: "case false:",
		Package: "fan", Test: "TestChildExpires",
		Why: "a parent that shall fail with its children waits a month for one that has expired",
	},
	{
		File: "fan/look.go", Text: "if r != nil && r.Status == dedupe.Done {\n\t\t\tf.Keeps", With: "if false {\n\t\t\tf.Keeps",
		Package: "fan", Test: "TestOtherRetention",
		Why: "a parent waits a month for a child that was done and is forgotten",
	},
	{
		File: "fan/look.go", Text: "r.Attempt == 0 && r.ErrClass == \"\" && gone(r.Created)", With: "false",
		Package: "fan", Test: "TestSentLate",
		Why: "a parent waits another month for children that their workers have refused",
	},
	{
		File: "fan/fan.go", Text: "m.Meta.ID, m.Meta.Created, m.DedupID = m.Meta.Key, f.At, \"\"", With: "m.Meta.ID, m.Meta.Created, m.DedupID = m.Meta.Key, time.Now(), \"\"",
		Package: "fan", Test: "TestSentLate",
		Why: "a child that is sent again when its key is forgotten runs a second time",
	},
	{
		File: "fan/look.go", Text: "	for n := 1; f.Done < f.N; n++ {", With: "	f.Done = 0\n	for n := 1; f.Done < f.N; n++ {",
		Package: "fan", Test: "TestOtherRetention",
		Why: "a parent fails, or waits for ever, for a child that it has seen done, and that is forgotten",
	},
	{
		File: "fan/look.go", Text: "|| r.ErrClass == onceq.ClassCancelled): // that has no letter", With: "): // that has no letter",
		Package: "internal/tests/matrix", Test: "TestFans/^memory$/^cancelled$",
		Why: "a parent waits a month for a child that was cancelled",
	},
	{
		File: "fan/look.go", Text: "case r.Status == dedupe.Failed && (f.c.Failed == FailParent ||", With: "case r.Status == dedupe.Failed && (true ||",
		Package: "internal/tests/matrix", Test: "TestFans/^memory$/^replayed$",
		Why: "a parent fails for a child whose letter an operator would have replayed",
	},
	{
		File: "fan/fan.go", Text: "	return wait\n}\n\n// fan is", With: "	_ = wait\n	return nil\n}\n\n// fan is",
		Package: "internal/tests/matrix", Test: "TestFans/^memory$/^done$/^rerun$",
		Why: "a parent goes on before its children are done",
	},
}
