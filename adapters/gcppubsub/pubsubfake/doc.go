// Package pubsubfake is a Google Pub/Sub server for tests: in memory, as strict as the service, and
// stricter than its emulator where a lenient one hides a bug until production.
//
//	server := pubsubfake.New(nil)
//	defer server.Close()
//	_, err := server.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}) // and CreateSubscription
//	orders, err := gcppubsub.New(server, topic, subscription, nil)
//
// [New] makes a server whose methods are those of gRPC's servers for Pub/Sub: a test calls them as
// they are, without a network. In a bubble of testing/synctest ten minutes of an ack deadline pass
// in a moment. [Start] serves gRPC on the loopback interface for any client; Google's own take its
// address from PUBSUB_EMULATOR_HOST. From other languages, run it alone:
//
//	go run github.com/onceq/onceq/adapters/gcppubsub/cmd/pubsubfake -addr 127.0.0.1:8085 -subscription orders/worker
//
// Topics, publishing, subscriptions, pulls, streaming pulls, acks, Seek to a time and policies are
// there. Calls are not authenticated and policies not enforced; messages are lost when it ends.
// Pushing, exports, schemas, snapshots, message transforms and a topic's own retention are not
// there: what asks for them is answered Unimplemented. An unused subscription does not expire, and
// a stream does not confirm the acks that it carries.
//
// # What is strict, and why
//
//   - The server counts an ack deadline from its own send, and an extension from its own receipt of
//     the call. What the network took is lost for the worker.
//   - Without exactly-once delivery, a late ack or extension succeeds. A late extension hides
//     nothing, so that a worker that believes it holds the message does its job twice. (Google
//     promises neither; its emulator hides the message, so that the bug never shows.) A late ack
//     ends a message that nobody holds.
//   - There, the ack id of an earlier delivery works or does not: it may ack, nack or extend what
//     somebody else holds. [Options.StaleAckIDs] chooses.
//   - With exactly-once delivery, the ack id of the last delivery is valid until its ack deadline,
//     and no other one; an acked id is not, either. A call with others fails with InvalidArgument.
//     ErrorInfo names them, and the rest of the call is applied. (The emulator takes an id until
//     the next delivery.) With ordering keys on top, an ack of a later message fails as
//     TRANSIENT_FAILURE_UNORDERED_ACK_ID while an earlier one is not acked.
//   - One pull brings many messages of an ordering key, in their order. While one of them is held,
//     the key brings nothing else. When one is nacked or not acked in time, it comes again and so
//     do all later ones, those that were acked meanwhile as well.
//   - Delivery attempts are counted with a dead-letter policy, and are 0 without. A message moves
//     when its last attempt fails, with a new id and the CloudPubSubDeadLetterSource attributes.
//     While the topic does not exist, it comes on and on.
//   - A retry policy delays what is nacked and what is not acked in time: by its least backoff,
//     doubled each time, up to its longest. It keeps back the whole ordering key.
//   - A pull answers with nothing a little before its caller's deadline: a tenth of the time, a
//     second at most. Without a deadline it answers after 90 seconds.
//   - A publish has one ordering key, or none: two keys are refused with FailedPrecondition. Its
//     limits are 1,000 messages and 10 MB; of a message 100 attributes, keys of 256 bytes, values
//     and ordering keys of 1,024 bytes. An empty message is refused. The emulator keeps none of the
//     byte limits.
//   - A call about ack ids has 1 to 1,000 of them, and 512 KiB. A pull asks for 1 to 1,000
//     messages.
//   - A subscription drops messages after its retention, held ones too. What is published to a
//     topic without subscriptions is lost.
//   - Filters are applied, and read when the subscription is made.
//   - A subscription that is deleted and made again is another one: old ack ids do nothing. One
//     whose topic was deleted keeps its messages; one that is detached has none, and pulls answer
//     FailedPrecondition.
//
// With [Options.StrandCancelled], a pull whose caller went away goes on, and what it finds is held
// though nobody has it, as it happens on the service.
//
// What is left to chance is drawn at random. [Options.Seed] plays it again, for calls in the same
// order; [Server.Seed] tells the one in use.
//
// To a pull, messages without a key come in the order of publishing and twice only where a [Fault]
// says so: do not rely on it. The service does neither.
//
// # Faults
//
// [Server.SetFaults] lets calls go wrong: a delay before or after they are applied, any code at the
// n-th call, at a rate or for a time, silence, replies that are lost after the call was applied,
// ack ids that fail by themselves, fewer messages, duplicates. [Server.Counts], [Server.Requests],
// [Server.Deliveries] and [Server.Stats] tell what was asked, what was delivered and what is left.
//
// The handler of [Server.Control] does that over HTTP, on a port of its own:
//
//	GET    /_pubsubfake/health    200 when it serves, with the seed
//	GET    /_pubsubfake/requests  how many calls came, by method
//	DELETE /_pubsubfake/requests  sets them to zero
//	PUT    /_pubsubfake/faults    replaces the faults: a JSON array of objects with the fields of
//	                              Fault, their names beginning with a small letter, durations and
//	                              codes as texts: [{"method":"Pull","rate":0.1,"code":"UNAVAILABLE"}]
package pubsubfake
