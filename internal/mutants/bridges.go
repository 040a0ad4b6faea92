package main

var bridges = []mutant{
	{
		File: "adapters/httponceq/answer.go", Text: "header: before.Clone(), most: most}", With: "header: make(http.Header), most: most}",
		Package: "adapters/httponceq", Test: "TestHeadersOfHandlersOutside",
		Why: "a session's cookie is lost as soon as the handler sets one of its own",
	},
	{
		File: "adapters/httponceq/answer.go", Text: "case n > 0 && slices.Equal(old, values):", With: "case n > 1<<20:",
		Package: "adapters/httponceq", Test: "TestHeadersOfHandlersOutside",
		Why: "a replay has the request id of the first request",
	},
	{
		File: "adapters/httponceq/httponceq.go", Text: "most > 0 && kept.size() > most {", With: "most > 0 && kept.size() < 0 {",
		Package: "adapters/httponceq", Test: "TestAnswersThatTheStoreKeeps",
		Why: "a client gets a first answer that its next request does not get",
	},
	{
		File: "adapters/httponceq/httponceq.go", Text: "return key.String(), rest == \"\" || rest[0] == ';'", With: "return key.String(), rest == \"\"",
		Package: "adapters/httponceq", Test: "TestKeysAsTheyAreSent",
		Why: "a library that begins to send parameters between two tries doubles the request",
	},
	{
		File: "poll.go", Text: "wait = min(firstWait, most)", With: "wait = most",
		Package: "internal/coretest/operating", Test: "TestReadyOnAnEmptyQueue",
		Why: "each pod of a rollout waits for a whole long poll of an empty queue",
	},
	{
		File: "adapters/otelonceq/carrier.go", Text: "m.Attributes = cloned(m.Attributes)", With: "if m.Attributes == nil {\n\t\t\t\tm.Attributes = cloned(m.Attributes)\n\t\t\t}",
		Package: "adapters/otelonceq", Test: "TestSendSpans",
		Why: "two sends that share a caller's map race on it",
	},
	{
		File: "adapters/otelonceq/observer.go", Text: "if m.process != nil && (r.Receives > 0 || r.Age > 0) {", With: "if m.process != nil {",
		Package: "adapters/otelonceq", Test: "TestDoSpan",
		Why: "calls of Do count as messages that were processed",
	},
	{
		File: "adapters/gocloudpubsub/send.go", Text: "if before != nil {", With: "if before != nil && i < 0 {",
		Package: "adapters/gocloudpubsub", Test: "TestSendKeepsAGroupsOrder",
		Why: "the later messages of a group are sent after an earlier one failed, so its order is lost",
	},
	{
		File: "adapters/gocloudpubsub/settle.go", Text: "case !now.Before(d.until):\n\t\t\t// gocloud", With: "case now.IsZero():\n\t\t\t// gocloud",
		Package: "adapters/gocloudpubsub", Test: "TestAckAfterTheDeadline",
		Why: "a job whose lease has ended is told that its ack has arrived",
	},
	{
		File: "adapters/gocloudpubsub/settle.go", Text: "d.until = now.Add(times[n])", With: "d.until = time.Now().Add(times[n])",
		Package: "adapters/gocloudpubsub", Test: "TestDeadlineOfASlowExtension",
		Why: "a lease is believed to last for longer than it does, by as long as its extension took",
	},
	{
		File: "adapters/gocloudpubsub/receive.go", Text: "d.until = now.Add(visibility)", With: "d.until = time.Now().Add(visibility)",
		Package: "adapters/gocloudpubsub", Test: "TestDeadlineOfASlowExtension",
		Why: "each Deadline is late by as long as the first extension took",
	},
	{
		File: "adapters/gocloudpubsub/onceqpubsub/subscription.go", Text: "if !d.acked {\n", With: "if d != nil {\n",
		Package: "adapters/gocloudpubsub/onceqpubsub", Test: "TestShutdownWithAnAckAndALostLease",
		Why: "Shutdown does not tell an ack once more, so a message that is done is delivered again",
	},
	{
		File: "adapters/gocloudpubsub/broker.go", Text: "case sub == nil || sub == s.sub:", With: "case sub == nil:",
		Package: "adapters/gocloudpubsub", Test: "TestReopenGivesTheSameAgain",
		Why: "a Reopen that gives the failed subscription again is believed, without end",
	},
	{
		File: "adapters/httponceq/httponceq.go", Text: "math.Ceil(d.Seconds())", With: "math.Floor(d.Seconds())",
		Package: "adapters/httponceq", Test: "TestRetryAfter",
		Why: "Retry-After is 0, so that all who wait ask again at once",
	},
	{
		File: "adapters/httponceq/httponceq.go", Text: "rest == \"\" || rest[0] == ';'", With: "rest == \"\"",
		Package: "adapters/httponceq", Test: "FuzzKeyOf",
		Why: "a client library that begins to send parameters is refused",
	},
	{
		File: "adapters/otelonceq/seats.go", Text: "if !d.fresh(g.seatsAt) {", With: "if false {",
		Package: "adapters/otelonceq", Test: "TestSeatsAndRules",
		Why: "a pause that nobody can read any more keeps the alert of a stuck queue silent",
	},
	{
		File: "cmd/onceq/internal/cli/metrics.go", Text: "if q.RulesErr == nil && e.stored {", With: "if q.RulesErr != nil && e.stored {",
		Package: "cmd/onceq/internal/cli", Test: "TestMetricsOfPauses",
		Why: "no process but a worker tells of a pause that was forgotten",
	},
	{
		File: "intake.go", Text: "slog.Duration(\"hidden_for\", min(wait, left).Round(time.Second))", With: "slog.Duration(\"hidden_for\", 0)",
		Package: "internal/coretest/letters", Test: "TestForeignMessagesWaitForAKey",
		Why: "who has set the key and starts again does not know why the queue is empty",
	},
}
