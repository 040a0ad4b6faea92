package watermillonceq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/batch"
	"github.com/onceq/onceq/internal/durations"
	"github.com/onceq/onceq/internal/retry"
	"github.com/onceq/onceq/visibility"
)

// This file owns a subscription: one goroutine polls and hands messages on, and each message that
// was handed on has a goroutine that waits for its Ack or Nack (serve). A message of an ordered
// group whose predecessor is on its way waits in groups, and the goroutine of the predecessor hands
// it on. mu guards groups. settle.go owns what is told to the broker.

// subscription is one call of Subscribe.
type subscription struct {
	o      *SubscriberOptions
	topic  string
	b      broker.Broker
	l      broker.Limits
	ctx    context.Context // ends with the subscription
	cancel context.CancelFunc
	out    chan *message.Message

	messages    context.Context // that of all messages
	endMessages context.CancelFunc
	room        chan struct{} // a token for each message on its way
	abandon     chan struct{} // closed when nobody waits for an Ack any more

	settling    context.Context // of acks and nacks; ends CallTimeout later
	endSettling context.CancelFunc

	leases *visibility.Manager[*delivery]
	acks   *batch.Queue[*delivery]
	nacks  *batch.Queue[*delivery]

	senders    sync.WaitGroup // goroutines other than the poller that use out
	deliveries sync.WaitGroup // received, and not settled

	mu     sync.Mutex
	groups map[string][]*delivery // of each group that has a message on its way, what waits behind it
}

// delivery is one message on its way.
type delivery struct {
	visibility.Held[*delivery]
	from     *broker.Message
	received time.Time
	msg      *message.Message
	end      context.CancelFunc
	delay    time.Duration // of its nack
}

// ackLinger is how long acks are gathered where requests cost money.
const ackLinger = 200 * time.Millisecond

func newSubscription(ctx context.Context, o *SubscriberOptions, topic string, b broker.Broker) (*subscription, error) {
	u := &subscription{
		o: o, topic: topic, b: b, l: b.Limits(), out: make(chan *message.Message), abandon: make(chan struct{}),
		room: make(chan struct{}, o.Concurrency), groups: make(map[string][]*delivery),
	}
	if u.l.Extends && (o.Visibility < u.l.MinHold || u.l.MaxHold > 0 && o.Visibility > u.l.MaxHold) {
		return nil, fmt.Errorf("watermillonceq: SubscriberOptions.Visibility: %v is not within %v and %v, the limits of topic %q",
			o.Visibility, u.l.MinHold, u.l.MaxHold, topic)
	}
	var err error
	u.leases, err = visibility.New(u.extend, visibility.Options[*delivery]{
		Timeout: o.Visibility, CallTimeout: o.CallTimeout, MaxBatch: u.l.SettleBatch, IsLost: isLost, OnLost: u.lost,
	})
	if err != nil {
		return nil, fmt.Errorf("watermillonceq: SubscriberOptions: %w", err)
	}
	linger := time.Duration(0)
	if u.l.PerRequestCost && !u.l.OrderedGroups {
		linger = ackLinger
	}
	u.acks = batch.New(batch.Options{Max: u.l.SettleBatch, Flight: 4, Linger: linger}, u.ack)
	u.nacks = batch.New(batch.Options{Max: u.l.SettleBatch, Flight: 4}, u.nack)
	u.ctx, u.cancel = context.WithCancel(ctx)
	of := u.ctx
	if o.Grace > 0 {
		of = context.WithoutCancel(ctx)
	}
	u.messages, u.endMessages = context.WithCancel(of)
	u.settling, u.endSettling = context.WithCancel(context.WithoutCancel(ctx))
	return u, nil
}

// run is the subscription, from its first receive to its last settlement.
func (u *subscription) run() {
	defer u.endMessages()
	defer u.cancel()
	u.poll()
	grace := time.AfterFunc(u.o.Grace, u.endMessages)
	defer grace.Stop()
	defer u.endSettling()
	patience := time.AfterFunc(u.o.CloseTimeout, func() { close(u.abandon) })
	defer patience.Stop()
	last := time.AfterFunc(durations.Sum(u.o.CloseTimeout, u.o.CallTimeout), u.endSettling)
	defer last.Stop()
	u.mu.Lock()
	var waiting []*delivery
	for group, ds := range u.groups {
		waiting = append(waiting, ds...)
		u.groups[group] = nil // so that nothing more is handed on
	}
	u.mu.Unlock()
	u.giveBack(0, waiting...)
	u.senders.Wait()
	u.acks.SetLinger(0)
	u.deliveries.Wait()
	close(u.out) // not before, because a Router then closes the publishers that its handlers need
}

// noWait is the shortest time of an empty receive that has waited for a message. A broker that does
// not wait must not be asked without a pause.
const noWait = 10 * time.Millisecond

// poll receives and hands on until the subscription ends.
func (u *subscription) poll() {
	failures, hasty := 0, 0
	for u.ctx.Err() == nil {
		n := u.reserve()
		if n == 0 {
			return
		}
		asked := time.Now()
		ms, err := u.b.Receive(u.ctx, broker.ReceiveOptions{Max: n, Wait: -1, Visibility: u.o.Visibility})
		for range n - len(ms) {
			<-u.room
		}
		u.take(ms, asked)
		if err == nil {
			failures = 0
			if len(ms) > 0 || time.Since(asked) >= noWait {
				hasty = 0
				continue
			}
			hasty++
			retry.Rest(u.ctx, min(time.Second, retry.Pause(hasty)))
			continue
		}
		if u.ctx.Err() != nil {
			return
		}
		failures++
		u.o.Logger.Error("onceq: the topic cannot be received from", err, watermill.LogFields{"topic": u.topic, "failures": failures})
		retry.Rest(u.ctx, retry.Pause(failures))
	}
}

// reserve waits for room for one message, and takes what else is free, up to a receive's most. It
// is 0 when the subscription has ended.
func (u *subscription) reserve() int {
	select {
	case u.room <- struct{}{}:
	case <-u.ctx.Done():
		return 0
	}
	for n := 1; n < max(1, u.l.ReceiveBatch); n++ {
		select {
		case u.room <- struct{}{}:
		default:
			return n
		}
	}
	return max(1, u.l.ReceiveBatch)
}

// take hands on what a receive has brought. All of it is held at first, so that no lease ends while
// an earlier message waits for its consumer.
func (u *subscription) take(ms []*broker.Message, asked time.Time) {
	ds := make([]*delivery, len(ms))
	for i, m := range ms {
		d := &delivery{from: m, received: asked}
		d.Lease, d.Deadline = d, m.Deadline
		if d.Deadline.IsZero() {
			d.Deadline = asked.Add(u.o.Visibility)
		}
		ds[i] = d
	}
	u.deliveries.Add(len(ds))
	if u.l.Extends {
		for _, d := range ds {
			u.leases.Hold(&d.Held)
		}
	}
	var early map[string]bool // groups whose head may not start yet
	for _, d := range ds {
		group := u.group(d)
		wait := early[group]
		if meta := d.from.Meta; meta != nil && time.Now().Before(meta.NotBefore) {
			d.delay, wait = time.Until(meta.NotBefore), true
		}
		if wait {
			if group != "" && early == nil {
				early = make(map[string]bool)
			}
			if group != "" {
				early[group] = true
			}
			u.giveBack(d.delay, d)
			continue
		}
		if u.isFirst(group, d) {
			u.handOn(d)
		}
	}
}

// group is the delivery's ordered group; empty where there is no order to keep.
func (u *subscription) group(d *delivery) string {
	if !u.l.OrderedGroups {
		return ""
	}
	return d.from.Group
}

// isFirst reports whether the delivery may start. Else it waits behind another of its group.
func (u *subscription) isFirst(group string, d *delivery) bool {
	if group == "" {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	waiting, busy := u.groups[group]
	if busy {
		u.groups[group] = append(waiting, d)
		return false
	}
	u.groups[group] = nil
	return true
}

// handOn gives the message to the consumer, or back to the broker where the subscription ends.
func (u *subscription) handOn(d *delivery) {
	d.msg = u.message(d)
	var ctx context.Context
	ctx, d.end = context.WithCancel(u.messages)
	d.msg.SetContext(ctx)
	switch u.offer(d) {
	case taken:
		go u.serve(d)
		return
	case lapsed: // and will come again by itself
		<-u.room
		u.settled(d)
	default:
		u.giveBack(0, d)
	}
	d.end()
	u.next(d, false)
}

type offered int

const (
	taken  offered = iota
	lapsed         // the delivery is over, and the message may be somebody else's
	ended          // the subscription
)

// offer waits until the consumer has taken the message.
func (u *subscription) offer(d *delivery) offered {
	for u.ctx.Err() == nil {
		var over <-chan time.Time
		stop := func() bool { return false }
		if u.l.Extends {
			left := u.leases.Left(&d.Held)
			if left <= 0 {
				return lapsed
			}
			t := time.NewTimer(left)
			over, stop = t.C, t.Stop
		}
		select {
		case u.out <- d.msg:
			stop()
			return taken
		case <-u.ctx.Done():
		case <-over: // unless it was extended
		}
		stop()
	}
	return ended
}

// message is the delivery as Watermill knows messages.
func (u *subscription) message(d *delivery) *message.Message {
	m := d.from
	uuid, meta, err := metadata(m.Attributes)
	if err == nil {
		err = m.MetaErr
	}
	if err != nil {
		u.o.Logger.Error("onceq: the message's metadata cannot be read", err, watermill.LogFields{"topic": u.topic, "message_id": m.ID})
	}
	if m.Meta != nil {
		meta[broker.MetaAttribute] = broker.EncodeMeta(m.Meta)
		uuid = cmp.Or(uuid, m.Meta.ID)
	}
	msg := message.NewMessage(cmp.Or(uuid, m.ID), m.Body)
	msg.Metadata = meta
	return msg
}

// serve waits for the end of a message that was handed on.
func (u *subscription) serve(d *delivery) {
	acked := false
	select {
	case <-d.msg.Acked():
		acked = true
	case <-d.msg.Nacked():
	case <-u.abandon:
		d.end()
		<-u.room
		u.leases.Release(&d.Held)
		u.o.Logger.Error("onceq: the message is left, and will come again", errUnsettled, u.fields(d))
		u.deliveries.Done()
		return
	}
	d.end()
	if acked {
		<-u.room
		u.acks.Add(d)
	} else {
		u.giveBack(u.backoff(d), d)
	}
	u.next(d, acked)
}

// backoff is how long a nacked message is hidden: not at all, where the user's function panics.
func (u *subscription) backoff(d *delivery) (delay time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			u.o.Logger.Error("onceq: SubscriberOptions.Backoff has panicked", fmt.Errorf("watermillonceq: panic: %v", v), u.fields(d))
		}
	}()
	return u.o.Backoff(max(1, d.from.Attempt))
}

var errUnsettled = errors.New("watermillonceq: neither Ack nor Nack came within CloseTimeout")

// next hands on what waits behind a message of an ordered group, or gives it back behind one that
// will come again.
func (u *subscription) next(d *delivery, acked bool) {
	group := u.group(d)
	if group == "" {
		return
	}
	u.mu.Lock()
	waiting := u.groups[group]
	if !acked || len(waiting) == 0 {
		delete(u.groups, group)
		u.mu.Unlock()
		u.giveBack(0, waiting...)
		return
	}
	u.groups[group] = waiting[1:]
	u.senders.Add(1)
	u.mu.Unlock()
	defer u.senders.Done()
	u.handOn(waiting[0])
}

func (u *subscription) fields(d *delivery) watermill.LogFields {
	f := watermill.LogFields{"topic": u.topic, "message_id": d.from.ID}
	if d.msg != nil {
		f["message_uuid"] = d.msg.UUID
	}
	return f
}
