package pubsubfake

import (
	"context"
	"maps"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns the life of topics, as the API's methods tell and change it, and what may be
// published to them. Publishers and Google's admin client call it. The server's lock guards all.
// topicstate.go gives the subscriptions what is published.

// deletedTopic is what a subscription tells as its topic when that was deleted.
const deletedTopic = "_deleted-topic_"

const (
	maxPublished    = 1000
	maxPublishBytes = 10_000_000
	maxAttributes   = 100
	maxKeyBytes     = 256
	maxValueBytes   = 1024
	maxOrderingKey  = 1024
)

// Publish publishes messages. Each subscription that is there at this time gets them; without one
// they are lost.
func (s *Server) Publish(ctx context.Context, in *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	return s.publish(ctx, in, func(m *pubsubpb.PubsubMessage) *pubsubpb.PubsubMessage { return proto.CloneOf(m) })
}

// publish publishes what own makes of each message: one that belongs to the server.
func (s *Server) publish(ctx context.Context, in *pubsubpb.PublishRequest, own func(*pubsubpb.PubsubMessage) *pubsubpb.PubsubMessage) (*pubsubpb.PublishResponse, error) {
	r := Request{Method: "Publish", Resource: in.GetTopic(), Entries: len(in.GetMessages())}
	return call(ctx, s, r, func(*Fault) (*pubsubpb.PublishResponse, error) {
		if err := checkPublish(in); err != nil {
			return nil, err
		}
		now := s.lock()
		defer s.unlock(now)
		t, err := s.topic(in.GetTopic())
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(in.GetMessages()))
		for i, m := range in.GetMessages() {
			ids[i] = t.publish(own(m), now)
		}
		return &pubsubpb.PublishResponse{MessageIds: ids}, nil
	})
}

func checkPublish(in *pubsubpb.PublishRequest) error {
	n := len(in.GetMessages())
	if n == 0 || n > maxPublished {
		return outOfRange("messages", strconv.Itoa(n)+" messages", "1 to 1000 in one request")
	}
	if size := proto.Size(in); size > maxPublishBytes {
		return invalid("Request payload size exceeds the limit: %d bytes, more than %d.", size, maxPublishBytes)
	}
	for i, m := range in.GetMessages() {
		if err := checkMessage(i, m); err != nil {
			return err
		}
		if m.GetOrderingKey() != in.GetMessages()[0].GetOrderingKey() {
			// so it answered a user of google-cloud-rust (issue 226)
			return status.Error(codes.FailedPrecondition, "In a single publish request, all messages must have no ordering key "+
				"or they must all have the same ordering key.")
		}
	}
	return nil
}

func checkMessage(i int, m *pubsubpb.PubsubMessage) error {
	as := m.GetAttributes()
	switch {
	case len(m.GetData()) == 0 && len(as) == 0:
		return invalid("One or more messages in the publish request is empty. Each message must contain either non-empty data, "+
			"or at least one attribute (messages[%d]).", i)
	case len(as) > maxAttributes:
		return outOfRange("messages["+strconv.Itoa(i)+"].attributes", len(as), "100 at most")
	case len(m.GetOrderingKey()) > maxOrderingKey:
		return outOfRange("messages["+strconv.Itoa(i)+"].ordering_key", strconv.Itoa(len(m.GetOrderingKey()))+" bytes", "1024 bytes at most")
	}
	for k, v := range as {
		switch {
		case k == "":
			return invalid("The key of an attribute in messages[%d].attributes is empty.", i)
		case len(k) > maxKeyBytes:
			return outOfRange("messages["+strconv.Itoa(i)+"].attributes", "a key of "+strconv.Itoa(len(k))+" bytes", "256 bytes at most")
		case len(v) > maxValueBytes:
			return outOfRange("messages["+strconv.Itoa(i)+"].attributes["+k+"]", "a value of "+strconv.Itoa(len(v))+" bytes", "1024 bytes at most")
		}
	}
	return nil
}

// CreateTopic makes a topic.
func (s *Server) CreateTopic(ctx context.Context, in *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	return call(ctx, s, Request{Method: "CreateTopic", Resource: in.GetName()}, func(*Fault) (*pubsubpb.Topic, error) {
		if err := checkNewName("name", in.GetName(), "topics"); err != nil {
			return nil, err
		}
		if err := checkTopic(in); err != nil {
			return nil, err
		}
		now := s.lock()
		defer s.unlock(now)
		if s.topics[in.GetName()] != nil {
			return nil, exists(in.GetName())
		}
		t := &topic{s: s.service, pb: proto.CloneOf(in)}
		t.pb.State = pubsubpb.Topic_ACTIVE
		s.topics[in.GetName()] = t
		return proto.CloneOf(t.pb), nil
	})
}

// GetTopic tells a topic's settings.
func (s *Server) GetTopic(ctx context.Context, in *pubsubpb.GetTopicRequest) (*pubsubpb.Topic, error) {
	return call(ctx, s, Request{Method: "GetTopic", Resource: in.GetTopic()}, func(*Fault) (*pubsubpb.Topic, error) {
		now := s.lock()
		defer s.unlock(now)
		t, err := s.topic(in.GetTopic())
		if err != nil {
			return nil, err
		}
		return proto.CloneOf(t.pb), nil
	})
}

// UpdateTopic changes the labels of a topic; its other settings are not implemented.
func (s *Server) UpdateTopic(ctx context.Context, in *pubsubpb.UpdateTopicRequest) (*pubsubpb.Topic, error) {
	return call(ctx, s, Request{Method: "UpdateTopic", Resource: in.GetTopic().GetName()}, func(*Fault) (*pubsubpb.Topic, error) {
		now := s.lock()
		defer s.unlock(now)
		t, err := s.topic(in.GetTopic().GetName())
		if err != nil {
			return nil, err
		}
		if len(in.GetUpdateMask().GetPaths()) == 0 {
			return nil, invalid("The update_mask in the UpdateTopicRequest must be set, and must contain a non-empty paths list.")
		}
		for _, path := range in.GetUpdateMask().GetPaths() {
			if path != "labels" {
				return nil, unimplemented("an update of a topic's %s", path)
			}
		}
		t.pb.Labels = maps.Clone(in.GetTopic().GetLabels())
		return proto.CloneOf(t.pb), nil
	})
}

// ListTopics tells the topics of a project, in the order of their names.
func (s *Server) ListTopics(ctx context.Context, in *pubsubpb.ListTopicsRequest) (*pubsubpb.ListTopicsResponse, error) {
	return call(ctx, s, Request{Method: "ListTopics", Resource: in.GetProject()}, func(*Fault) (*pubsubpb.ListTopicsResponse, error) {
		now := s.lock()
		defer s.unlock(now)
		names, next, err := page(maps.Keys(s.topics), in.GetProject(), in.GetPageSize(), in.GetPageToken())
		if err != nil {
			return nil, err
		}
		out := &pubsubpb.ListTopicsResponse{NextPageToken: next}
		for _, name := range names {
			out.Topics = append(out.Topics, proto.CloneOf(s.topics[name].pb))
		}
		return out, nil
	})
}

// ListTopicSubscriptions tells the names of the subscriptions that are attached to a topic.
func (s *Server) ListTopicSubscriptions(ctx context.Context, in *pubsubpb.ListTopicSubscriptionsRequest) (*pubsubpb.ListTopicSubscriptionsResponse, error) {
	return call(ctx, s, Request{Method: "ListTopicSubscriptions", Resource: in.GetTopic()}, func(*Fault) (*pubsubpb.ListTopicSubscriptionsResponse, error) {
		now := s.lock()
		defer s.unlock(now)
		t, err := s.topic(in.GetTopic())
		if err != nil {
			return nil, err
		}
		all := map[string]bool{}
		for _, q := range t.subs {
			all[q.name] = true
		}
		names, next, err := page(maps.Keys(all), "", in.GetPageSize(), in.GetPageToken())
		if err != nil {
			return nil, err
		}
		return &pubsubpb.ListTopicSubscriptionsResponse{Subscriptions: names, NextPageToken: next}, nil
	})
}

// DeleteTopic deletes a topic. Its subscriptions stay, with the messages that they have.
func (s *Server) DeleteTopic(ctx context.Context, in *pubsubpb.DeleteTopicRequest) (*emptypb.Empty, error) {
	return call(ctx, s, Request{Method: "DeleteTopic", Resource: in.GetTopic()}, func(*Fault) (*emptypb.Empty, error) {
		now := s.lock()
		defer s.unlock(now)
		t, err := s.topic(in.GetTopic())
		if err != nil {
			return nil, err
		}
		for _, q := range t.subs {
			q.topic, q.pb.Topic = nil, deletedTopic
		}
		delete(s.topics, in.GetTopic())
		delete(s.policies, in.GetTopic())
		return &emptypb.Empty{}, nil
	})
}

// DetachSubscription ends a subscription's part in its topic, and drops its messages. It cannot be
// attached again; pulls answer FailedPrecondition.
func (s *Server) DetachSubscription(ctx context.Context, in *pubsubpb.DetachSubscriptionRequest) (*pubsubpb.DetachSubscriptionResponse, error) {
	return call(ctx, s, Request{Method: "DetachSubscription", Resource: in.GetSubscription()}, func(*Fault) (*pubsubpb.DetachSubscriptionResponse, error) {
		now := s.lock()
		defer s.unlock(now)
		q, err := s.subscription(in.GetSubscription())
		if err != nil {
			return nil, err
		}
		q.detach()
		q.pb.Detached = true
		q.clear()
		q.refuse(detached(q.name))
		return &pubsubpb.DetachSubscriptionResponse{}, nil
	})
}
