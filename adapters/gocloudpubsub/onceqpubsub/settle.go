package onceqpubsub

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"gocloud.dev/pubsub/driver"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/visibility"
)

// This file owns the end of deliveries: acks, nacks, and what Shutdown hands back. gocloud calls
// SendAcks and SendNacks from several goroutines, again with the same ids where IsRetryable says
// so, and Close once, when no more calls of them begin. subscription.mu guards what is known of
// each delivery, and is held during no call.

// SendAcks acks what is not settled yet.
func (s *subscription) SendAcks(ctx context.Context, ids []driver.AckID) error {
	return s.settle(ctx, s.unsettled(ids, true), ackPatience, s.tellAcks)
}

// SendNacks gives back what is not settled yet.
func (s *subscription) SendNacks(ctx context.Context, ids []driver.AckID) error {
	ds := s.unsettled(ids, false)
	// A beat that came after the nack would undo it.
	if err := s.quiet(ctx, ds); err != nil {
		return err
	}
	return s.settle(ctx, ds, s.o.Visibility, func(ctx context.Context, ds []*taken) error {
		return s.tellNacks(ctx, ds, s.o.NackDelay)
	})
}

// CanNack is true: every broker takes a message back.
func (*subscription) CanNack() bool { return true }

// IsRetryable keeps gocloud from ending the subscription where an error may pass.
func (*subscription) IsRetryable(err error) bool { return !lasts(err) }

// unsettled are those that the broker has not been told about with success.
func (s *subscription) unsettled(ids []driver.AckID, ack bool) []*taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	ds := make([]*taken, 0, len(ids))
	for _, id := range ids {
		if d, ok := id.(*taken); ok && !d.settled {
			d.acked = d.acked || ack
			ds = append(ds, d)
		}
	}
	return ds
}

// settle tells the broker about ds, in calls as large as it takes. Its error is one that lasts, or
// else one of those that failed for now.
func (s *subscription) settle(ctx context.Context, ds []*taken, patience time.Duration, call func(context.Context, []*taken) error) error {
	var again, last error
	for part := range slices.Chunk(ds, s.settles) {
		err := call(ctx, part)
		for i, d := range part {
			switch e := broker.ErrAt(err, i); {
			case e == nil, errors.Is(e, broker.ErrReceiptExpired):
				// An expired receipt settles nothing any more: the message comes again, or is gone.
				s.forget(d)
			case isGone(e):
				last = e
			case lasts(e), ctx.Err() == nil && s.tired(d, patience):
				// One message must not end the subscription.
				s.forget(d)
				s.o.Logger.LogAttrs(ctx, slog.LevelError, "onceqpubsub: gave up to settle a message, it is delivered again",
					slog.String("message", d.message.ID), slog.Any("error", e))
			default:
				again = e
			}
		}
	}
	if last != nil {
		return last
	}
	if again != nil && ctx.Err() == nil {
		s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "onceqpubsub: could not settle messages, it is tried again", slog.Any("error", again))
	}
	return again
}

// tired reports whether settling d has failed for so long.
func (s *subscription) tired(d *taken, patience time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.refused.IsZero() {
		d.refused = time.Now()
	}
	return time.Since(d.refused) >= patience
}

// forget ends the care for d.
func (s *subscription) forget(d *taken) {
	s.mu.Lock()
	d.settled = true
	delete(s.open, d)
	if d.expiry != nil {
		d.expiry.Stop()
	}
	if d.end != nil {
		d.end(nil)
	}
	s.mu.Unlock()
	if s.beats != nil {
		s.beats.Release(&d.lease)
	}
}

func (s *subscription) tellAcks(ctx context.Context, ds []*taken) error {
	rs := make([]broker.Receipt, len(ds))
	for i, d := range ds {
		rs[i] = d.message.Receipt
	}
	return s.receiver.Ack(ctx, rs)
}

func (s *subscription) tellNacks(ctx context.Context, ds []*taken, delay time.Duration) error {
	hs := make([]broker.Hold, len(ds))
	for i, d := range ds {
		hs[i] = broker.Hold{Receipt: d.message.Receipt, For: delay}
	}
	return s.receiver.Nack(ctx, hs)
}

// quiet waits until no beat for ds is in flight, and none will come.
func (s *subscription) quiet(ctx context.Context, ds []*taken) error {
	if s.beats == nil {
		return nil
	}
	leases := make([]*visibility.Held[*taken], len(ds))
	for i, d := range ds {
		leases[i] = &d.lease
	}
	return s.beats.Quiesce(ctx, leases...)
}

// Close waits for the receives in flight, and gives back what was received and not settled. gocloud
// would deliver none of it any more. A second Close does nothing.
func (s *subscription) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	if s.inFlight == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	late := time.NewTimer(closing)
	defer late.Stop()
	select {
	case <-s.idle:
	case <-late.C:
	}
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	s.handBack(left)
	if s.o.Close == nil {
		return nil
	}
	return s.o.Close()
}

// handBack makes one call for each part: what fails comes again by itself when its lease is over.
// What was acked is not given back, but acked once more.
func (s *subscription) handBack(ds []*taken) {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	s.mu.Lock()
	var done, back []*taken
	for _, d := range ds {
		if d.acked {
			done = append(done, d)
		} else {
			back = append(back, d)
		}
	}
	s.mu.Unlock()
	errs := [...]error{s.settle(ctx, done, ackPatience, s.tellAcks), s.quiet(ctx, back)}
	if errs[1] == nil {
		errs[1] = s.settle(ctx, back, ackPatience, func(ctx context.Context, ds []*taken) error { return s.tellNacks(ctx, ds, 0) })
	}
	if err := errors.Join(errs[:]...); err != nil {
		s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "onceqpubsub: could not settle all messages at Shutdown, they are delivered again",
			slog.Any("error", err))
	}
	for _, d := range ds {
		s.forget(d) // no more beats
	}
}
