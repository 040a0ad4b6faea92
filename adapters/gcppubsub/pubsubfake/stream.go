package pubsubfake

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns streaming pulls. StreamingPull runs in the goroutine of its stream and delivers;
// another one reads what the client sends. The server's lock guards the fields of stream below it.

// streamBatch is how many messages one answer on a stream holds at most.
const streamBatch = 1000

// stream is one streaming pull.
type stream struct {
	q     *subscription
	hold  time.Duration
	max   int // messages that may be out; 0 means no limit
	bytes int
	// changed gets a value when there may be room again.
	changed chan struct{}
	// pings: the client wants answers to requests that ask for nothing; pinged gets one for each.
	pings  bool
	pinged chan struct{}
	// ended gets the error that ends the stream.
	ended chan error

	out, outBytes int
}

func (st *stream) hand(m *message) {
	st.out++
	st.outBytes += m.size
}

// release tells that m, which the stream had, is held no longer.
func (st *stream) release(m *message) {
	st.out--
	st.outBytes -= m.size
	select {
	case st.changed <- struct{}{}:
	default:
	}
}

// finish ends the stream; the first error counts.
func (st *stream) finish(err error) {
	select {
	case st.ended <- err:
	default:
	}
}

// room is how much may be delivered now.
func (st *stream) room() (messages, bytes int) {
	messages, bytes = streamBatch, maxPullBytes
	if st.max > 0 {
		messages = min(messages, st.max-st.out)
	}
	if st.bytes > 0 {
		bytes = min(bytes, st.bytes-st.outBytes)
	}
	return messages, bytes
}

// StreamingPull delivers messages as they come, as long as the client has room for them. What the
// client sends on it acks, nacks and extends.
func (s *Server) StreamingPull(g pubsubpb.Subscriber_StreamingPullServer) error {
	first, err := g.Recv()
	if err != nil {
		return err
	}
	r := Request{Method: "StreamingPull", Resource: first.GetSubscription()}
	_, err = call(g.Context(), s, r, func(f *Fault) (*pulled, error) { return nil, s.stream(g, first) })
	return err
}

func (s *Server) stream(g pubsubpb.Subscriber_StreamingPullServer, first *pubsubpb.StreamingPullRequest) error {
	st, err := s.openStream(first)
	if err != nil {
		return err
	}
	defer s.closeStream(st)
	go s.listen(st, g)
	if err := s.obey(st, first); err != nil {
		return err
	}
	for {
		answer, ended, err := s.nextAnswer(g, st)
		if answer != nil {
			if err := g.Send(answer); err != nil {
				return err
			}
		}
		if ended {
			return err
		}
	}
}

// nextAnswer waits for what is to be sent, nil for nothing yet, or for the end of the stream.
func (s *Server) nextAnswer(
	g pubsubpb.Subscriber_StreamingPullServer, st *stream,
) (answer *pubsubpb.StreamingPullResponse, ended bool, err error) {
	w, got, props := s.streamTake(st)
	answer = &pubsubpb.StreamingPullResponse{SubscriptionProperties: props}
	if len(got) > 0 {
		answer.ReceivedMessages = (&pulled{got}).shared()
		return answer, false, nil
	}
	var answered chan struct{} // nil, and never ready, while there is no room
	if w != nil {
		answered = w.answered
	}
	pinged := false
	select {
	case <-answered:
	case <-st.changed:
	case <-st.pinged:
		pinged = true
	case err = <-st.ended:
		ended = true
	case <-g.Context().Done():
		err, ended = status.FromContextError(g.Context().Err()).Err(), true
	case <-s.closing:
		err, ended = status.Error(codes.Unavailable, "The server is closing."), true
	}
	if w != nil {
		st.q.abandon(w)
		answer.ReceivedMessages = (&pulled{w.got}).shared()
		if w.err != nil && !ended {
			err, ended = w.err, true
		}
	}
	if len(answer.ReceivedMessages) == 0 && !pinged {
		answer = nil
	}
	return answer, ended, err
}

// listen does what the client asks for, until the stream ends: soon after StreamingPull returned.
func (s *Server) listen(st *stream, g pubsubpb.Subscriber_StreamingPullServer) {
	defer s.running.Done()
	for {
		in, err := g.Recv()
		if err != nil {
			st.finish(nil) // the client is done, or gone
			return
		}
		if err = checkFollowing(in); err == nil {
			err = s.obey(st, in)
		}
		if st.pings && len(in.GetAckIds()) == 0 && len(in.GetModifyDeadlineAckIds()) == 0 {
			select {
			case st.pinged <- struct{}{}:
			default:
			}
		}
		if err != nil {
			st.finish(err)
			return
		}
	}
}

// streamTake takes what there is and has room, or begins to wait for it.
func (s *Server) streamTake(st *stream) (*waiter, []delivery, *pubsubpb.StreamingPullResponse_SubscriptionProperties) {
	now := s.lock()
	defer s.unlock(now)
	q := st.q
	props := &pubsubpb.StreamingPullResponse_SubscriptionProperties{
		ExactlyOnceDeliveryEnabled: q.set.once, MessageOrderingEnabled: q.set.ordered,
	}
	messages, bytes := st.room()
	if messages <= 0 || bytes <= 0 {
		return nil, nil, props
	}
	w := wish{max: messages, bytes: bytes, hold: st.hold, stream: st}
	if got := q.take(&w, now); len(got) > 0 {
		return nil, got, props
	}
	waiting := &waiter{wish: w, answered: make(chan struct{})}
	q.waiters.Append(&waiting.place, waiting)
	s.waiting++
	return waiting, nil, props
}

func (s *Server) openStream(in *pubsubpb.StreamingPullRequest) (*stream, error) {
	now := s.lock()
	defer s.unlock(now)
	q, err := s.pullable(in.GetSubscription())
	if err != nil {
		return nil, err
	}
	if d := in.GetStreamAckDeadlineSeconds(); d < minDeadline || d > maxDeadline {
		return nil, outOfRange("stream_ack_deadline_seconds", d, "10 to 600")
	}
	if s.draining {
		return nil, status.Error(codes.Unavailable, "The server is closing.")
	}
	st := &stream{
		q: q, hold: time.Duration(in.GetStreamAckDeadlineSeconds()) * time.Second,
		max: int(max(in.GetMaxOutstandingMessages(), 0)), bytes: int(max(in.GetMaxOutstandingBytes(), 0)),
		pings: in.GetProtocolVersion() >= 1, changed: make(chan struct{}, 1), pinged: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	q.streams[st] = struct{}{}
	s.waiting++      // also while it has no room, until the end of a hold makes some
	s.running.Add(1) // for listen
	return st, nil
}

func (s *Server) closeStream(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(st.q.streams, st)
	s.waiting--
}

// checkFollowing refuses what only the first request of a stream may hold.
func checkFollowing(in *pubsubpb.StreamingPullRequest) error {
	switch {
	case in.GetSubscription() != "":
		return invalid("subscription must be set only on the first StreamingPullRequest.")
	case in.GetClientId() != "":
		return invalid("client_id must be set only on the first StreamingPullRequest.")
	case in.GetMaxOutstandingMessages() != 0 || in.GetMaxOutstandingBytes() != 0:
		return invalid("max_outstanding_messages and max_outstanding_bytes must be set only on the first StreamingPullRequest.")
	}
	return nil
}

// obey does what a request on a stream asks for.
func (s *Server) obey(st *stream, in *pubsubpb.StreamingPullRequest) error {
	if len(in.GetModifyDeadlineSeconds()) != len(in.GetModifyDeadlineAckIds()) {
		return invalid("modify_deadline_seconds and modify_deadline_ack_ids have different lengths.")
	}
	for _, d := range in.GetModifyDeadlineSeconds() {
		if d < 0 || d > maxDeadline {
			return outOfRange("modify_deadline_seconds", d, "0 to 600")
		}
	}
	d := in.GetStreamAckDeadlineSeconds()
	if d != 0 && (d < minDeadline || d > maxDeadline) {
		return outOfRange("stream_ack_deadline_seconds", d, "10 to 600")
	}
	now := s.lock()
	defer s.unlock(now)
	if d != 0 {
		st.hold = time.Duration(d) * time.Second
	}
	q := st.q
	if _, err := q.each(in.GetAckIds(), &noFault, now, func(q *subscription, a ackID, _ int64) string { return q.ack(a) }); err != nil {
		return err
	}
	for i, id := range in.GetModifyDeadlineAckIds() {
		seconds := in.GetModifyDeadlineSeconds()[i]
		if _, err := q.each([]string{id}, &noFault, now, func(q *subscription, a ackID, now int64) string { return q.modify(a, seconds, now) }); err != nil {
			return err
		}
	}
	return nil
}
