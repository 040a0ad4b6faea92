// Package awssqs drives Amazon SQS queues, standard and FIFO.
//
//	cfg, err := config.LoadDefaultConfig(ctx) // github.com/aws/aws-sdk-go-v2/config
//	client := sqs.NewFromConfig(cfg)
//	url, err := awssqs.Find(ctx, client, "orders")
//	orders, err := awssqs.New(client, url, nil)
//
// The result is a [github.com/onceq/onceq/broker.Broker]: hand it to a Worker, to Send, or as the
// dead-letter queue of another one.
//
// # Permissions
//
// Of a worker:
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Sid": "Work", "Effect": "Allow", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Action": ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"]},
//	  {"Sid": "Letters", "Effect": "Allow", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders-dead",
//	   "Action": ["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"]}
//	]}
//
// Of a producer:
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Sid": "Send", "Effect": "Allow", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Action": ["sqs:SendMessage", "sqs:GetQueueUrl"]}
//	]}
//
// Of an operator, who lists, replays and purges letters, with package dlq or by
// [Broker.StartRedrive]:
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Sid": "Letters", "Effect": "Allow", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders-dead",
//	   "Action": ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes", "sqs:GetQueueUrl",
//	              "sqs:StartMessageMoveTask", "sqs:ListMessageMoveTasks", "sqs:CancelMessageMoveTask"]},
//	  {"Sid": "Replay", "Effect": "Allow", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Action": ["sqs:SendMessage", "sqs:GetQueueUrl"]}
//	]}
//
// GetQueueUrl is for [Find], GetQueueAttributes for what a worker looks at when it starts,
// [Broker.Depth], [Broker.Check], a redrive, and receives that name no visibility timeout. Without
// it the worker warns that it could not look, and the timeout is taken for 30 s. The batch actions
// need no permission of their own. If a queue is encrypted with a customer's KMS key, a receiver
// needs kms:Decrypt on the key, and a sender needs kms:GenerateDataKey and kms:Decrypt.
//
// # Trust
//
// Whoever may send to a queue chooses the type, the key and the body of a job, and how long it may
// run. A worker believes what the queue's policy lets in. Nothing else is checked: messages carry
// no signature of ours, and that of SNS is not verified. Metadata (id, key, type, a letter's
// permission to reopen a failure) is read from the message's own attribute alone. A text in a body
// never sets it, unless Options.TrustTopics says so of a topic. The names of a topic, a bucket, a
// bus and a source in an envelope are texts in a body too. If anybody else may send to the queue,
// do not authorize by them.
//
// So if [Options].Unwrap opens a queue's messages, give the queue a policy that lets those services
// in for the named sources, nobody else but an operator who replays, and nobody without TLS:
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Sid": "Topic", "Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"},
//	   "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:sns:REGION:ACCOUNT:TOPIC"}}},
//	  {"Sid": "Bucket", "Effect": "Allow", "Principal": {"Service": "s3.amazonaws.com"},
//	   "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::BUCKET"}, "StringEquals": {"aws:SourceAccount": "ACCOUNT"}}},
//	  {"Sid": "Rule", "Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"},
//	   "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:events:REGION:ACCOUNT:rule/RULE"}}},
//	  {"Sid": "NobodyElse", "Effect": "Deny", "Principal": "*",
//	   "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Condition": {"ArnNotEquals": {
//	     "aws:SourceArn": ["arn:aws:sns:REGION:ACCOUNT:TOPIC", "arn:aws:s3:::BUCKET", "arn:aws:events:REGION:ACCOUNT:rule/RULE"],
//	     "aws:PrincipalArn": "arn:aws:iam::ACCOUNT:role/OPERATOR"}}},
//	  {"Sid": "TLS", "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "arn:aws:sqs:REGION:ACCOUNT:orders",
//	   "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
//	]}
//
// Without NobodyElse each identity of the account that has sqs:SendMessage by its own policy may
// send. The last statement fits every queue. Where several producers or tenants share a queue, a
// key of one is a key of all: see ProcessorConfig.Fingerprint and ProcessorConfig.Key.
//
// # Recommended settings of a queue
//
//	aws sqs create-queue --queue-name orders-dead --attributes '{"MessageRetentionPeriod": "1209600"}'
//	aws sqs create-queue --queue-name orders --attributes '{"MessageRetentionPeriod": "345600",
//	  "RedrivePolicy": "{\"deadLetterTargetArn\": \"arn:aws:sqs:REGION:ACCOUNT:orders-dead\", \"maxReceiveCount\": 40}"}'
//
// The reasons:
//
//   - A redrive policy with maxReceiveCount of twice MaxAttempts or more: SQS counts every receive,
//     also one that never started a handler, and each hop of a far not-before. onceq puts its own
//     dead letters, with the reason. The policy is the net below. If WorkerConfig.DeadLetter is
//     KeepInQueue, it is the only way out. What is kept is received once an hour, so 40 receives
//     are well within 4 days, after which SQS drops the message. Under HoldGroup the policy would
//     take the head of a group away, so set none, or 1,000 receives.
//   - Retention 4 days, and 14 days for the dead-letter queue. On a standard queue a letter that
//     SQS itself moves keeps its age, so equal retentions lose letters. The workers'
//     ProcessorConfig.Retention must be longer than both together, 18 days. Its default, 31 days,
//     is longer than the longest that both can be.
//   - The visibility timeout and the wait of the queue do not matter to workers, which name their
//     own: WorkerConfig.Visibility, 30 s by default and kept up by the heartbeat, and
//     [Options].LongPoll. Delay 0.
//   - The dead-letter queue of a FIFO queue is a FIFO queue. DeduplicationScope messageGroup with
//     FifoThroughputLimit perMessageGroupId lift a FIFO queue's limit of 300 requests a second and
//     action, 3,000 messages in full batches. ContentBasedDeduplication is never used.
//
// [Broker.Check] tells what of this does not hold, as far as its options say what to compare with:
//
//	_, problems, err := orders.Check(ctx, awssqs.CheckOptions{
//		MaxAttempts: onceq.DefaultMaxAttempts, Retention: onceq.DefaultRetention, // the workers' own
//	})
//
// A missing redrive policy is a problem under KeepInQueue alone. Of dead-letter queues it sees the
// policy's. It does not look at the throughput.
//
// # What it costs
//
// SQS bills requests, and each 64 KB begun of a larger one: 0.40 $ a million on standard queues,
// 0.50 $ on FIFO queues (us-east-1; [pricing]). In full batches a job takes a tenth of a send, of a
// receive and of a delete:
//
//	a million jobs, busy queue             0.3 requests a job    0.12 $
//	a million jobs, each alone             3 requests a job      1.20 $
//	a retry                                a receive and a nack, shared or alone as above; a dead letter is one more send
//	100 a second, calls of 15 ms           0.77 to receive and ack, and the send
//	the same, WorkerConfig.PollPause 500 ms      0.21 to receive and ack, and the send
//	a job of 10 minutes, Visibility 30 s   6 beats a minute, shared by up to ten jobs
//	an idle worker, LongPoll 8 s           324,000 requests a month, 0.13 $, whatever its Pollers
//	the same, LongPoll 20 s                130,000 requests a month, 0.05 $
//
// [Broker.Stats] counts them.
//
// # Limits
//
//	messages of a receive, entries of a batch   10
//	a message, and a request, with attributes   1 MiB (1,048,576 bytes)     larger: ErrTooLarge
//	attributes, ours and traceparent included   10                          more: ErrTooLarge
//	attribute names                             1 to 256 of A-Z a-z 0-9 _ - .   others: ErrUnsupported
//	groups, deduplication ids                   1 to 128 printable ASCII    others: ErrUnsupported
//	visibility timeout                          12 h, in whole seconds
//	one delivery in all                         12 h from its receive, of which the last 30 s are left out
//	delay of a send                             15 min; none on FIFO queues
//	messages in flight                          120,000: then a receive with Wait 0 is answered ErrThrottled. One that waits, as a worker's do, and any
//	                                            on a FIFO queue brings nothing: a stuck consumer looks idle
//
// Sources: the [API reference] of SendMessage, ReceiveMessage and ChangeMessageVisibility, and the
// quotas of [messages], [queues] and [FIFO queues].
//
// A job that takes longer than 12 hours goes on under its claim when SQS delivers its message
// again.
//
// A not-before lies as far ahead as a producer likes, within the queue's retention. After that SQS
// drops the message. Outgoing.Delay brings the first 15 minutes, and nacks of up to 12 hours each
// bring the rest. Each nack counts as a receive to maxReceiveCount, 28 of them in 14 days. On a
// FIFO queue such a message holds its group. A retry's delay is a nack too, so FIFO queues have it.
//
// # Errors
//
// What SQS answers, as the contract has it. "receipts" are Ack, Nack and Extend, "messages" Send,
// "any" each call. Of a batch it holds for single entries too, and errors.As reaches the SDK's own
// error.
//
//	ErrNotFound        any       QueueDoesNotExist NonExistentQueue InvalidAddress ResourceNotFoundException
//	ErrThrottled       any       RequestThrottled ThrottlingException OverLimit KmsThrottled KMS.ThrottlingException
//	ErrReceiptExpired  receipts  ReceiptHandleIsInvalid MessageNotInflight InvalidIdFormat
//	ErrReceiptExpired  receipts  InvalidParameterValue (any other)
//	ErrUnsupported     receipts  InvalidParameterValue (beyond 12 hours)
//	ErrTooLarge        messages  InvalidParameterValue (bytes)
//	ErrTooLarge        messages  InvalidParameterValue (number of attributes)
//	ErrUnsupported     messages  InvalidParameterValue (any other)
//	ErrTooLarge        any       BatchRequestTooLong
//	ErrUnsupported     any       InvalidMessageContents InvalidAttributeName InvalidAttributeValue
//	ErrUnsupported     any       MissingParameter InvalidParameterCombination ValidationError UnsupportedOperation
//	ErrUnsupported     any       EmptyBatchRequest TooManyEntriesInBatchRequest InvalidBatchEntryId BatchEntryIdsNotDistinct
//	none               any       AccessDenied InvalidSecurity InvalidClientTokenId ExpiredToken SignatureDoesNotMatch RequestExpired
//	none               any       KmsAccessDenied KmsDisabled KmsInvalidKeyUsage KmsInvalidState KmsNotFound KmsOptInRequired
//	none               any       InternalError InternalFailure ServiceUnavailable
//
// With none, and with a code that is not here, nothing was wrong with the entry itself: somebody
// has to grant access or mend a key, or it passes. Repeating is safe, and workers do it.
// ErrUnsupported and ErrTooLarge are for good: a letter so answered is cut down, and stays in its
// queue where that does not help. Where a call's context, or Options.CallTimeout, ended first, the
// error is the context's as well, and each entry may or may not have been applied.
//
// # What to know
//
//   - On a standard queue an ack that succeeded proves nothing, and an extension that came late
//     succeeds and does nothing. After a new delivery the receipt of an old one may still work or
//     not: an ack may delete the message, a nack may show it while another worker has it. The core
//     decides by its store, and by Message.Deadline, which is early, unless an answer was more than
//     5 s on its way.
//   - A body travels as it is. One that SQS does not take (empty, or not XML characters in UTF-8)
//     goes as base64, and its metadata says so. An attribute's value of that kind goes in an
//     attribute of type Binary.onceq-text or String.onceq-empty.
//   - Attributes are texts here: a Number or Binary attribute of another producer comes as its
//     characters or bytes, and leaves, in a dead letter, as a String, or as Binary.onceq-text where
//     it has to.
//   - Bodies of other producers come without metadata. ProcessorConfig.Key finds their key.
//     [Options].Unwrap opens the envelopes of SNS and EventBridge, reads the notifications of S3,
//     and gives each an id. The id is the same if those services deliver twice, but not if their
//     producers do something twice. See Trust for what may be believed of them.
//   - A body that does not match its checksum is left to its next delivery, and its neighbours are
//     not.
//   - Group on a standard queue names the tenant of a fair queue, and orders nothing.
//   - Polls last at most [Options].LongPoll, because a stopping worker waits for the one in flight:
//     SQS goes on with a poll that is cut off. The workers' DrainTimeout and SettleTimeout together
//     must be longer (25 s by default).
//   - Receives and lease calls are never repeated here, and go out on connections of their own. The
//     core repeats them. Sends are repeated as the client that was given to New says. A send that
//     is repeated puts its message twice, and its job is done once.
//   - If SQS refuses single entries of a batch on a FIFO queue, it goes on with the later ones. To
//     keep the order of a group through that, send its messages one batch at a time, and send what
//     failed before what follows.
//
// [pricing]: https://aws.amazon.com/sqs/pricing/
// [API reference]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/Welcome.html
// [messages]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
// [queues]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html
// [FIFO queues]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-fifo.html
package awssqs
