// Package onceq runs jobs from managed queues so that each job has its effect once, although every
// queue delivers at least once, workers crash, and leases expire.
//
// It is for teams that run jobs from a queue such as SQS, in containers or as serverless functions,
// where a doubled or lost job costs money. It works on the queue that you have, and needs a store
// for the keys: a table in PostgreSQL, DynamoDB, Firestore or SQLite.
//
//   - onceq records each job's idempotency key in the store before the job's handler starts. A
//     message with a key that is done is acked, and nothing runs.
//   - While a handler runs, one heartbeat keeps its message hidden and its key claimed.
//   - Each claim has a number, the fence, which rises with every claim of the key. So a worker that
//     was overtaken can change nothing.
//   - A job that cannot be done becomes a dead letter. It says why, and carries the permission to
//     try exactly that failure once more.
//
// # A first program
//
// This is the outline; queue, dead, store and b come from elsewhere. The example below is a whole
// program.
//
//	type Order struct {
//		ID    string
//		Cents int
//	}
//
//	// Producers and workers share the kind: its type, its payload, its key.
//	var Orders = onceq.Kind[Order]{Type: "order", Key: func(o Order) string { return o.ID }}
//
//	// The producer. An order that is sent twice is charged once.
//	func place(ctx context.Context, queue broker.Sender, o Order) error {
//		return Orders.Send(ctx, queue, o)
//	}
//
//	// The worker. It runs until ctx ends, and then lets its handlers finish.
//	func work(ctx context.Context, queue, dead broker.Broker, store dedupe.Store, b bank) error {
//		var mux onceq.Mux
//		Orders.On(&mux, func(ctx context.Context, j *onceq.Job, o Order) error {
//			_, err := b.Charge(ctx, j.EffectKey("charge"), o.Cents)
//			return err // nil = done for good; an error = tried again later
//		})
//		p, err := onceq.NewProcessor(onceq.ProcessorConfig{
//			Handler: &mux, Store: store, Scope: "shop",
//		})
//		if err != nil {
//			return err
//		}
//		worker, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: dead})
//		if err != nil {
//			return err
//		}
//		return worker.Run(ctx)
//	}
//
// # Three entry points
//
// A [Processor] knows what is done with jobs: their handlers, their store, their limits. Jobs come
// to it in three ways. One Processor can serve all three at once.
//
//   - [Processor.Worker] is for a process that stays: it receives from a queue, and acks. See
//     [Worker].
//   - [Processor.Batches] is for deliveries that somebody else has received, as the caller of a
//     serverless function does. It answers each with what is to be done with it. See [Batches].
//   - [Do] is for work that no queue brings: an HTTP request, a webhook, a cron job.
//
// # The promise
//
// How often a job's effect happens depends on where it happens:
//
//   - In the store's own database, and the job is completed through the same transaction (the
//     store's CompleteTx or Commit): exactly one effect, whatever crashes.
//   - Elsewhere, through an API that takes an idempotency key ([Job.EffectKey]): one effect, as
//     good as the API's own promise.
//   - Elsewhere without a key: one effect for each claim. When a worker dies between the effect and
//     its record, the job was interrupted. Its owner has chosen what happens then
//     (JobOptions.Interrupted): dedupe.Rerun runs it again (at least once, the default),
//     dedupe.Park leaves it to an operator (at most once).
//
// Nothing is lost: a message is acked only after its key was seen done, or after its dead letter
// was stored.
//
// # Where to go next
//
//   - Write handlers: [Handler], [Mux], [JSON]; the error verbs [Permanent], [RetryAfter] and
//     [Unknown]; what a handler is told, [Job].
//   - Send jobs: [Kind.Send], [Send]; from an outbox, [Fill].
//   - Set limits: [ProcessorConfig], [WorkerConfig], [JobOptions].
//   - Watch: [Observer], [JobReport]; the outcomes, [Outcome].
//   - Queues: adapters/awssqs; adapters/membroker for tests. On Lambda, adapters/sqslambda.
//   - Stores: dedupe/pgstore, dedupe/dynamostore, dedupe/sqlitestore; dedupe/memstore for tests.
//   - Dead letters: package dlq lists, groups and replays them.
//   - HTTP: adapters/httponceq answers each request once, by its Idempotency-Key header.
//   - Tests of your own: package onceqtest makes any call of a worker go wrong.
//   - Before production: docs/production.md in the repository is a checklist, docs/outcomes.md
//     tells the night shift what each outcome asks for, docs/foreign-producers.md is for queues
//     whose producers do not use onceq.
package onceq
