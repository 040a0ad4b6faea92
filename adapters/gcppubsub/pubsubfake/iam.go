package pubsubfake

import (
	"context"
	"strconv"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// resource finds what a policy is about.
func (s *Server) resource(name string) error {
	if s.topics[name] == nil && s.subs[name] == nil {
		return notFound(name)
	}
	return nil
}

// GetIamPolicy tells the policy of a topic or a subscription; an empty one where none was set.
func (s *Server) GetIamPolicy(ctx context.Context, in *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	return call(ctx, s, Request{Method: "GetIamPolicy", Resource: in.GetResource()}, func(*Fault) (*iampb.Policy, error) {
		now := s.lock()
		defer s.unlock(now)
		if err := s.resource(in.GetResource()); err != nil {
			return nil, err
		}
		if p := s.policies[in.GetResource()]; p != nil {
			return proto.CloneOf(p.pb), nil
		}
		return &iampb.Policy{Etag: []byte("0")}, nil
	})
}

// SetIamPolicy replaces the policy of a topic or a subscription. An etag must be that of the policy
// in force.
func (s *Server) SetIamPolicy(ctx context.Context, in *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	return call(ctx, s, Request{Method: "SetIamPolicy", Resource: in.GetResource()}, func(*Fault) (*iampb.Policy, error) {
		now := s.lock()
		defer s.unlock(now)
		if err := s.resource(in.GetResource()); err != nil {
			return nil, err
		}
		if in.GetPolicy() == nil {
			return nil, invalid("The policy is missing.")
		}
		p := s.policies[in.GetResource()]
		if p == nil {
			p = &policy{}
		}
		if etag := in.GetPolicy().GetEtag(); len(etag) > 0 && string(etag) != strconv.Itoa(p.version) {
			return nil, status.Error(codes.Aborted, "There were concurrent policy changes. Please retry the whole read-modify-write.")
		}
		next := &policy{pb: proto.CloneOf(in.GetPolicy()), version: p.version + 1}
		next.pb.Etag = []byte(strconv.Itoa(next.version))
		s.policies[in.GetResource()] = next
		return proto.CloneOf(next.pb), nil
	})
}

// TestIamPermissions answers all permissions that it is asked for: no policy is enforced.
func (s *Server) TestIamPermissions(ctx context.Context, in *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	return call(ctx, s, Request{Method: "TestIamPermissions", Resource: in.GetResource()}, func(*Fault) (*iampb.TestIamPermissionsResponse, error) {
		now := s.lock()
		defer s.unlock(now)
		if err := s.resource(in.GetResource()); err != nil {
			return nil, err
		}
		return &iampb.TestIamPermissionsResponse{Permissions: in.GetPermissions()}, nil
	})
}
