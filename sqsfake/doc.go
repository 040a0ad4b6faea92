// Package sqsfake is an SQS server for tests: in memory, as strict as AWS, and stricter than
// any emulator where a lenient one hides a bug until production.
//
// A test starts one with [Start] and points any SDK at [Server.URL]:
//
//	server := sqsfake.Start(t, nil)
//	url, err := server.CreateQueue("orders", nil)
//	client := sqs.New(sqs.Options{BaseEndpoint: &server.URL, Region: "us-east-1", Credentials: aws.AnonymousCredentials{}})
//
// In a bubble of testing/synctest it works without a socket, through [Server.Client]: twelve hours
// of visibility pass in a moment. From other languages, run it alone:
//
//	go run github.com/onceq/onceq/cmd/sqsfake -addr 127.0.0.1:9324 -queue orders -queue payments.fifo
//
// It speaks the AWS JSON 1.0 protocol, all 23 actions. Signatures are not checked and
// policies not enforced; messages are lost when it ends.
//
// # What is strict, and why
//
//   - A ChangeMessageVisibility after the timeout answers OK and does nothing, as on AWS: the
//     message stays visible, and a worker that believes it holds the message does its job
//     twice. Emulators hide the message, so that the bug never shows.
//     [Options.ReportLostLeases] makes it an error, to find the caller.
//   - A DeleteMessage after the timeout succeeds on a standard queue, and deletes. Once somebody
//     received the message again it succeeds and may delete nothing. On a FIFO queue it fails.
//   - The receipt handle of an earlier receive works or does not, on a standard queue: it may
//     delete, hide or show what somebody else holds. [Options.StaleHandles] chooses.
//   - A receive that does not wait brings some of a standard queue's messages, or nothing, in any
//     order: that it is empty says nothing. [Options.ShortPolls] chooses; one that waits brings
//     what there is.
//   - The entries of a batch are answered in any order, and a list without entries is left out.
//   - A message is held for 12 hours at most, counted from its receive. An extension that
//     goes beyond fails; it is not shortened. More than 43,200 seconds are refused.
//   - 120,000 messages may be in flight. Beyond, a standard queue answers OverLimit to a receive
//     that does not wait. One that waits, and any on a FIFO queue, gets nothing at all, which looks
//     as if the queue were empty. [Options.MaxInFlight] lowers the limit.
//   - A FIFO queue swallows a second message with the same deduplication id for five minutes,
//     also when the first one is deleted already, but not after a purge; it answers OK with the
//     first one's id. A changed deduplication scope holds after a minute. A
//     message in flight holds back the later ones of its group, not the earlier ones that
//     became visible again. There is no delay for single messages. ReceiveRequestAttemptId
//     brings the same messages and handles again, unless one was touched since. Sequence
//     numbers do not fit into 64 bits.
//   - Bodies take the characters of XML 1.0 only; a message and a batch 1 MiB with their
//     attributes; a message ten attributes; a batch ten entries with distinct ids.
//   - A message goes to the dead-letter queue when it is asked for once too often, not when
//     its last timeout ends. There, on standard queues, it keeps its age, so that it expires
//     with the retention counted from its first sending; on FIFO queues it does not. It keeps
//     its id; one that a move task brings back gets a new one.
//   - Move tasks start from dead-letter queues of other queues only, one at a time, with at
//     most 500 messages a second.
//   - A purge is refused within 60 seconds of the last one, and so is creating a queue within
//     60 seconds of deleting one of its name ([Options.RecreateAtOnce] allows it).
//   - A parameter that an action does not have is refused, where AWS passes over it, and so
//     are a null action, a wrong type, and the older Query protocol.
//
// With [Options.StrandCancelled], a long poll whose caller went away goes on, and what it
// finds is hidden from everybody for a whole timeout, as on AWS.
//
// What AWS leaves to chance is drawn at random. [Options.Seed] plays it again, for calls in the
// same order on each queue; [Server.Seed] tells the one in use.
//
// Where AWS documents nothing, this server takes the answer that hides least: the answers to a
// batch of sends are out of order too; a message that a redrive policy or a
// move task brings into a FIFO queue is not taken for a duplicate; its receive count goes on
// in the dead-letter queue, though the policy of that queue counts from zero. What is known from
// recordings of AWS by other projects alone says so in the code.
//
// To a receive that waits, messages of a standard queue come in order, and twice only where a
// [Fault] says so: do not rely on it. Fair queues' MessageGroupId is taken and told, and changes no
// order.
//
// # Faults
//
// [Server.SetFaults] lets calls go wrong: latency, throttling and any other error at the n-th
// call or at a rate, resets, silence, replies that are lost after the call was applied, single
// entries of a batch that fail, stale receipt handles, wrong checksums, fewer messages, duplicates.
// [Server.Counts] and [Server.Requests] tell what was asked.
//
// Over HTTP, beside the API:
//
//	GET    /_sqsfake/health    200 when it serves, with the seed
//	GET    /_sqsfake/requests  how many requests came, by action
//	DELETE /_sqsfake/requests  sets them to zero
//	PUT    /_sqsfake/faults    replaces the faults: a JSON array of objects with the fields of
//	                           Fault, their names beginning with a small letter, durations as
//	                           texts: [{"action":"DeleteMessage","rate":0.1,"code":"RequestThrottled"}]
package sqsfake
