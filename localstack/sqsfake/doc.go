// Package sqsfake is an SQS server for tests: in memory, as strict as AWS, and stricter than
// any emulator where a lenient one hides a bug until production.
//
// A test starts one with [Start] and points any SDK at [Server.URL]; the examples show it for
// Go's. In a bubble of testing/synctest it works without a socket, through [Server.Client]:
// twelve hours of visibility pass in a moment. From other languages, run it alone:
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
//   - A DeleteMessage after the timeout succeeds on a standard queue, unless somebody received
//     the message again: then it succeeds and deletes nothing. On a FIFO queue it fails.
//   - A message is held for 12 hours at most, counted from its receive. An extension that
//     goes beyond fails; it is not shortened. More than 43,200 seconds are refused.
//   - 120,000 messages may be in flight. Beyond, a standard queue answers OverLimit, a FIFO
//     queue nothing at all, which looks as if it were empty. [Options.MaxInFlight] lowers it.
//   - A FIFO queue swallows a second message with the same deduplication id for five minutes,
//     also when the first one is deleted already; it answers OK with the first one's id. A
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
// Where AWS documents nothing, this server takes the answer that hides least: a stale receipt
// handle on a standard queue changes nothing, silently; a message that a redrive policy or a
// move task brings into a FIFO queue is not taken for a duplicate; its receive count goes on
// in the dead-letter queue, though the policy of that queue counts from zero.
//
// Messages of a standard queue come in order, and twice only where a [Fault] says so: do not
// rely on it. Fair queues' MessageGroupId is taken and told, and changes no order.
//
// # Faults
//
// [Server.SetFaults] lets calls go wrong: latency, throttling and any other error at the n-th
// call or at a rate, resets, silence, replies that are lost after the call was applied, single
// entries of a batch that fail, stale receipt handles, wrong checksums, duplicates.
// [Server.Counts] and [Server.Requests] tell what was asked.
//
// Over HTTP, beside the API:
//
//	GET    /_sqsfake/health    200 when it serves
//	GET    /_sqsfake/requests  how many requests came, by action
//	DELETE /_sqsfake/requests  sets them to zero
//	PUT    /_sqsfake/faults    replaces the faults: a JSON array of objects with the fields of
//	                           Fault, their names beginning with a small letter, durations as
//	                           texts: [{"action":"DeleteMessage","rate":0.1,"code":"RequestThrottled"}]
package sqsfake
