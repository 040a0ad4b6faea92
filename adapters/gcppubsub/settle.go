package gcppubsub

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
)

// This file owns acks, nacks and extensions: which ack ids share a call, and what each of them is
// answered. A worker's carriers and dlq call them, from many goroutines. A settling belongs to one
// call, so nothing is locked.

// Ack ends the messages. Without exactly-once delivery success proves nothing: Pub/Sub says yes to
// an ack id of an earlier delivery, and may end the message or not. With it, a late ack is answered
// ErrReceiptExpired.
func (b *Broker) Ack(ctx context.Context, rs []broker.Receipt) error {
	if len(rs) == 0 {
		return nil
	}
	s, cancel, err := b.settling(ctx, callAck, len(rs))
	if err != nil {
		return err
	}
	defer cancel()
	for i, r := range rs {
		s.gather(i, r)
	}
	s.send(func(ctx context.Context, ids []string) error {
		b.counts.acks.Add(1)
		_, err := b.api.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: b.subscription, AckIds: ids})
		return err
	})
	b.counts.acked.Add(s.applied)
	return s.err()
}

// Nack gives the messages back after their delay, 0 to Limits.MaxNack. It is rounded up to whole
// seconds, and above a minute to tens of seconds, because each different delay is a call of its
// own. Pub/Sub counts every nack, with or without a delay, as a delivery attempt.
func (b *Broker) Nack(ctx context.Context, hs []broker.Hold) error {
	return b.hold(ctx, callNack, hs, 0, func(d time.Duration) int32 {
		if d > coarse {
			return 10 * ((seconds(d) + 9) / 10)
		}
		return seconds(d)
	})
}

// Extend hides the messages for their time from now, Limits.MinHold to MaxHold, rounded up to whole
// seconds.
//
// Without exactly-once delivery an extension that comes after the deadline is answered with
// success. If the message was delivered again by then, it does nothing, or hides the message for
// the new delivery's owner as well.
func (b *Broker) Extend(ctx context.Context, hs []broker.Hold) error {
	return b.hold(ctx, callExtend, hs, minDeadline, seconds)
}

// hold modifies the deadlines of those entries whose time is within the bounds.
func (b *Broker) hold(ctx context.Context, call string, hs []broker.Hold, least time.Duration, round func(time.Duration) int32) error {
	if len(hs) == 0 {
		return nil
	}
	s, cancel, err := b.settling(ctx, call, len(hs))
	if err != nil {
		return err
	}
	defer cancel()
	// A call has one time for all its ids.
	var times []int32
	at := make(map[int32][]int)
	for i := range hs {
		d := hs[i].For
		if d < least || d > maxDeadline {
			s.setErr(i, b.wrap(call, unsupported("%v; it is within %v and %v", d, least, maxDeadline)))
			continue
		}
		t := round(d)
		if at[t] == nil {
			times = append(times, t)
		}
		at[t] = append(at[t], i)
	}
	for _, t := range times {
		for _, i := range at[t] {
			s.gather(i, hs[i].Receipt)
		}
		s.send(func(ctx context.Context, ids []string) error {
			b.counts.holds.Add(1)
			_, err := b.api.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{Subscription: b.subscription, AckIds: ids, AckDeadlineSeconds: t})
			return err
		})
	}
	return s.err()
}

// settling is one Ack, Nack or Extend: its ids are gathered until a call is full.
type settling struct {
	b       *Broker
	call    string
	caller  context.Context
	ctx     context.Context
	errs    []error
	size    int
	ids     []string
	at      []int          // the positions of ids
	first   map[string]int // the position of each id in the next call, where there are several
	twins   [][2]int       // positions of an id that is in a call already, and of that one
	applied int64
	whole   error // the answer to the only call, where that failed as one
}

func (b *Broker) settling(ctx context.Context, call string, size int) (*settling, context.CancelFunc, error) {
	if err := b.check(call, size); err != nil {
		return nil, nil, err
	}
	bounded, cancel, err := b.begin(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	return &settling{b: b, call: call, caller: ctx, ctx: bounded, size: size, ids: make([]string, 0, size), at: make([]int, 0, size)}, cancel, nil
}

// gather puts an entry in the next call. Pub/Sub would refuse a whole call because of an empty id.
// With exactly-once delivery it names an id that comes twice as failed, although it has applied it.
func (s *settling) gather(i int, r broker.Receipt) {
	if r == "" {
		s.setErr(i, s.b.wrap(s.call, fmt.Errorf("%w: it is empty", broker.ErrReceiptExpired)))
		return
	}
	id := string(r)
	if s.size > 1 {
		if s.first == nil {
			s.first = make(map[string]int, s.size)
		}
		if first, twice := s.first[id]; twice {
			s.twins = append(s.twins, [2]int{i, first})
			return
		}
		s.first[id] = i
	}
	s.ids, s.at = append(s.ids, id), append(s.at, i)
}

func (s *settling) setErr(i int, err error) {
	if s.errs == nil {
		s.errs = make([]error, s.size)
	}
	s.errs[i] = err
}

// send makes the calls that the gathered ids need.
func (s *settling) send(do func(ctx context.Context, ids []string) error) {
	for len(s.ids) > 0 {
		n, bytes := 0, framing
		for n < len(s.ids) && (n == 0 || bytes+len(s.ids[n])+perID <= maxIDBytes) {
			bytes += len(s.ids[n]) + perID
			n++
		}
		ids, at := s.ids[:n], s.at[:n]
		letter.InParts(n, func(from, to int) bool { return s.part(do, ids[from:to], at[from:to]) })
		s.ids, s.at = s.ids[n:], s.at[n:]
	}
	clear(s.first)
}

// part makes one call, and reports whether it is to be made again for each half. That is where an
// id among others is one that Pub/Sub never gave out: it refuses the call and does not say which.
func (s *settling) part(do func(ctx context.Context, ids []string) error, ids []string, at []int) (divide bool) {
	err := do(s.ctx, ids)
	if err == nil {
		s.applied += int64(len(ids))
		return false
	}
	how, others := failedIDs(err)
	if len(ids) > 1 && how == nil && codeOf(err) == codes.InvalidArgument {
		return true
	}
	failed := s.b.failed(s.caller, s.ctx, s.call, err)
	if how == nil && len(ids) == s.size {
		s.whole = failed
	}
	for n, id := range ids {
		switch text, named := how[id]; {
		case named:
			s.setErr(at[n], s.b.idError(s.call, text, err))
		case others:
			s.applied++
		default:
			s.setErr(at[n], failed)
		}
	}
	return false
}

// err is the answer to the whole: by position, unless one call for all failed as one.
func (s *settling) err() error {
	switch {
	case s.whole != nil && s.size > 1:
		return s.whole
	case s.errs == nil:
		return nil
	}
	for _, t := range s.twins {
		s.errs[t[0]] = s.errs[t[1]]
	}
	return broker.JoinEntries(s.errs)
}
