package pubsubfake

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onceq/onceq/internal/fakeserver"
)

// Seek sets a subscription back or forth: what was published before the time is acked, and what was
// published later is not, as far as the subscription keeps it. Snapshots are not implemented.
func (s *Server) Seek(ctx context.Context, in *pubsubpb.SeekRequest) (*pubsubpb.SeekResponse, error) {
	return call(ctx, s, Request{Method: "Seek", Resource: in.GetSubscription()}, func(*Fault) (*pubsubpb.SeekResponse, error) {
		if in.GetSnapshot() != "" {
			return nil, unimplemented("snapshots")
		}
		if !in.GetTime().IsValid() {
			return nil, invalid("The value for target is missing or invalid: SeekRequest must have a time or a snapshot.")
		}
		now := s.lock()
		defer s.unlock(now)
		q, err := s.pullable(in.GetSubscription())
		if err != nil {
			return nil, err
		}
		q.age(now)
		q.seek(int64(in.GetTime().AsTime().Sub(s.base)))
		return &pubsubpb.SeekResponse{}, nil
	})
}

// seek acks what is older than at, and brings back what is younger.
func (q *subscription) seek(at int64) {
	q.discardUntil = at
	for m := q.all.First(); m != nil; {
		next := m.inAll.Next()
		switch {
		case m.at < at && m.state != retained:
			q.settle(m)
		case m.at >= at && (m.state == retained || m.state == settled):
			m.state = ready
		}
		m = next
	}
	q.relane()
}

// relane gives each message its place anew, because some have come back among the others.
func (q *subscription) relane() {
	q.ready, q.open, q.lanes = fakeserver.List[*message]{}, fakeserver.List[*lane]{}, map[string]*lane{}
	for m := q.all.First(); m != nil; m = m.inAll.Next() {
		m.inOrder, m.lane = fakeserver.Place[*message]{}, nil
		if m.state == retained {
			continue
		}
		q.enqueue(m)
		if m.lane != nil && m.state == held {
			m.lane.out++
		}
	}
	for m := q.all.First(); m != nil; m = m.inAll.Next() {
		switch {
		case m.lane != nil:
			m.lane.update()
		case m.state == ready:
			q.ready.Append(&m.inOrder, m)
		}
	}
	q.wake()
}

// ListTopicSnapshots is not implemented.
func (s *Server) ListTopicSnapshots(ctx context.Context, in *pubsubpb.ListTopicSnapshotsRequest) (*pubsubpb.ListTopicSnapshotsResponse, error) {
	return noSnapshots[*pubsubpb.ListTopicSnapshotsResponse](ctx, s, "ListTopicSnapshots", in.GetTopic())
}

// GetSnapshot is not implemented.
func (s *Server) GetSnapshot(ctx context.Context, in *pubsubpb.GetSnapshotRequest) (*pubsubpb.Snapshot, error) {
	return noSnapshots[*pubsubpb.Snapshot](ctx, s, "GetSnapshot", in.GetSnapshot())
}

// ListSnapshots is not implemented.
func (s *Server) ListSnapshots(ctx context.Context, in *pubsubpb.ListSnapshotsRequest) (*pubsubpb.ListSnapshotsResponse, error) {
	return noSnapshots[*pubsubpb.ListSnapshotsResponse](ctx, s, "ListSnapshots", in.GetProject())
}

// CreateSnapshot is not implemented.
func (s *Server) CreateSnapshot(ctx context.Context, in *pubsubpb.CreateSnapshotRequest) (*pubsubpb.Snapshot, error) {
	return noSnapshots[*pubsubpb.Snapshot](ctx, s, "CreateSnapshot", in.GetName())
}

// UpdateSnapshot is not implemented.
func (s *Server) UpdateSnapshot(ctx context.Context, in *pubsubpb.UpdateSnapshotRequest) (*pubsubpb.Snapshot, error) {
	return noSnapshots[*pubsubpb.Snapshot](ctx, s, "UpdateSnapshot", in.GetSnapshot().GetName())
}

// DeleteSnapshot is not implemented.
func (s *Server) DeleteSnapshot(ctx context.Context, in *pubsubpb.DeleteSnapshotRequest) (*emptypb.Empty, error) {
	return noSnapshots[*emptypb.Empty](ctx, s, "DeleteSnapshot", in.GetSnapshot())
}

func noSnapshots[R any](ctx context.Context, s *Server, method, resource string) (R, error) {
	return call(ctx, s, Request{Method: method, Resource: resource}, func(*Fault) (R, error) {
		var none R
		return none, unimplemented("snapshots")
	})
}
