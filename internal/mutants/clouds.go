package main

// This file owns the breaks of what runs in AWS and Google Cloud: queues, push, the stores of
// DynamoDB and Firestore, and their fakes. Each entry is data: main.go plays it, and a test sees
// that it still fits its file. Nothing is locked.

var clouds = []mutant{
	{
		File: "adapters/gcppubsub/receive.go", Text: "own > visibility || took", With: "took",
		Package: "adapters/gcppubsub", Test: "TestHiddenAlready",
		Why: "a worker that dies hides its messages for longer than it was told to",
	},
	{
		File: "adapters/awssqs/internal/leansqs/attempt.go", Text: "\t\tout = k.fresh()\n", With: "",
		Package: "adapters/awssqs/internal/leansqs", Test: "FuzzAnswers",
		Why: "what the scanner had read of an odd answer stays under what the SDK reads of it",
	},
	{
		File: "adapters/awssqs/internal/leansqs/scan.go", Text: "bad: !utf8.ValidString(text)", With: "bad: !utf8.ValidString(\"\")",
		Package: "adapters/awssqs/internal/leansqs", Test: "FuzzAnswers",
		Why: "a body that is not UTF-8 is another one than the SDK gives",
	},
	{
		File: "adapters/awssqs/internal/leansqs/scan.go", Text: "s.bad = s.bad || len(ids) == n // an", With: "_ = n // an",
		Package: "adapters/awssqs/internal/leansqs", Test: "FuzzAnswers",
		Why: "an entry without its id is taken for one that was applied",
	},
	{
		File: "dedupe/firestorestore/firestorefake/document.go", Text: "return was, nil", With: "return next, nil",
		Package: "dedupe/firestorestore/firestorefake", Test: "TestAsTheEmulator/swaps",
		Why: "a store whose writes change nothing passes on the fake, and loses a race at the service",
	},
	{
		File: "dedupe/firestorestore/firestorefake/transaction.go", Text: "tx.holds[name] = true", With: "_ = name",
		Package: "dedupe/firestorestore/firestorefake", Test: "TestAsTheEmulator/locks",
		Why: "no test of a user's meets a document that a transaction holds",
	},
	{
		File: "localstack/gcloud_unix.go", Text: "e.listens+port", With: "e.listens",
		Package: "localstack", Test: "TestPortTaken/Firestore's_hangs",
		Why: "a program that took the emulator's port is believed",
	},
	{
		File: "dedupe/firestorestore/change.go", Text: "\t\t\tc.unknown, c.sure = true, false // a read",
		With:    "\t\t\tc.unknown = true // a read",
		Package: "dedupe/firestorestore", Test: "TestLostAnswers/lost/unavailable",
		Why: "an answer that was lost costs a second write",
	},
	{
		File: "dedupe/firestorestore/change.go", Text: "case c.unknown && found != nil && s.equals(c.next, found):",
		With:    "case false:",
		Package: "dedupe/firestorestore", Test: "TestLostAnswers/lost/unavailable",
		Why: "the store does not know its own write again",
	},
	{
		File: "dedupe/firestorestore/calls.go", Text: "\t\t\t\tnext.fields[fieldProbe] = toValue(rand.Text())\n",
		With:    "\t\t\t\t_ = rand.Text()\n",
		Package: "dedupe/firestorestore", Test: "TestProbeShutsOut",
		Why: "a transaction that was given up is written behind the settlement that has asked about it",
	},
	{
		File: "dedupe/firestorestore/calls.go", Text: "return max(last, uint64(max(0, now.UnixMilli()))) + 1",
		With:    "return last + 1 + uint64(now.Unix()-now.Unix())",
		Package: "dedupe/firestorestore", Test: "TestFenceOutlivesItsDocument",
		Why: "a key whose document TTL has deleted gets an old fence again",
	},
	{
		File: "dedupe/firestorestore/commit.go", Text: "\tcase !changed && found.commit == c.id:\n\t\treturn nil, nil\n",
		With:    "",
		Package: "dedupe/firestorestore", Test: "TestCommitLost/the_answer_is_lost",
		Why: "a Commit that was written says that the lease is lost",
	},
	{
		File: "dedupe/firestorestore/commit.go", Text: "\t\tif untouched {\n",
		With:    "\t\tif true {\n",
		Package: "dedupe/firestorestore", Test: "TestCommitBesideBeats",
		Why: "a beat beside a Commit counts as the user's own fault",
	},
	{
		File: "dedupe/firestorestore/clock.go", Text: "return micro(w.Add(c.least)), c.known && !c.stepped(w)",
		With:    "return micro(w.Add(c.least)), c.known",
		Package: "dedupe/firestorestore", Test: "TestClockIsSet/10m0s",
		Why: "a host whose clock is set ahead steals live claims",
	},
	{
		File: "dedupe/firestorestore/item.go", Text: "&firestorepb.Precondition_UpdateTime{UpdateTime: was.at}",
		With:    "&firestorepb.Precondition_Exists{Exists: true}",
		Package: "dedupe/firestorestore", Test: "TestZombie",
		Why: "a worker that was overtaken writes over its successor",
	},
	{
		File: "dedupe/firestorestore/change.go", Text: "case errors.Is(err, dedupe.ErrLeaseLost) && c.unknown:",
		With:    "case errors.Is(err, context.Canceled):",
		Package: "dedupe/firestorestore", Test: "TestRivalAfterALostRelease",
		Why: "a release that was carried out is told as a lost lease, which says that nothing was written",
	},
	{
		File: "dedupe/firestorestore/claims.go", Text: "[]byte(rand.Text())",
		With:    "append([]byte{0}, rand.Text()[:0]...)",
		Package: "dedupe/firestorestore", Test: "TestAnyStateAfterALargeOne",
		Why: "a small step behind a large one is taken for the store's own mark, and is not saved",
	},
	{
		File: "dedupe/firestorestore/change.go", Text: "\t\t\tc.made(found.at)\n",
		With:    "\t\t\tc.next.at, c.over = found.at, true\n",
		Package: "dedupe/firestorestore", Test: "TestHostStoodStill",
		Why: "a claim whose host stood still, and whose answer was lost, is won although its lease is over",
	},
	{
		File: "dedupe/firestorestore/commit.go", Text: "return c.refused(ctx, own.error)",
		With:    "return own.error",
		Package: "dedupe/firestorestore", Test: "TestCommitMeetsItself",
		Why: "a Commit that was written tells the error of a second run, which met the first one's writes",
	},
	{
		File: "dedupe/firestorestore/change.go", Text: "(c.lease || c.dated) && ",
		With:    "c.lease && ",
		Package: "dedupe/firestorestore", Test: "TestExpiryOfAHostThatStoodStill",
		Why: "a job that is done on a host that stood still has expired when it is written, and runs again",
	},
	{
		Rule: "contracts: | the fence after Forget |",
		File: "dedupe/dynamostore/claim.go", Text: "n := uint64(max(0, now.UnixMilli()))", With: "n := uint64(0)",
		Package: "dedupe/dynamostore", Test: "TestFenceOutlivesItsItem",
		Why: "the fence falls where DynamoDB has deleted the record",
	},
	{
		File: "dedupe/dynamostore/settle.go", Text: "\t\ts.redate(ctx, t.Key, t.Token, ended{to: t.To, retain: t.Retain, at: at})\n", With: "",
		Package: "dedupe/dynamostore", Test: "TestExpiryOfAHostThatStoodStill/failed",
		Why: "a job that ended on a host that stood still has expired when it is written, and runs again",
	},
	{
		File: "dedupe/dynamostore/settle.go", Text: "found.rec.Updated.Equal(at.now)", With: "false",
		Package: "dedupe/dynamostore", Test: "TestExpiryOfAHostThatStoodStill/done,_the_answer_lost",
		Why: "the same, where the answer to its end was lost as well",
	},
	{
		File: "dedupe/dynamostore/complete.go", Text: "\t\ts.redate(ctx, lease.Key, lease.Token, by)\n", With: "",
		Package: "dedupe/dynamostore", Test: "TestExpiryOfAHostThatStoodStill/commit",
		Why: "a Commit on a host that stood still has expired when it is written, and the job runs again",
	},
	{
		File: "dedupe/dynamostore/settle.go", Text: "\t\ts.redate(ctx, t.Key, t.Token, by)\n", With: "",
		Package: "dedupe/dynamostore", Test: "TestExpiryOfAHostThatStoodStill/the_user's_own_transaction",
		Why: "the same, where the user sends the transaction, or its answer never came",
	},
	{
		File: "dedupe/dynamostore/errors.go", Text: "if lost.Load() && errors.Is(err, dedupe.ErrLeaseLost) {", With: "if lost == nil {",
		Package: "dedupe/dynamostore", Test: "TestRivalAfterALostAnswer",
		Why: "a release that was carried out is told as a lost lease, of which nothing was written",
	},
	{
		Rule: "contracts: **DynamoDB.**",
		File: "dedupe/dynamostore/complete.go", Text: "found.rec.Status == dedupe.Done && found.commit == c.id:", With: "found.commit == \"\":",
		Package: "dedupe/dynamostore", Test: "TestCommitMeetsItself",
		Why: "a Commit whose answer was lost meets its own writes and tells them as a lost lease",
	},
	{
		Rule: "protocol: *Later: Push*",
		File: "adapters/gcppubsub/pubsubpush/handler.go", Text: "w.WriteHeader(http.StatusNoContent)", With: "answer(w, http.StatusOK, \"done\")",
		Package: "adapters/gcppubsub/pubsubpush", Test: "TestEnds",
		Why: "Pub/Sub is told done by a body, which nobody reads",
	},
	{
		Rule: "protocol: *Later: Push*",
		File: "adapters/gcppubsub/pubsubpush/handler.go", Text: "if !h.rest(r.Context(), wait, t.start) {", With: "if busy || !h.rest(r.Context(), wait, t.start) {",
		Package: "adapters/gcppubsub/pubsubpush", Test: "TestWaitsForAnother",
		Why: "each redelivery of a job that runs is a failure, which slows the whole subscription down",
	},
	{
		Rule: "protocol: *Later: Push*",
		File: "adapters/gcppubsub/pubsubpush/handler.go", Text: "case d.Claimed == dedupe.InProgress:", With: "case d.Claimed == dedupe.Mismatch:",
		Package: "adapters/gcppubsub/pubsubpush", Test: "TestWaitEnds",
		Why: "a job in progress is told as one that has failed",
	},
}
