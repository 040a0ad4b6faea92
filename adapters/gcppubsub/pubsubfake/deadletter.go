package pubsubfake

import (
	"maps"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// The attributes that the service adds to a message that it moves to a dead-letter topic.
const (
	sourceDeliveryCount = "CloudPubSubDeadLetterSourceDeliveryCount"
	sourceSubscription  = "CloudPubSubDeadLetterSourceSubscription"
	sourceProject       = "CloudPubSubDeadLetterSourceSubscriptionProject"
	sourcePublishTime   = "CloudPubSubDeadLetterSourceTopicPublishTime"
)

// letter is m as the dead-letter topic gets it: with its data, key and attributes, and those that
// tell where it comes from. Publishing gives it a new id.
func letter(m *pubsubpb.PubsubMessage, subscription string, attempts int32) *pubsubpb.PubsubMessage {
	out := proto.CloneOf(m)
	as := maps.Clone(out.Attributes)
	if as == nil {
		as = make(map[string]string, 4)
	}
	parts := strings.Split(subscription, "/")
	as[sourceDeliveryCount] = strconv.Itoa(int(attempts))
	as[sourceSubscription] = parts[3]
	as[sourceProject] = parts[1]
	as[sourcePublishTime] = m.PublishTime.AsTime().Format("2006-01-02T15:04:05.999-07:00")
	out.Attributes = as
	return out
}
