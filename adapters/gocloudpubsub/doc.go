// Package gocloudpubsub lets onceq's workers run on the queues of gocloud.dev/pubsub:
//
//	queue, err := gocloudpubsub.New(topic, subscription, gocloudpubsub.Options{
//		Queue:  url, // of the SQS queue, or the Pub/Sub subscription's full name
//		Reopen: func(ctx context.Context) (*pubsub.Subscription, error) { return open(ctx) },
//	})
//
// The way back, a program of gocloud's on a queue of onceq's, is
// [github.com/onceq/onceq/adapters/gocloudpubsub/onceqpubsub].
//
// # What it can do
//
// [New] makes a [github.com/onceq/onceq/broker.Broker] of a *pubsub.Topic and a
// *pubsub.Subscription of any gocloud driver. What it can do depends on the driver, and Limits say
// it. For SQS and Pub/Sub the drivers awssqs and gcppubsub do the same work with fewer calls; this
// one is for programs that have gocloud already, and for gocloud's other drivers.
//
//   - With [Options].Queue, gocloud's drivers of SQS (awssnssqs) and of Pub/Sub (gcppubsub) are
//     settled past gocloud, with the client that they hold: each ack has an answer of its own, a
//     nack may have a delay, and a delivery is extended while its job runs.
//   - For other drivers [Options].Extender extends. Without it, a job that takes longer than
//     [Options].Visibility is delivered again, and waits for the first.
//   - Elsewhere an ack is gocloud's: it is sent in the background, and nobody is told how it went.
//     A message whose ack failed comes again, and its job is not done again.
//
// # A subscription that fails
//
// gocloud's Subscription fails for good after one error that is not repeated, be it of a receive,
// an ack or a nack. [Options].Reopen then opens another one. Deliveries of the old one are still
// settled through it. What gocloud had received and not handed out is out of reach, and comes again
// after the queue's timeout.
//
// # Messages that wait in gocloud
//
// gocloud receives ahead, up to thousands of messages, and their time passes while they wait. It
// does not tell since when a message waits, so a Deadline counts from the last time at which
// gocloud's queue was seen empty. It counts no further back than the smaller of 5 s and a quarter
// of the timeout, and the pause since the last Receive, in which the message may have waited. Open
// the subscription with [NoPrefetch] as its receive options: then gocloud holds one message at
// most, and the Deadline is never late.
//
// Call [Broker.Close] when the worker's Run has returned: it takes for [Options].ReceiveGrace what
// gocloud still holds, and gives it back. A Receive does the same when its context ends and no
// other Receive runs. gocloud goes on receiving whenever a message is taken from it, so with a
// prefetching subscription and a full queue some messages stay with it until their timeout.
package gocloudpubsub
