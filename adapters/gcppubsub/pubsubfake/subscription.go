package pubsubfake

import (
	"context"
	"maps"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns the life of subscriptions, as the API's methods tell and change it, under the
// server's lock. settings.go reads and checks what they are set to, queue.go keeps their messages.

// CreateSubscription makes a subscription. It gets what is published from now on.
func (s *Server) CreateSubscription(ctx context.Context, in *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	return call(ctx, s, Request{Method: "CreateSubscription", Resource: in.GetName()}, func(*Fault) (*pubsubpb.Subscription, error) {
		if err := checkNewName("name", in.GetName(), "subscriptions"); err != nil {
			return nil, err
		}
		pb := proto.CloneOf(in)
		set, err := readSettings(pb)
		if err != nil {
			return nil, err
		}
		now := s.lock()
		defer s.unlock(now)
		if s.subs[pb.Name] != nil {
			return nil, exists(pb.Name)
		}
		t, err := s.topic(pb.Topic)
		if err == nil {
			err = s.checkGrave(&set)
		}
		if err != nil {
			return nil, err
		}
		s.nonces++
		q := &subscription{
			s: s.service, name: pb.Name, nonce: s.nonces, pb: pb, set: set, topic: t,
			messages: map[uint64]*message{}, lanes: map[string]*lane{}, streams: map[consumer]struct{}{},
		}
		pb.State = pubsubpb.Subscription_ACTIVE
		t.subs = append(t.subs, q)
		s.subs[q.name] = q
		return proto.CloneOf(pb), nil
	})
}

// GetSubscription tells a subscription's settings.
func (s *Server) GetSubscription(ctx context.Context, in *pubsubpb.GetSubscriptionRequest) (*pubsubpb.Subscription, error) {
	return call(ctx, s, Request{Method: "GetSubscription", Resource: in.GetSubscription()}, func(*Fault) (*pubsubpb.Subscription, error) {
		now := s.lock()
		defer s.unlock(now)
		q, err := s.subscription(in.GetSubscription())
		if err != nil {
			return nil, err
		}
		return proto.CloneOf(q.pb), nil
	})
}

// ListSubscriptions tells the subscriptions of a project, in the order of their names.
func (s *Server) ListSubscriptions(ctx context.Context, in *pubsubpb.ListSubscriptionsRequest) (*pubsubpb.ListSubscriptionsResponse, error) {
	return call(ctx, s, Request{Method: "ListSubscriptions", Resource: in.GetProject()}, func(*Fault) (*pubsubpb.ListSubscriptionsResponse, error) {
		now := s.lock()
		defer s.unlock(now)
		names, next, err := page(maps.Keys(s.subs), in.GetProject(), in.GetPageSize(), in.GetPageToken())
		if err != nil {
			return nil, err
		}
		out := &pubsubpb.ListSubscriptionsResponse{NextPageToken: next}
		for _, name := range names {
			out.Subscriptions = append(out.Subscriptions, proto.CloneOf(s.subs[name].pb))
		}
		return out, nil
	})
}

// UpdateSubscription changes the settings that the mask names. The topic, the order, the filter and
// the name stay as they were made.
func (s *Server) UpdateSubscription(ctx context.Context, in *pubsubpb.UpdateSubscriptionRequest) (*pubsubpb.Subscription, error) {
	name := in.GetSubscription().GetName()
	return call(ctx, s, Request{Method: "UpdateSubscription", Resource: name}, func(*Fault) (*pubsubpb.Subscription, error) {
		now := s.lock()
		defer s.unlock(now)
		q, err := s.subscription(name)
		if err != nil {
			return nil, err
		}
		if len(in.GetUpdateMask().GetPaths()) == 0 {
			return nil, invalid("The update_mask in the UpdateSubscriptionRequest must be set, and must contain a non-empty paths list.")
		}
		pb, from := proto.CloneOf(q.pb), proto.CloneOf(in.GetSubscription())
		for _, path := range in.GetUpdateMask().GetPaths() {
			if err := update(pb, from, path); err != nil {
				return nil, err
			}
		}
		set, err := readSettings(pb)
		if err == nil && pb.GetDeadLetterPolicy().GetDeadLetterTopic() != q.set.deadLetter {
			err = s.checkGrave(&set)
		}
		if err != nil {
			return nil, err
		}
		q.pb, q.set = pb, set
		return proto.CloneOf(pb), nil
	})
}

// checkGrave refuses a dead-letter topic that does not exist.
func (s *Server) checkGrave(set *settings) error {
	if set.deadLetter == "" {
		return nil
	}
	_, err := s.topic(set.deadLetter)
	return err
}

// update changes one setting.
func update(to, from *pubsubpb.Subscription, path string) error {
	switch path {
	case "ack_deadline_seconds":
		to.AckDeadlineSeconds = from.AckDeadlineSeconds
	case "retain_acked_messages":
		to.RetainAckedMessages = from.RetainAckedMessages
	case "message_retention_duration":
		to.MessageRetentionDuration = from.MessageRetentionDuration
	case "labels":
		to.Labels = from.Labels
	case "expiration_policy":
		to.ExpirationPolicy = from.ExpirationPolicy
	case "dead_letter_policy":
		to.DeadLetterPolicy = from.DeadLetterPolicy
	case "retry_policy":
		to.RetryPolicy = from.RetryPolicy
	case "enable_exactly_once_delivery":
		to.EnableExactlyOnceDelivery = from.EnableExactlyOnceDelivery
	case "push_config":
		to.PushConfig = from.PushConfig
	default:
		return invalid("Invalid update_mask provided in the UpdateSubscriptionRequest: %q is not a mutable Subscription field.", path)
	}
	return nil
}

// DeleteSubscription deletes a subscription with its messages. Ack ids of it do nothing, also when
// another one gets its name.
func (s *Server) DeleteSubscription(ctx context.Context, in *pubsubpb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	return call(ctx, s, Request{Method: "DeleteSubscription", Resource: in.GetSubscription()}, func(*Fault) (*emptypb.Empty, error) {
		now := s.lock()
		defer s.unlock(now)
		q, err := s.subscription(in.GetSubscription())
		if err != nil {
			return nil, err
		}
		q.detach()
		q.clear()
		delete(s.subs, q.name)
		delete(s.policies, q.name)
		q.refuse(notFound(q.name))
		return &emptypb.Empty{}, nil
	})
}

// ModifyPushConfig takes an empty config; this server pushes nothing.
func (s *Server) ModifyPushConfig(ctx context.Context, in *pubsubpb.ModifyPushConfigRequest) (*emptypb.Empty, error) {
	return call(ctx, s, Request{Method: "ModifyPushConfig", Resource: in.GetSubscription()}, func(*Fault) (*emptypb.Empty, error) {
		now := s.lock()
		defer s.unlock(now)
		if _, err := s.subscription(in.GetSubscription()); err != nil {
			return nil, err
		}
		if in.GetPushConfig().GetPushEndpoint() != "" {
			return nil, unimplemented("pushing")
		}
		return &emptypb.Empty{}, nil
	})
}
