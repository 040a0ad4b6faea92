package pubsubfake

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns pulls: which messages one takes, how it waits, and how it is answered. Pull runs
// in the goroutine of its caller, and unlock (server.go) calls serve after each stretch of work
// that made messages ready. The server's lock guards the waiters, and is not held during a wait:
// answer closes a channel, and abandon ends the wait under the lock.

const (
	maxPull      = 1000
	maxPullBytes = 10_000_000
	// longestPull is when a pull that nobody bounds is answered with nothing.
	longestPull = 90 * time.Second
)

// wish is what a pull asks for.
type wish struct {
	max int
	// bytes bounds what it brings, but one message fits always.
	bytes int
	hold  time.Duration
	// repeat leaves what is taken ready: the next pull gets it too.
	repeat bool
	stream *stream
}

// next is the ready message that comes next: the oldest one without a key, or the first one of the
// key that waits longest.
func (q *subscription) next() *message {
	m, l := q.ready.first, q.open.first
	if l == nil || m != nil && m.num < l.first.num {
		return m
	}
	return l.first
}

// take delivers what is ready, up to w.max messages.
func (q *subscription) take(w *wish, now int64) (got []delivery) {
	q.age(now)
	bytes := 0
	var again []*message
	give := func(m *message) bool {
		if len(got) == w.max || len(got) > 0 && bytes+m.size > w.bytes {
			return false
		}
		bytes += m.size
		got = append(got, q.deliver(m, w, now))
		if w.repeat {
			again = append(again, m)
		}
		return true
	}
	for m := q.next(); m != nil; m = q.next() {
		l := m.lane
		if l == nil {
			if !give(m) {
				break
			}
			continue
		}
		before := len(got)
		for ; m != nil && m.state == ready && give(m); m = m.next {
		}
		if len(got) == before {
			break
		}
		l.failed = noneFailed
		l.update()
	}
	for _, m := range again {
		q.leave(m)
		q.show(m)
	}
	return got
}

func (q *subscription) deliver(m *message, w *wish, now int64) delivery {
	m.serial++
	d := delivery{content: m.content, ackID: newAckID(q.nonce, m.num, m.serial)}
	if q.set.deadLetter != "" {
		m.attempts++
		d.attempt = m.attempts
	}
	q.hold(m, held, now+int64(w.hold))
	if m.lane != nil {
		m.lane.out++
	}
	if w.stream != nil {
		m.stream = w.stream
		w.stream.take(m)
	}
	q.delivered.add(m.pb.MessageId, q.s.o.LogSize)
	return d
}

// Pull brings messages, and waits for one when there is none: until a little before the deadline of
// ctx, a tenth of what is left or a second, and 90 seconds at most. Then it answers with nothing.
func (s *Server) Pull(ctx context.Context, in *pubsubpb.PullRequest) (*pubsubpb.PullResponse, error) {
	p, err := s.pull(ctx, in)
	if err != nil {
		return nil, err
	}
	return &pubsubpb.PullResponse{ReceivedMessages: p.copied()}, nil
}

func (s *Server) pull(ctx context.Context, in *pubsubpb.PullRequest) (*pulled, error) {
	return call(ctx, s, Request{Method: "Pull", Resource: in.GetSubscription()}, func(f *Fault) (*pulled, error) {
		got, err := s.receive(ctx, in, f)
		return &pulled{got}, err
	})
}

// receive takes what is there, or waits for it.
func (s *Server) receive(ctx context.Context, in *pubsubpb.PullRequest, f *Fault) ([]delivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	now := s.lock()
	q, err := s.pullable(in.GetSubscription())
	if err == nil && (in.GetMaxMessages() < 1 || in.GetMaxMessages() > maxPull) {
		err = outOfRange("max_messages", in.GetMaxMessages(), "1 to 1000")
	}
	if err != nil {
		s.unlock(now)
		return nil, err
	}
	w := wish{max: int(in.GetMaxMessages()), bytes: maxPullBytes, hold: q.set.ackDeadline, repeat: f.Duplicate && !q.set.once}
	if f.Most > 0 {
		w.max = min(w.max, f.Most)
	}
	got := q.take(&w, now)
	//lint:ignore SA1019 the service takes it, too
	immediately := in.GetReturnImmediately()
	if len(got) > 0 || immediately || s.draining {
		s.unlock(now)
		return got, nil
	}
	wait := longestPull
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		wait = min(wait, left-min(left/10, time.Second))
	}
	waiting := &waiter{wish: w, answered: make(chan struct{})}
	q.waiters.push(waiting)
	s.waiting++
	s.unlock(now)
	return s.await(ctx, q, waiting, wait)
}

func (s *Server) await(ctx context.Context, q *subscription, w *waiter, wait time.Duration) ([]delivery, error) {
	timer := time.NewTimer(wait)
	select {
	case <-w.answered:
		timer.Stop()
		return w.got, w.err
	case <-timer.C:
	case <-ctx.Done():
		if s.strand(q, w, timer) {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		timer.Stop()
	case <-s.closing:
		timer.Stop()
	}
	q.abandon(w)
	if len(w.got) == 0 && w.err == nil && ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return w.got, w.err
}

// strand lets a pull without a caller go on: what it finds is held, and nobody has it.
func (s *Server) strand(q *subscription, w *waiter, timer *time.Timer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.o.StrandCancelled || s.draining {
		return false
	}
	s.running.Go(func() {
		select {
		case <-w.answered:
		case <-timer.C:
		case <-s.closing:
		}
		timer.Stop()
		q.abandon(w)
	})
	return true
}

// abandon ends a wait. An answer that came in the same moment stays in w.
func (q *subscription) abandon(w *waiter) {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if w.listed {
		q.waiters.remove(w)
		q.s.waiting--
	}
}

// waiter is a pull that waits for messages.
type waiter struct {
	wish
	answered   chan struct{} // closed when got or err is there
	got        []delivery
	err        error
	listed     bool
	prev, next *waiter
}

// waiters are those of a subscription; the one that waits longest is served first.
type waiters struct{ first, last *waiter }

func (ws *waiters) push(w *waiter) {
	w.prev, w.next, w.listed = ws.last, nil, true
	if ws.last == nil {
		ws.first = w
	} else {
		ws.last.next = w
	}
	ws.last = w
}

func (ws *waiters) remove(w *waiter) {
	if w.prev == nil {
		ws.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ws.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.listed = nil, nil, false
}

// answer ends w's wait.
func (q *subscription) answer(w *waiter, got []delivery, err error) {
	q.waiters.remove(w)
	q.s.waiting--
	w.got, w.err = got, err
	close(w.answered)
}

// serve gives the waiting pulls what there is.
func (q *subscription) serve(now int64) {
	for w := q.waiters.first; w != nil && q.next() != nil; w = q.waiters.first {
		got := q.take(&w.wish, now)
		if len(got) == 0 {
			return
		}
		q.answer(w, got, nil)
	}
}

// refuse ends all waits with an error.
func (q *subscription) refuse(err error) {
	for w := q.waiters.first; w != nil; w = q.waiters.first {
		q.answer(w, nil, err)
	}
	for st := range q.streams {
		st.end(err)
	}
}
