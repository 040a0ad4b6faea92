package main

// This file owns the breaks of schedules: when an entry is due, which instants are open, and what
// operators see. main.go plays them, one after another; nothing is locked.

var schedules = []mutant{
	{
		File: "schedule/cron.go", Text: "peak.After(next) {", With: "false && peak.After(next) {",
		Package: "schedule", Test: "TestCronByTable",
		Why: "in the hour that comes twice an entry runs twice, each under a key of its own",
	},
	{
		File: "schedule/cron.go", Text: "\t\tif t.Before(begin) {\n\t\t\tt = begin", With: "\t\tif t.Before(begin) {\n\t\t\tt = t.Add(0)",
		Package: "schedule", Test: "TestCronByTable",
		Why: "a time that the summer time leaves out is due at another instant than the page says",
	},
	{
		File: "schedule/cron.go", Text: "c.weekday |= c.weekday >> 7 & 1", With: "_ = c.weekday",
		Package: "schedule", Test: "TestCronByTable",
		Why: "an entry on day 7 never runs",
	},
	{
		File: "schedule/entry.go", Text: "case c.CatchUp > c.Retention:", With: "case false:",
		Package: "schedule", Test: "TestBadEntries",
		Why: "an instant is caught up after the workers have forgotten its key, and runs twice",
	},
	{
		File: "schedule/entry.go", Text: "m.Meta.Key, m.Meta.Created = Key(e.Name, at), at", With: "m.Meta.Created = at",
		Package: "schedule", Test: "TestMessage",
		Why: "a second message of an instant is another job",
	},
	{
		File: "schedule/entry.go", Text: "if m.Meta = m.Meta.Clone(); m.Meta == nil {", With: "if m.Meta == nil {",
		Package: "schedule", Test: "TestMessage",
		Why: "a Meta that the user's messages share is changed under him",
	},
	{
		File: "schedule/run.go", Text: "if names[e.Name] {", With: "if false {",
		Package: "schedule", Test: "TestBadEntries",
		Why: "of two entries of one name each loses the instants that the other has sent",
	},
	{
		File: "schedule/run.go", Text: "if err != nil && !r.first {", With: "if err != nil && len(r.on) < 0 {",
		Package: "schedule", Test: "TestBadEntries",
		Why: "a mistake in the first list is a line in the log, and nothing ever runs",
	},
	{
		File: "schedule/run.go", Text: "r.on[e.Name], r.adopts = e, time.Time{}", With: "r.on[e.Name] = e",
		Package: "schedule", Test: "TestListChanges",
		Why: "an entry that comes while Run runs waits for up to an hour",
	},
	{
		File: "schedule/runner.go", Text: "if e.wake = wake; !e.gone {", With: "if e.wake = wake; true {",
		Package: "schedule", Test: "TestGoneWhileSending",
		Why: "an entry that was taken out of the list while it was sent runs on for ever",
	},
	{
		File: "schedule/pass.go", Text: "fresh[i] && (old.Spec != e.Spec || old.Own != e.Own):", With: "false:",
		Package: "schedule", Test: "TestFirstDeployment",
		Why: "a changed schedule sends what would have been due before the change",
	},
	{
		File: "schedule/pass.go", Text: "case sent:", With: "case sent && false:",
		Package: "schedule", Test: "TestTheList",
		Why: "an instant that was sent is claimed again and again",
	},
	{
		File: "schedule/pass.go", Text: "case now.Sub(at) > e.CatchUp:", With: "case false:",
		Package: "schedule", Test: "TestDown",
		Why: "instants are sent however late they are",
	},
	{
		File: "schedule/pass.go", Text: "l.open = l.open[:0]", With: "l.full = false",
		Package: "schedule", Test: "TestDown",
		Why: "Latest sends all that were missed",
	},
	{
		File: "schedule/pass.go", Text: "fresh[i] && now.Sub(old.Seen) > askEach", With: "false",
		Package: "schedule", Test: "TestShortOutageIsToldOnce",
		Why: "each scheduler that starts after an outage tells of the same missed instants",
	},
	{
		File: "schedule/pass.go", Text: "e.done, e.left = l.done, l.left", With: "e.done = l.done",
		Package: "schedule", Test: "TestMessageFails",
		Why: "an instant whose send failed once is never sent",
	},
	{
		File: "schedule/pass.go", Text: "reflect.ValueOf(to).Comparable()", With: "reflect.ValueOf(to).Comparable() && false",
		Package: "schedule", Test: "TestHungQueue",
		Why: "one queue that hangs holds up the entries of all others",
	},
	{
		File: "ops/schedules.go", Text: "if r := sent[0]; r != nil && r.Status == dedupe.Done && t.Last.IsZero() {", With: "if t.Last.IsZero() {",
		Package: "cmd/onceq/internal/cli", Test: "TestScheduleLs",
		Why: "operators see an instant as sent that was not",
	},
	{
		File: "schedule/pass.go", Text: "for t := e.done; len(l.open) < mostOpen; {", With: "for t := e.done; len(e.left) == 0 && len(l.open) < mostOpen; {",
		Package: "schedule", Test: "TestPoisonedInstant",
		Why: "an instant that cannot be sent keeps all later ones from being sent",
	},
	{
		File: "schedule/pass.go", Text: "case errors.Is(err, control.ErrInvalid): // others' entries go on", With: "case errors.Is(err, control.ErrInvalid) && false:",
		Package: "schedule", Test: "TestFullList",
		Why: "one tenant's many entries keep everybody's from being sent",
	},
	{
		File: "limit/shared.go", Text: "case r.Status == dedupe.Claimed && time.Until(r.LeaseUntil) <= placeTTL:", With: "case r.Status == dedupe.Claimed:",
		Package: "limit", Test: "TestSharedTakerDies",
		Why: "a block whose taker died is nobody's while the clock is behind",
	},
	{
		File: "limit/rate.go", Text: "wait > 0 && wait >= holdOf(ctx)", With: "wait >= MaxHold",
		Package: "limit", Test: "TestShortTimeout",
		Why: "a job whose time is over before its start takes the start with it, again and again",
	},
	{
		File: "schedule/entry.go", Text: "= Key(e.Name, at), at", With: "= Key(e.Name, at), time.Now()",
		Package: "internal/tests/matrix", Test: "TestSchedules/^memory$/^deploys=false$/^send-4$",
		Why: "a second message of an instant that comes after the key's retention runs",
	},
	{
		File: "schedule/entry.go", Text: "m.Meta.Key, m.Meta.Created = Key(e.Name, at), at", With: "m.Meta.Key, m.Meta.Created = Key(fmt.Sprint(e.Name, e.Schedule), at), at",
		Package: "internal/tests/matrix", Test: "TestSchedules/^memory$/^deploys=true$",
		Why: "an instant that two schedules of an entry have in common is two jobs",
	},
	{
		File: "schedule/pass.go", Text: "\t\t\treturn onceq.SendOne(ctx, e.To, &m)\n", With: "\t\t\tgo func() { _ = onceq.SendOne(context.WithoutCancel(ctx), e.To, &m) }()\n\t\t\treturn nil\n",
		Package: "internal/tests/matrix", Test: "TestSchedules/^memory$/^deploys=false$",
		Why: "an instant is recorded as sent before its message is stored, and a crash or a refusal loses it",
	},
	{
		File: "schedule/pass.go", Text: "earliest(opens[i], now.Add(-e.CatchUp))", With: "now",
		Package: "internal/tests/matrix", Test: "TestSchedules/^memory$/^deploys=false$/^send-4$",
		Why: "what was due while no scheduler was up is never sent",
	},
	{
		File: "schedule/pass.go", Text: "\t\t\topens[i] = e.Born\n", With: "\t\t\te.Born = e.Born.Add(-time.Minute)\n\t\t\topens[i] = e.Born\n",
		Package: "internal/tests/matrix", Test: "TestSchedules/^memory$/^deploys=true$",
		Why: "a new entry, or a changed one, sends what would have been due before it was there",
	},
	{
		File: "schedule/pass.go", Text: "return ran && err == nil, err", With: "return ran || err == nil, err",
		Package: "internal/tests/matrix", Test: "TestSchedules/^memory$/^deploys=false$/^send-4$",
		Why: "an instant whose send has failed counts as sent",
	},
}
