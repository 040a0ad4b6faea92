// Package onceq runs jobs from managed queues so that each has its effect once, although every
// queue delivers at least once, workers crash, and leases expire.
//
// A [Worker] receives messages from a broker, keeps them hidden while they are worked on, and
// records each job's idempotency key in a dedupe store before its handler starts. Two leases, one
// on the message and one on the key, are kept alive by one engine; the key's is fenced, so that a
// worker that was overtaken can change nothing. A job that cannot be done becomes a dead letter,
// which carries the permission to try exactly that failure once more.
//
// # The promise
//
//   - An effect in the store's own database, completed through the same transaction (the store's
//     CompleteTx): exactly one effect, whatever crashes.
//   - An effect elsewhere, through an API that takes an idempotency key ([Job.EffectKey]): one
//     effect, as good as the API's own promise.
//   - An effect elsewhere without a key: one effect for each claim. When a worker dies between the
//     effect and its record, the job was interrupted, and its owner has chosen: dedupe.Rerun (at
//     least once, the default) or dedupe.Park (at most once; an operator decides).
//
// Nothing is lost: a message is acked only after its key was seen done, or after its dead letter
// was stored.
//
// # The parts
//
// A [Handler] does the work; a [Mux] picks one by the job's type; [JSON] decodes. [Send] puts jobs
// into a queue. A [Processor] knows what is done with jobs, and serves any number of them at once:
// Workers on queues, [Batches] of deliveries that somebody else has received, and calls of [Do].
package onceq
