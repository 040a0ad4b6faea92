package main

// This file owns the breaks of what an operator's page rests on: the board, acts in the background,
// and lists of many pages. Each entry is data: main.go plays it, and a test sees that it still fits
// its file. Nothing is locked.

var page = []mutant{
	{
		File: "ops/board.go", Text: `		if !b.looks {`,
		With:    `		if !b.live {`,
		Package: "ops", Test: "TestBoardAsksOnce",
		Why: "fifty viewers ask the queues fifty times",
	},
	{
		File: "ops/board.go", Text: `if time.Since(b.looked) >= 4*b.bo.Every {`,
		With:    `if time.Since(b.looked) < 0 {`,
		Package: "ops", Test: "TestBoardAsksOnce",
		Why: "a service whose page nobody looks at asks its queues day and night",
	},
	{
		File: "ops/board.go", Text: `context.WithTimeout(b.looking, b.bo.Every)`,
		With:    `context.WithCancel(b.looking)`,
		Package: "ops", Test: "TestBoardOfAHungQueue",
		Why: "one queue that hangs hides all others",
	},
	{
		File: "ops/board.go", Text: `		l = append(make([]Sample, 0, 2*most), l[len(l)-most+1:]...)`,
		With:    `		l = append(l[:0], l[len(l)-most+1:]...)`,
		Package: "ops", Test: "TestBoardKeepsSamples",
		Why: "what a viewer is drawing changes under its hands",
	},
	{
		File: "ops/boardpass.go", Text: `	case x.runs:`,
		With:    `	case x.runs && b.closed:`,
		Package: "ops", Test: "TestBoardPass",
		Why: "each look at the letters receives all of them once more",
	},
	{
		File: "ops/boardpass.go", Text: `Show: b.o.shown,`,
		With:    ``,
		Package: "ops", Test: "TestBoardPass",
		Why: "texts that Redact hides are shown",
	},
	{
		File: "ops/boardpass.go", Text: `, Stop: b.stop})`,
		With:    `})`,
		Package: "ops", Test: "TestBoardPassEnds",
		Why: "a program that ends waits for a pass of minutes, or loses its letters for a while",
	},
	{
		File: "ops/boardpass.go", Text: `	case x.acts > 0:
		return false, ErrLettersBusy`,
		With: `	case x.acts < 0:
		return false, ErrLettersBusy`,
		Package: "ops", Test: "TestBoardPassBesideAnAct",
		Why: "a look at the letters lets a replay end without an error, with most of its letters not sent",
	},
	{
		File: "ops/running.go", Text: `	case used:`,
		With:    `	case used && r.closed:`,
		Package: "ops", Test: "TestRunningUsesAPlanOnce",
		Why: "a double click replays twice",
	},
	{
		File: "ops/running.go", Text: `		case e.Object == "plan "+p.ID && e.Queue == t.known && e.Act == string(p.Act):`,
		With:    `		case e.Object == "plan "+p.ID && e.Queue == t.known && a.Sent > 0:`,
		Package: "ops", Test: "TestRunningUsesAPlanOnce",
		Why: "two processes replay by one plan, one after the other",
	},
	{
		File: "ops/running.go", Text: `	if r.ro.AskFor > 0 && !spec.CanaryAny {`,
		With:    `	if r.ro.AskFor > 0 {`,
		Package: "ops", Test: "TestRunningDoesNotAsk",
		Why: "a replay that was told to go on waits for somebody's word all the same",
	},
	{
		File: "ops/running.go", Text: `	case a.stepped == b.Number:`,
		With:    `	case a.stepped > 0:`,
		Package: "ops", Test: "TestRunningStepsOneBatch",
		Why: "one word for five canaries lets all batches pass that nobody runs",
	},
	{
		File: "ops/act.go", Text: `	defer func() { // also where do panics
		if o.hear.ended`,
		With: `	defer func() { // also where do panics
		if err == errPanicked {
			return
		}
		if o.hear.ended`,
		Package: "ops", Test: "TestRunningPanics",
		Why: "an act that panicked has no end in the audit, as if its process had been killed",
	},
	{
		File: "dlq/canary.go", Text: `		if word == WatchOn {`,
		With:    `		if word == GoOn {`,
		Package: "ops", Test: "TestRunningAsks",
		Why: "a replay ends while somebody is about to say that it may go on",
	},
	{
		File: "dlq/pass.go", Text: `	case p.isStopped():
		return ErrStopped
	}`,
		With:    `	}`,
		Package: "dlq", Test: "TestStop",
		Why: "a replay that was stopped goes on to send what it has received",
	},
	{
		File: "internal/records/matches.go", Text: `	if found {
		n++
	}`,
		With:    `	_ = found`,
		Package: "dedupe/memstore", Test: "TestConformance",
		Why: "the last record of a page is the first of the next one",
	},
	{
		File: "ops/records.go", Text: ` || records.Compare(r.Key, after) <= 0)`,
		With:    ` || records.Compare(r.Key, after) < -1)`,
		Package: "ops", Test: "TestKeysOfAnOlderStore",
		Why: "with a store of somebody else's the second page is the first one again, for ever",
	},
}
