package pubsubfake

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// This file owns Pull: what one may ask for, how it waits, and how it is answered. It runs in the
// goroutine of its caller. take.go has which messages it takes, under the server's lock, which is
// not held during a wait: abandon ends one under the lock.

const (
	maxPull      = 1000
	maxPullBytes = 10_000_000
	// longestPull is when a pull that nobody bounds is answered with nothing.
	longestPull = 90 * time.Second
)

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
	q.waiters.Append(&waiting.place, waiting)
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
