// Package gcppubsub drives Google Pub/Sub: a topic that is sent to, and a pull subscription.
//
//	clients, err := gcppubsub.Dial(ctx)
//	orders, err := gcppubsub.New(clients, "projects/P/topics/orders", "projects/P/subscriptions/orders-workers", nil)
//
// The result is a [github.com/onceq/onceq/broker.Broker]: hand it to a Worker, to Send, or as the
// dead-letter queue of another one. One [Clients] serves all Brokers of a process.
//
// # Permissions
//
//	a worker      roles/pubsub.subscriber and roles/pubsub.viewer on the subscription
//	              roles/pubsub.publisher on the dead-letter topic
//	              roles/pubsub.viewer on the dead-letter subscription
//	a producer    roles/pubsub.publisher on the topic
//	an operator   roles/pubsub.subscriber and roles/pubsub.viewer on the dead-letter subscription
//	              roles/pubsub.publisher on the topic
//
// The viewer's role is for what a worker looks at when it starts ([Broker.Redrive]), for
// [Broker.Check], and for the ack deadline. Without it the worker warns that it could not look, and
// extends messages after each pull. docs/backend-pubsub.md has the commands, and what Pub/Sub's own
// service agent needs where Pub/Sub dead-letters by itself.
//
// # Trust
//
// Whoever may publish to the topic chooses the type, the key and the body of a job, and how long it
// may run. A worker believes what the topic's policy lets in: messages carry no signature of ours.
//
// # Recommended settings of a subscription
//
//   - Ack deadline 30 s, or what the workers' WorkerConfig.Visibility is: their messages are then
//     hidden for that time as they come. Below 30 s a slow answer, or an extension that fails, lets
//     Pub/Sub deliver a message twice.
//   - Retention 7 days, and 14 days for the dead-letter subscription. The workers'
//     ProcessorConfig.Retention must be longer than both together. Its default is 31 days.
//   - It never expires. By default Pub/Sub deletes a subscription that nobody used for 31 days, and
//     its messages with it.
//   - No retry policy: workers delay their nacks themselves, and a policy's delay comes on top.
//   - No filter, unless all letters and replays carry the attributes that it wants. What does not
//     match is gone.
//   - Message ordering where jobs of one key must run in order: set [Options].Ordered as well, and
//     no dead-letter policy.
//   - A dead-letter policy is a net below the workers' own letters. Its attempts are twice
//     MaxAttempts or more: each nack and each expiry counts, also those of a drain, and each hop of
//     10 min to a far not-before. Set [Options].Attempts as well.
//   - Exactly-once delivery is not needed. It makes late acks fail loudly, and costs throughput.
//
// [Broker.Check] tells what of this does not hold, as far as its options say what to compare with.
//
// # How it receives
//
// A worker pulls as many messages as it has room for, 1,000 at most. A pull carries a deadline of
// at most 10 s that travels to the server, and is never cut off: what a pull without a caller finds
// is delivered to nobody, and hidden until the ack deadline. So a worker that stops waits for the
// pull in flight, up to [Options].LongPoll and a second, and hands back what it brings. Google's
// emulator answers an empty pull a second before that deadline. Of 40 messages that were published
// around the end of a pull there, none was stranded.
//
// Where the subscription's ack deadline is the worker's Visibility, or down to three quarters of
// it, messages go to their handlers as they come, and only those that are still held after a third
// of that time are extended. Otherwise they are extended to the Visibility after each pull, in one
// call that the poller waits for. A pull that took longer than 5 s, or a quarter of the ack
// deadline, is followed by an extension, too, because nobody knows when its answer was sent. The
// driver reads the ack deadline when the worker starts, and each 10 minutes.
//
// Acks, extensions with nacks, pulls and publishes go out on connections of their own ([Dial]), so
// none of them waits behind another one that is stalled. No call is repeated by the driver or by
// Google's clients: the core does that, where it is safe.
//
// A quiet worker makes one pull at a time. While pulls bring five messages or more, it makes as
// many at once as WorkerConfig.Pollers says: by default one for each 250 of Concurrency, 1 to 16.
//
// # What it costs
//
// Pub/Sub bills the bytes that are published and those that are delivered, with attributes and
// metadata, 40 $ a TiB (10 GiB a month are free), and 1,000 bytes at least for each publish and
// each pull ([pricing]). Acks, nacks and extensions cost nothing.
//
//	a million jobs of 1,000 bytes, with their metadata     0.10 $
//	a million jobs of 200 bytes, each published alone and pulled alone     0.07 $
//	an idle worker, whatever its Pollers                   292,000 pulls a month, 0.01 $
//	a retry                                                its delivery once more; a dead letter is a publish and a delivery
//
// [Broker.Stats] counts the calls.
//
// # Limits
//
//	messages of a pull and of a send        1,000
//	ack ids of a call                       1,000, and 512 KiB: the driver divides what is more
//	a message, with attributes and metadata 9,998,000 bytes                 larger: ErrTooLarge
//	attributes, our metadata included       100                             more: ErrTooLarge
//	an attribute's value                    1,024 bytes                     longer: ErrTooLarge
//	attribute names                         1 to 256 bytes of UTF-8, not goog…   others: ErrUnsupported
//	ordering keys                           1,024 bytes                     longer: ErrUnsupported
//	an extension                            10 s to 10 min, in whole seconds; no limit in all
//	the delay of a nack                     10 min, in whole seconds, above a minute in tens of them
//	the delay of a send                     none: ErrUnsupported; a not-before works, by nacks
//
// Sources: [quotas] and the API's own descriptions.
//
// Metadata above 1,024 bytes travels in several attributes: "onceq", "onceq.1" and so on. Nothing
// of it is trimmed, and a piece that is lost shows as a MetaErr.
//
// # Errors
//
// gRPC's codes as the contract has them; errors.As reaches the client's own error.
//
//	ErrNotFound        NOT_FOUND
//	ErrThrottled       RESOURCE_EXHAUSTED
//	ErrReceiptExpired  INVALID_ARGUMENT of an ack id; PERMANENT_FAILURE_INVALID_ACK_ID
//	ErrTooLarge        INVALID_ARGUMENT of a publish, where its text is of bytes
//	ErrUnsupported     INVALID_ARGUMENT of a publish (any other), OUT_OF_RANGE
//	none               PERMISSION_DENIED and UNAUTHENTICATED, with the role that is missing
//	none               FAILED_PRECONDITION: a detached subscription, or one that is not pulled
//	none               UNAVAILABLE, ABORTED, INTERNAL, DEADLINE_EXCEEDED, TRANSIENT_… of an ack id
//
// With none, nothing was wrong with the entry itself, and repeating is safe: workers do it.
//
// # What to know
//
//   - Without exactly-once delivery an ack that succeeded proves nothing, and a late extension may
//     do nothing or hide the message for another worker. The core decides by its store and by
//     Message.Deadline, which is early.
//   - Pub/Sub gives several messages of an ordering key at once, and nothing of a key while any of
//     them is held. A worker runs the first one and keeps the others behind it. When the first one
//     fails, it hands the others back. Each hand-back is a delivery attempt of theirs.
//   - A publish has one ordering key. A Send of messages with many keys is as many calls, one after
//     the other: send them from several goroutines if that is too slow.
//   - A message that Pub/Sub itself has moved to a dead-letter topic has a new ID. Its attributes
//     CloudPubSubDeadLetterSource… are left out here, and Published is the time of its first
//     publish.
//   - Pub/Sub does not tell how many messages wait, other than in Cloud Monitoring, minutes late.
//     So there is no Depth.
//   - A Seek into the past delivers messages again that were acked. Those whose record is still
//     there are found done.
//   - A dead-letter topic without a subscription loses what is sent to it.
//
// [pricing]: https://cloud.google.com/pubsub/pricing
// [quotas]: https://cloud.google.com/pubsub/quotas
package gcppubsub
