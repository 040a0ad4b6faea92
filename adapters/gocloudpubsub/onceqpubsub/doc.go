// Package onceqpubsub is a driver of gocloud.dev/pubsub over onceq's queues, for programs that send
// and receive through gocloud's types:
//
//	topic, err := onceqpubsub.OpenTopic(queue, nil) // queue is mostly an awssqs.Broker
//	orders, err := onceqpubsub.OpenSubscription(queue, nil)
//
// Any [github.com/onceq/onceq/broker.Broker] will do. [OpenSubscription] keeps what was received
// hidden until its Ack, and one ack that fails does not end the subscription. [MoreAttribute] says
// how metadata travels. The package urls beneath this one opens the same by URL.
//
// The way back, onceq's workers on a queue of gocloud's, is
// [github.com/onceq/onceq/adapters/gocloudpubsub].
package onceqpubsub
