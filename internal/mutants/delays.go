package main

var delays = []mutant{
	{
		File: "batches.go", Text: "	in.foreign.keeps.Store(int64(c.Keeps))\n", With: "",
		Package: "internal/coretest/batches", Test: "TestDueBeyondKeeps/beyond_Keeps",
		Why: "a job that is due later than a function's queue keeps it is lost, and nobody is told",
	},
	{
		File: "intake.go", Text: "		in.warnUnkept(r, left)\n", With: "",
		Package: "internal/coretest/batches", Test: "TestDueBeyondKeeps/nobody_says",
		Why: "nobody hears that a function's queue may drop a job before it is due",
	},
	{
		File: "ahead.go", Text: "if q.Keeps <= 0 && q.Receives <= 0 {", With: "if true {",
		Package: "adapters/awssqs", Test: "TestJobsThatOutlastTheQueue",
		Why: "SQS deletes a job that is due later than it keeps messages, and nobody knows",
	},
	{
		File: "ahead.go", Text: " && r.Flow().StoppedFor() < c.lastTry()", With: "",
		Package: "internal/coretest/jobs", Test: "TestPostponedAtTheCut",
		Why: "a drain abandons a job that cannot be sent anew, and its letter says nothing of why",
	},
	{
		File: "ahead.go", Text: "if on := r.Flow().StoppedFor(); on > 0 &&", With: "if on := r.Flow().StoppedFor(); false &&",
		Package: "internal/coretest/jobs", Test: "TestPostponedAtTheCut",
		Why: "a copy whose call hangs takes all of a drain's time, and the job is abandoned without a letter",
	},
	{
		File: "ahead.go", Text: "return r.Flow().Abandoned() })", With: "return false })",
		Package: "internal/coretest/jobs", Test: "TestCopyOfAnAbandonedJob",
		Why: "a worker uses the program's Sender after Run has returned, when it may be closed",
	},
	{
		File: "internal/ahead/ahead.go", Text: "published.Add(q.Keeps).Sub(due) < q.margin()", With: "published.Add(q.Keeps).Sub(due) < 0",
		Package: "internal/ahead", Test: "TestRefuses",
		Why: "a job is due in the moment in which its queue deletes it",
	},
	{
		File: "internal/ahead/ahead.go", Text: "at > most || hops > 1 && at > most-spare", With: "at > most+1000",
		Package: "adapters/gcppubsub", Test: "TestJobsThatOutlastTheSubscription",
		Why: "the queue's own redrive moves a job away that was never tried",
	},
	{
		File: "dlq/early.go", Text: "if why == \"\" {", With: "if true {",
		Package: "adapters/awssqs", Test: "TestJobsThatOutlastTheQueue",
		Why: "a replay sends a letter that its worker refuses again",
	},
	{
		File: "control/cost.go", Text: "if p.outlasts() || !p.paysReceives() {", With: "if !p.paysReceives() {",
		Package: "ops", Test: "TestPauseThatOutlastsTheQueue",
		Why: "an operator's pause lets the queue delete what waits",
	},
	{
		File: "send.go", Text: "if due := dueBy(m); meta.NotBefore.Before(due) {", With: "if due := dueBy(m); false && meta.NotBefore.Before(due) {",
		Package: "internal/coretest/jobs", Test: "TestDelayBeyondRetention",
		Why: "a job that was delayed for longer than Retention never runs",
	},
	{
		File: "send.go", Text: "if m.Delay > plainDelay && !m.Meta.Created.IsZero() {", With: "if m.Delay > 0 && !m.Meta.Created.IsZero() {",
		Package: "internal/coretest/jobs", Test: "TestFillDelay",
		Why: "a short delay costs a receive where clocks differ, and makes two sends of one job differ",
	},
	{
		File: "job.go", Text: "case o.Was == OneHandler:", With: "case false:",
		Package: "internal/coretest/jobs", Test: "TestTheWayToAMux",
		Why: "what a single handler has done is done again under a Mux",
	},
	{
		File: "job.go", Text: "cmp.Or(o.Was, typ)", With: "typ",
		Package: "internal/coretest/jobs", Test: "TestTheWayToAMux",
		Why: "what a type has done is done again once it has another name",
	},
	{
		File: "mux.go", Text: "return m.types[m.heir(typ)]", With: "return nil",
		Package: "internal/coretest/jobs", Test: "TestTheWayToAMux",
		Why: "messages with a type's former name end as dead letters",
	},
	{
		Rule: "protocol: *Scopes*",
		File: "mux.go", Text: "case !m.oneScope && r.options.Scope == \"\" && r.options.Was == \"\":", With: "case false:",
		Package: "internal/coretest/jobs", Test: "TestMuxScopeMistakes",
		Why: "bare messages get other keys than they had, and nobody has said so",
	},
	{
		File: "hosts.go", Text: "if t := in.types[typ]; !ok && t != nil && t.name != typ {", With: "if t := in.types[typ]; false && t != nil {",
		Package: "internal/coretest/jobs", Test: "TestPausedByEachName",
		Why: "jobs of a paused type run under its former name",
	},
}
