package pubsubfake

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns what becomes of ack ids: acks, nacks and extensions, from Acknowledge,
// ModifyAckDeadline and streaming pulls, under the server's lock.
//
// Without exactly-once delivery an id is only a hint: a call with a late one succeeds. With it, the
// id of the last delivery is valid until the ack deadline, and no other one; each id that fails is
// named in the error, and the others are applied.

const (
	maxAckIDs      = 1000
	maxAckIDsBytes = 512 << 10
)

// Acknowledge ends messages.
func (s *Server) Acknowledge(ctx context.Context, in *pubsubpb.AcknowledgeRequest) (*emptypb.Empty, error) {
	r := Request{Method: "Acknowledge", Resource: in.GetSubscription(), Entries: len(in.GetAckIds())}
	return call(ctx, s, r, func(f *Fault) (*emptypb.Empty, error) {
		var acked map[ackID]bool // an id that comes twice in one call fails not by itself
		return s.settleAll(in.GetSubscription(), in.GetAckIds(), f, func(q *subscription, a ackID, _ int64) string {
			if acked[a] {
				return ""
			}
			how := q.ack(a)
			if q.set.once && how == "" && len(in.GetAckIds()) > 1 {
				if acked == nil {
					acked = make(map[ackID]bool, len(in.GetAckIds()))
				}
				acked[a] = true
			}
			return how
		})
	})
}

// ModifyAckDeadline holds messages for so many seconds from now, 0 to 600; 0 nacks them.
func (s *Server) ModifyAckDeadline(ctx context.Context, in *pubsubpb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	seconds := in.GetAckDeadlineSeconds()
	r := Request{Method: "ModifyAckDeadline", Resource: in.GetSubscription(), Entries: len(in.GetAckIds()), Seconds: seconds}
	return call(ctx, s, r, func(f *Fault) (*emptypb.Empty, error) {
		if seconds < 0 || seconds > maxDeadline {
			return nil, outOfRange("ack_deadline_seconds", seconds, "0 to 600")
		}
		return s.settleAll(in.GetSubscription(), in.GetAckIds(), f, func(q *subscription, a ackID, now int64) string {
			return q.modify(a, seconds, now)
		})
	})
}

// settleAll does something with each id of a call; one tells how an id fails, "" if it does not.
func (s *Server) settleAll(name string, ids []string, f *Fault, one func(q *subscription, a ackID, now int64) string) (*emptypb.Empty, error) {
	if err := checkAckIDs(ids); err != nil {
		return nil, err
	}
	now := s.lock()
	defer s.unlock(now)
	q, err := s.subscription(name)
	if err != nil {
		return nil, err
	}
	failed, err := q.each(ids, f, now, one)
	if err != nil {
		return nil, err
	}
	if len(failed) > 0 {
		return nil, ackIDsFailed(failed)
	}
	return &emptypb.Empty{}, nil
}

// each does something with each id, and collects those that fail.
func (q *subscription) each(ids []string, f *Fault, now int64, one func(q *subscription, a ackID, now int64) string) (map[string]string, error) {
	q.age(now)
	read := make([]ackID, len(ids))
	var failed map[string]string
	fail := func(id, how string) {
		if failed == nil {
			failed = map[string]string{}
		}
		failed[id] = how
	}
	for i, id := range ids {
		a, ok := readAckID(id)
		switch {
		case ok:
			read[i] = a
		case q.set.once:
			fail(id, permanentInvalid)
		default:
			return nil, invalid("You have passed an invalid ack ID to the service (ack_id=%.64s).", id)
		}
	}
	for i, id := range ids {
		if read[i] == (ackID{}) {
			continue
		}
		how := ""
		if q.set.once {
			how = f.entry(i)
		}
		if how == "" || f.Applied {
			if wrong := one(q, read[i], now); how == "" {
				how = wrong
			}
		}
		if how != "" {
			fail(id, how)
		}
	}
	return failed, nil
}

func checkAckIDs(ids []string) error {
	if len(ids) == 0 {
		return invalid("No ack ids specified: ack_ids must hold 1 to %d.", maxAckIDs)
	}
	if len(ids) > maxAckIDs {
		return invalid("Request has %d ack_ids, more than %d.", len(ids), maxAckIDs)
	}
	bytes := 0
	for _, id := range ids {
		bytes += len(id)
	}
	if bytes > maxAckIDsBytes {
		return invalid("Request payload size exceeds the limit: ack_ids have %d bytes, more than %d.", bytes, maxAckIDsBytes)
	}
	return nil
}

// ack ends a message.
func (q *subscription) ack(a ackID) string {
	m, current := q.find(a)
	if q.set.once {
		if m == nil || !current || m.state != held {
			return permanentInvalid
		}
		if m.lane != nil && m != m.lane.messages.First() {
			return transientUnordered
		}
		q.settle(m)
		return ""
	}
	if m == nil || m.state == settled || !current && m.state == held && !q.staleWorks() {
		return ""
	}
	if m.lane != nil {
		m.lane.ack(m)
	} else {
		q.settle(m)
	}
	return ""
}

// modify holds a message until so many seconds from now, or nacks it.
func (q *subscription) modify(a ackID, seconds int32, now int64) string {
	m, current := q.find(a)
	switch {
	case q.set.once && (m == nil || !current || m.state != held):
		return permanentInvalid
	case m == nil || m.state != held || !current && !q.staleWorks():
		return "" // too late: what is not held is not hidden again
	}
	if seconds == 0 {
		q.fail(m, now)
		return ""
	}
	q.s.deadline.Fix(&m.place, now+int64(seconds)*int64(time.Second))
	return ""
}

// staleWorks decides over one use of an ack id of an earlier delivery.
func (q *subscription) staleWorks() bool {
	if q.s.o.StaleAckIDs == StaleRandom {
		return q.s.rnd.IntN(2) == 0
	}
	return q.s.o.StaleAckIDs == StaleWork
}

// find is the message of an ack id; nil when it has left the subscription. current says whether the
// id is of its last delivery. One that is retained has no more to lose by an ack.
func (q *subscription) find(a ackID) (m *message, current bool) {
	if a.nonce != q.nonce {
		return nil, false
	}
	m = q.messages[a.num]
	return m, m != nil && m.serial == a.serial
}
