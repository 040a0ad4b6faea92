package onceqpubsub

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/batcher"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/values"
	"github.com/onceq/onceq/visibility"
)

// This file owns a subscription's deliveries and the heartbeats that keep them hidden. receive.go
// brings them, and settle.go has acks, nacks and the end: gocloud calls both from several
// goroutines. subscription.mu guards the deliveries that are not settled and what is known of each,
// and is held during no call.

// OpenSubscription gives a queue of onceq to a program that receives through gocloud. It does no
// I/O. An error names the option and its limit.
//
// What it does beyond gocloud's own drivers:
//
//   - Heartbeats keep a message hidden from its receive until its Ack or Nack, for at most
//     SubscriptionOptions.MaxHold. So a long job is not delivered to somebody else meanwhile, nor
//     is a message that waits in gocloud's own queue. Where the broker cannot extend, Visibility
//     is all.
//   - An ack that comes too late ends nothing: gocloud would end the whole subscription at a failed
//     ack. A receipt that has expired counts as settled, since the message is delivered again. Any
//     other failure is one message's own: that ack alone is offered again, for 5 minutes, while
//     heartbeats keep the message hidden. A nack is offered for Visibility.
//   - Errors that may pass (a network, a throttle) are logged and tried again, after 30 s at most.
//     They never end the subscription. Those that last do: a queue that is missing or closed,
//     missing rights, a receive that the broker refuses. Then call Shutdown, because heartbeats go
//     on until then.
//   - Shutdown hands back what was received and not settled, also what gocloud had fetched ahead.
//     So call it when all handlers have ended: what they ack after it is lost in gocloud. It may
//     take 20 s longer than its context.
//
// It does not make jobs once-only: that is a onceq Worker's. Message.Metadata has the user's
// metadata, never our own attribute, which is shown only where it could not be read.
//
//   - Subscription.As: *[broker.Receiver], and a pointer to the receiver's own type.
//   - Message.As: **[broker.Message], and *[context.Context] for a context that ends when the lease
//     is lost, not confirmed in time or over (its cause says which), and when the message is
//     settled.
//   - ErrorAs and error codes are as those of OpenTopic.
func OpenSubscription(r broker.Receiver, o *SubscriptionOptions) (*pubsub.Subscription, error) {
	s, err := newSubscription(r, o)
	if err != nil {
		return nil, err
	}
	receives := batcher.Options{MaxBatchSize: s.receives, MaxHandlers: handlers}
	acks := batcher.Options{MaxBatchSize: s.settles, MaxHandlers: handlers}
	return pubsub.NewSubscription(s, receives.NewMergedOptions(&s.o.ReceiveBatcherOptions), acks.NewMergedOptions(&s.o.AckBatcherOptions)), nil
}

// subscription is a broker.Receiver as gocloud's driver.
type subscription struct {
	receiver          broker.Receiver
	o                 SubscriptionOptions
	form              form
	receives, settles int                         // the most of one call
	beats             *visibility.Manager[*taken] // nil = nothing is extended

	mu       sync.Mutex
	open     map[*taken]struct{} // received and not settled
	inFlight int                 // receives
	closed   bool
	idle     chan struct{} // closed when it is closed and no receive is in flight
}

// taken is a message between its receive and its end.
type taken struct {
	message *broker.Message
	lease   visibility.Held[*taken]

	// Under subscription.mu.
	settled  bool
	acked    bool      // an ack was asked for, so it is never handed back
	refused  time.Time // when settling it failed first
	ctx      context.Context
	end      context.CancelCauseFunc
	lostWith error
	expiry   *time.Timer // calls over; nil = its heartbeats go on
}

var _ part = (*subscription)(nil)

func newSubscription(r broker.Receiver, o *SubscriptionOptions) (*subscription, error) {
	if values.IsNil(r) {
		return nil, errors.New("onceqpubsub: OpenSubscription: the receiver is nil")
	}
	if o == nil {
		o = &SubscriptionOptions{}
	}
	l := r.Limits()
	options, err := o.finish(l)
	if err != nil {
		return nil, err
	}
	s := &subscription{
		receiver: r, o: options, form: formOf(l, options.GoCloudSQS),
		receives: max(1, l.ReceiveBatch), settles: max(1, l.SettleBatch),
		open: make(map[*taken]struct{}), idle: make(chan struct{}),
	}
	if !l.Extends || options.MaxHold <= 0 {
		return s, nil
	}
	s.beats, err = visibility.New(s.extend, visibility.Options[*taken]{
		Timeout: options.Visibility, MaxBatch: s.settles, OnLost: s.lost,
		OnTimeout: s.giveUp,
	})
	return s, err
}

// context ends when the lease does.
func (s *subscription) context(d *taken) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.ctx == nil {
		d.ctx, d.end = context.WithCancelCause(context.Background())
		switch {
		case d.lostWith != nil:
			d.end(d.lostWith)
		case d.settled:
			d.end(nil)
		}
	}
	return d.ctx
}

// extend is a beat.
func (s *subscription) extend(ctx context.Context, ds []*taken) error {
	hs := make([]broker.Hold, len(ds))
	for i, d := range ds {
		hs[i] = broker.Hold{Receipt: d.message.Receipt, For: s.o.Visibility}
	}
	return s.receiver.Extend(ctx, hs)
}

// lost is told of a lease that is lost, or was not confirmed.
func (s *subscription) lost(d *taken, err error) {
	if errors.Is(err, visibility.ErrUnanswered) {
		s.expireAt(d, s.beats.Deadline(&d.lease)) // until then it may be answered
		s.mu.Lock()
	} else {
		s.mu.Lock()
		s.drop(d)
	}
	fresh := s.endWith(d, err)
	s.mu.Unlock()
	if fresh {
		s.o.Logger.LogAttrs(context.Background(), slog.LevelWarn, "onceqpubsub: a message's lease was lost, it may be delivered again",
			slog.String("message", d.message.ID), slog.Any("error", err))
	}
}

// endWith ends the context of a message that is not settled, once. s.mu is held.
func (s *subscription) endWith(d *taken, err error) (fresh bool) {
	if d.settled || d.lostWith != nil {
		return false
	}
	d.lostWith = err
	if d.end != nil {
		d.end(err)
	}
	return true
}

// drop forgets a message that cannot be handed back any more: who never settles shall not fill the
// memory. An ack that is under way goes on. s.mu is held.
func (s *subscription) drop(d *taken) {
	if !d.acked {
		delete(s.open, d)
	}
}

var errOver = errors.New("onceqpubsub: the message was not settled while it was hidden")

// giveUp ends the heartbeats of a message whose MaxHold is over. It stays hidden until its
// deadline.
func (s *subscription) giveUp(d *taken) {
	at := s.beats.Deadline(&d.lease)
	s.beats.Release(&d.lease)
	s.expireAt(d, at)
}

// expireAt is for a message that, as far as is known, is hidden until at.
func (s *subscription) expireAt(d *taken, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.settled {
		return
	}
	if d.expiry != nil {
		d.expiry.Stop()
	}
	d.expiry = time.AfterFunc(time.Until(at), func() { s.over(d) })
}

// over ends a message that is not hidden any more, unless a late heartbeat was answered.
func (s *subscription) over(d *taken) {
	if s.beats != nil && time.Now().Before(s.beats.Deadline(&d.lease)) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(d)
	s.endWith(d, errOver)
}

// As reaches the receiver.
func (s *subscription) As(target any) bool { return assign(s.receiver, target) }

// ErrorAs reaches the broker's and the SDK's errors.
func (*subscription) ErrorAs(err error, target any) bool { return peel(err, target) }

// ErrorCode is gocloud's word for an error.
func (*subscription) ErrorCode(err error) gcerrors.ErrorCode { return errorCode(err) }
