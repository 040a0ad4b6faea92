// Package sqslambda runs an onceq Processor in an AWS Lambda function that an SQS queue calls.
//
//	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
//		Handler: pay, Store: store, Scope: "payments",
//		Owner: os.Getenv("AWS_LAMBDA_LOG_STREAM_NAME"),
//	})
//	batches, err := p.Batches(onceq.BatchConfig{DeadLetter: dead})
//	h, err := sqslambda.Handler(batches, nil)
//	lambda.Start(h) // github.com/aws/aws-lambda-go/lambda
//
// Make all three once, outside the handler, and read what fails, because a function that cannot start
// must not answer.
//
// # The event source mapping must report item failures
//
// The function answers with the records that failed. Lambda looks at that answer only where the
// event source mapping has FunctionResponseTypes: [ReportBatchItemFailures]. Without it, Lambda
// takes the answer for a success, deletes the whole batch, and THE FAILED RECORDS ARE LOST. A
// function cannot see how it is called. So set it, in the template and not by hand, or set
// Options.FailWhole, which is safe either way. A queue's own dead-letter queue does not help,
// because a deleted message never gets there.
//
// # Settings of the queue and the function
//
//	function timeout T   the longest job, and Options.Reserve (5 s) and MinTime; at most 15 min
//	batch size B         (T - Reserve) / (a job's time) x Options.Concurrency is what the function
//	                     does in T, and half of that is safe
//	visibility timeout   6 x T, and the batching window beside it. Lambda refuses less than T.
//	                     While it is throttled it tries again with messages that are hidden
//	                     already.
//	maxReceiveCount      2 x MaxAttempts or more (40 is fine), at least 5: Lambda's poller counts
//	                     receives that never reach the function
//	batching window      0 s, or up to 300 s to fill batches; a batch above 10 needs 1 s or more
//	maximum concurrency  ScalingConfig.MaximumConcurrency (2 to 1,000) of the mapping, not
//	                     reserved concurrency alone: what is throttled is received, hidden and
//	                     counted without being run
//	provisioned mode     ProvisionedPollerConfig, MinimumPollers (2 to 200) and MaximumPollers
//	                     (by default 200), instead of maximum concurrency: Lambda takes one of
//	                     the two. A poller runs up to 10 invocations at once, so the reserved
//	                     concurrency is 10 x MaximumPollers or more. Pollers are billed also while
//	                     the queue is empty.
//	FIFO queues          B is at most 10; there is no batching window
//
// Check of package awssqs compares the visibility timeout with CheckOptions.FunctionTimeout. With
// Options.Queue the first invocation compares them, too, and warns.
//
// Sources: [Lambda with SQS] and [its configuration]. The examples/lambda folder has a template
// with all of it.
//
// # Producers that do not use onceq
//
// Set onceq.ProcessorConfig.Key before the function's first start, where such a producer sends to
// the queue. Otherwise messages without a key are held back as failures, and an ERROR says so. A
// function does not know the queue's maxReceiveCount. So the queue's own redrive moves these
// messages to its dead-letter queue after so many receives, before they are letters that say why.
//
// # Time
//
// L is what is left of an invocation's time when it begins. With the default Reserve of 5 s (never
// more than L/4):
//
//	to L - 5 s - MinTime  records are claimed as slots become free. What has not begun by then is
//	                      a failure, uncounted.
//	L - 5 s               the handlers' contexts end; they have this time as their deadline. A job
//	                      that had at least half of the time has timed out: an attempt, of class
//	                      "timeout". One that began later is handed back, uncounted.
//	L - 1.8 s             a handler that has not returned is given up: a failure, recorded nowhere
//	L - 1 s               what the Processor may still record
//	L - 0.5 s             the last nack to Options.Queue; then the answer
//
// A claim lasts until SettleTimeout after L - 1 s, and is not renewed. So a job costs two writes,
// however long it takes. A store that does not answer is asked for 10 s from its first failure on.
// Then what has not begun is a failure. With Options.Queue it comes back after half to one Lease.
// What runs goes on. Nothing is ever run unclaimed.
//
// When the function has answered, nothing of this package or of the Processor is under way: no
// goroutine, timer or heartbeat that a frozen sandbox would stop in the middle. A call that hung to
// the end may still be open. Nothing begins after it, and its answer counts for nothing.
//
// # Frozen, timed out, killed: what it means for the promise
//
//   - Between invocations Lambda freezes the sandbox, for seconds or for good. Nothing waits to be
//     done then.
//   - A function that is stopped at its timeout, runs out of memory or is killed answers nothing.
//     The whole batch comes again: at the end of the visibility timeout, or with Options.Queue soon
//     after the function's time is over. What was done is found done. What had begun was
//     interrupted: it is rerun or parked, as JobOptions.Interrupted says.
//   - A handler that ignores its context is given up. It may go on when the sandbox thaws, in the
//     middle of another invocation. It cannot record anything then: nobody looks at its end, and
//     CompleteTx and Commit are refused once its key has been claimed again. What it does elsewhere
//     happens. So pass the context on.
//   - A sandbox that was frozen beyond its leases is a zombie like any other. Its token is stale,
//     and the store refuses what it writes.
//
// # Order
//
// On a FIFO queue the records of a group run one after the other. The first that is not done stops
// its group: the rest of the group is reported as failed and not begun. Other groups go on. A dead
// letter does not stop its group, unless onceq.BatchConfig.HoldGroup says so. On a standard queue a
// group is the tenant of a fair queue, and orders nothing.
//
// # Permissions
//
// The function's role needs sqs:ReceiveMessage, sqs:DeleteMessage and sqs:GetQueueAttributes on the
// queue (for the event source mapping), sqs:SendMessage on the dead-letter queue, what the store
// needs, and with Options.Queue sqs:ChangeMessageVisibility.
//
// The documentation of package awssqs says under Trust what may be believed of a record. That rests
// on the queue's policy.
//
// [Lambda with SQS]: https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
// [its configuration]: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
package sqslambda
