package onceqpubsub

import (
	"gocloud.dev/pubsub/driver"

	"github.com/onceq/onceq/broker"
)

// TopicDriver is what OpenTopic gives to gocloud.
func TopicDriver(s broker.Sender, o *TopicOptions) (driver.Topic, error) { return newTopic(s, o) }

// SubscriptionDriver is what OpenSubscription gives to gocloud.
func SubscriptionDriver(r broker.Receiver, o *SubscriptionOptions) (driver.Subscription, error) {
	return newSubscription(r, o)
}

// Pack and Unpack are what becomes of metadata on a broker with these limits.
func Pack(l broker.Limits, peer bool, metadata map[string]string) map[string]string {
	return formOf(l, peer).pack(metadata, 0)
}

func Unpack(l broker.Limits, peer bool, attributes map[string]string) map[string]string {
	return formOf(l, peer).unpack(attributes)
}

// Escape is a key's name on SQS.
var Escape, Unescape = escape, unescape
