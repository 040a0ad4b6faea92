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
func (q *subscription) letter(m *message) *pubsubpb.PubsubMessage {
	out := proto.CloneOf(m.pb)
	as := maps.Clone(out.Attributes)
	if as == nil {
		as = make(map[string]string, 4)
	}
	parts := strings.Split(q.name, "/")
	as[sourceDeliveryCount] = strconv.Itoa(int(m.attempts))
	as[sourceSubscription] = parts[3]
	as[sourceProject] = parts[1]
	as[sourcePublishTime] = m.pb.PublishTime.AsTime().Format("2006-01-02T15:04:05.999-07:00")
	out.Attributes = as
	return out
}
