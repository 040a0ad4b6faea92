package pubsubfake

import (
	"slices"
	"strconv"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// topic is a topic with the subscriptions that are attached to it.
type topic struct {
	s    *service
	pb   *pubsubpb.Topic
	subs []*subscription // in the order of their creation
}

// publish gives each subscription the messages, which get ids and a time.
func (t *topic) publish(m *pubsubpb.PubsubMessage, now int64) (id string) {
	t.s.ids++
	m.MessageId = strconv.FormatUint(t.s.ids, 10)
	m.PublishTime = timestamppb.New(t.s.time(now))
	c := &content{pb: m, size: proto.Size(m), at: now}
	for _, q := range t.subs {
		q.add(c)
	}
	return m.MessageId
}

// detach takes q from its topic.
func (q *subscription) detach() {
	if t := q.topic; t != nil {
		t.subs = slices.DeleteFunc(t.subs, func(o *subscription) bool { return o == q })
		q.topic = nil
	}
}
