// Package watermillonceq lets a handler of Watermill (github.com/ThreeDotsLabs/watermill) run once
// for a key, on any Pub/Sub, and brings onceq's brokers to Watermill.
//
//	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "orders"})
//	once, err := watermillonceq.NewMiddleware(p, &watermillonceq.Options{Key: orderKey})
//	router.AddMiddleware(once)
//
// # Watermill's handlers under a claim
//
// The middleware of [NewMiddleware] claims the key, keeps the claim alive while the handler works,
// and records the end. It has no hold on the message: how long a broker waits for an ack, how often
// it delivers, and where a poisoned message goes stay with the Pub/Sub. So a message may come again
// while its handler runs, and then the claim keeps the second delivery waiting.
//
// The promise is that of [onceq.Do], on which this is built: one effect where it is completed in
// the store's own transaction, or where the API that makes it takes [onceq.Job.EffectKey]; else one
// effect per claim. When the process dies between an effect and its record, the handler runs again,
// or under dedupe.Park it does not.
//
// What the middleware answers, and what Watermill's Router does then:
//
//	the handler's messages, nil           it ran now: published, acked
//	the same messages, nil                it ran before: published again, acked
//	the handler's error                   it failed: nacked, and the next delivery runs it again
//	a *FinalError                         no delivery will ever run it: see IsFinal
//	*onceq.InProgressError                another run holds the key after Options.Wait: nacked
//	*onceq.NotRunError                    the store does not answer, or the message's context has
//	                                      ended; the handler has not run: nacked
//	*onceq.UnsettledError                 it ran, and that could not be recorded: nacked
//
// # Messages that a handler produces
//
// The Router publishes what a handler returns, and acks then. The middleware keeps these messages
// with the record of the key. So when the process dies between the record and the publish, the next
// delivery publishes the same messages, with the same UUIDs, without a run. Each further delivery
// does so too, hence they are published at least once. Each carries a key of its
// own ([KeyMetadata]) that is the same however often it is published, so that the next handler
// under a claim does its work once. A store takes results up to its Limits.MaxResult. Where the
// messages are larger, the delivery that ran publishes them, and the key has failed with the class
// "result". Where that publish fails, they are lost: later deliveries get a *FinalError.
//
// [NewDecorator] is for those who read a subscription without a Router, and for handlers whose
// messages are too large to keep. It claims the key before it hands a message on, and records the
// end at the Ack. A Router publishes before it acks, so there the publish comes before the record:
// after a crash in between the handler runs again, and what it produces then are new messages.
//
// # Order of middlewares
//
//	router.AddMiddleware(
//		poison,               // PoisonQueueWithFilter(pub, topic, watermillonceq.IsFinal)
//		middleware.Recoverer, // a panic passes through the claim, is recorded, and ends here
//		once,
//		retry.Middleware,     // inside: all tries are one run under one claim
//	)
//
// Watermill has no dead letters. Without a poison queue a final error is nacked like any other, and
// the message comes again until the broker has enough. A PoisonQueue without a filter is wrong
// around this middleware: it would ack messages whose handler is still at work elsewhere.
//
// The Router's Close ends the contexts of messages at once, and waits for handlers. The key of a
// handler that returns an error then is free again. One that does not look at its context keeps its
// key until it ends, however long the Router waits, as long as the process lives.
//
// # onceq's brokers as a Watermill Pub/Sub
//
// [NewPublisher] and [NewSubscriber] bring any broker.Broker to Watermill. Heartbeats keep a
// delivery alive until its Ack or Nack.
package watermillonceq
