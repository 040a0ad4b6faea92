package gocloudpubsub

import (
	"context"
	"errors"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file owns receives: how messages are taken from gocloud, what of them is handed back at a
// drain, and the deadlines. A worker's pollers and dlq call Receive, each in a goroutine of its
// own. b.mu guards what is known of waiting messages. Between the calls of gocloud nothing is
// locked. read.go makes the contract's messages.

const (
	// leastWait is how long a Receive with a Wait of 0 waits: gocloud receives in the background,
	// and has nothing at the first look.
	leastWait = time.Second
	// firstTimeout bounds the extension that follows each receive. The messages wait for it, while
	// their first timeout passes.
	firstTimeout = 3 * time.Second
	// mostReturned is how many messages a drain gives back. gocloud receives more whenever one is
	// taken, so there may be no end.
	mostReturned = 100
	// A Deadline counts back the smaller of mostAge and a quarter of the timeout, beside a pause.
	// The contract allows no more, and a message whose deadline has passed would never be done.
	mostAge, partAge = 5 * time.Second, 4
)

var errNoNack = unsupported("the driver cannot nack; a job that failed would be lost")

// Receive brings up to o.Max messages that gocloud has, and waits o.Wait for the first, a second at
// least. Where deliveries can be extended, they are extended to o.Visibility before Receive
// returns. Elsewhere o.Visibility is ignored, and Deadline counts from the last time at which
// gocloud held no message. It counts back the smaller of 5 s and a quarter of [Options].Visibility
// at most, and the pause since the last Receive.
//
// When ctx ends and no other Receive runs, Receive waits for [Options].ReceiveGrace for what
// gocloud is receiving. It returns up to o.Max of it and gives back the rest, 100 messages at most.
//
// Where the subscription has failed for good, Receive opens another one, once, and goes on with it.
func (b *Broker) Receive(ctx context.Context, o broker.ReceiveOptions) ([]*broker.Message, error) {
	const call = callReceive
	if err := b.check(call, 0, 0); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, b.wrap(call, err)
	}
	if err := b.completeReceive(ctx, &o); err != nil {
		return nil, err
	}
	b.comeIn()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	ds, err := b.take(waiting, o.Max, time.Now().Add(o.Wait))
	last := b.goOut()
	if last && ctx.Err() != nil && !b.closed() {
		ds = b.rest(context.WithoutCancel(ctx), ds, o.Max)
	}
	if b.closed() {
		return nil, b.wrap(call, broker.ErrClosed) // what came comes again after its timeout
	}
	if ms := b.messages(ctx, ds, o.Visibility); len(ms) > 0 {
		return ms, nil
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, b.failed(ctx, call, err)
	}
	return nil, nil
}

// completeReceive checks o and rounds its times.
func (b *Broker) completeReceive(ctx context.Context, o *broker.ReceiveOptions) error {
	const call = callReceive
	l := &b.limits
	switch {
	case o.Max < 1 || o.Max > l.ReceiveBatch:
		return b.wrap(call, unsupported("a Max of %d; it is within 1 and %d", o.Max, l.ReceiveBatch))
	case o.Wait > l.MaxWait:
		return b.wrap(call, unsupported("a Wait of %v; it is at most %v", o.Wait, l.MaxWait))
	case l.Extends && o.Visibility != 0 && (o.Visibility < l.MinHold || l.MaxHold > 0 && o.Visibility > l.MaxHold):
		return b.wrap(call, unsupported("a Visibility of %v; it is within %v and %v", o.Visibility, l.MinHold, l.MaxHold))
	}
	if o.Wait < 0 {
		o.Wait = l.MaxWait
	}
	o.Wait = max(o.Wait, leastWait)
	own, err := b.ownVisibility(ctx)
	if err != nil {
		return err
	}
	if !l.Extends || o.Visibility == 0 {
		o.Visibility = own
	}
	return nil
}

// ownVisibility is the queue's own timeout. The service is asked once, where the Options do not
// tell.
func (b *Broker) ownVisibility(ctx context.Context) (time.Duration, error) {
	b.mu.Lock()
	own := b.own
	b.mu.Unlock()
	if own > 0 {
		return own, nil
	}
	ctx, end, err := b.begin(ctx, callReceive)
	if err != nil {
		return 0, err
	}
	defer end()
	if own, err = b.service.visibility(ctx); err != nil {
		return 0, b.failed(ctx, callReceive, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own = own
	return own, nil
}

func (b *Broker) comeIn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receiving++
}

// goOut reports whether no other Receive is left.
func (b *Broker) goOut() (last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receiving--
	return b.receiving == 0
}

// take brings up to most messages. It waits for the first until the time until.
//
// One Receive at a time asks gocloud. gocloud wakes one of those who wait for each answer of a
// service, and a look (see watch) may be woken and leave: then the others would wait, beside
// messages that are there, until the slowest answer has come.
func (b *Broker) take(ctx context.Context, most int, until time.Time) ([]*delivery, error) {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case b.turn <- struct{}{}:
		defer b.endTurn()
	case <-waiting.Done():
		return nil, ctx.Err()
	}
	for reopened := false; ; reopened = true {
		s := b.current()
		ds, err := b.takeOf(ctx, s, most, until)
		if err == nil || len(ds) > 0 {
			return ds, nil
		}
		if ctx.Err() != nil || b.closed() || reopened || errors.Is(err, errNoNack) {
			return nil, err
		}
		if err := b.replace(ctx, s, err); err != nil {
			return nil, err
		}
	}
}

func (b *Broker) endTurn() {
	b.mu.Lock()
	b.took = time.Now()
	b.mu.Unlock()
	<-b.turn
}

// takeOf is take from one source. An error says that it failed for good.
func (b *Broker) takeOf(ctx context.Context, s *source, most int, until time.Time) (ds []*delivery, err error) {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for missed := 0; len(ds) < most; {
		w := watch{Context: waiting, look: len(ds) > 0}
		d, err := b.next(&w, s)
		switch {
		case err != nil && w.look && w.waited && missed == 0 && waiting.Err() == nil:
			missed++ // a message may have come that very moment, and its wake-up is used up
			continue
		case err != nil && (waiting.Err() != nil || len(ds) > 0):
			return ds, nil // none came; if the source has failed, the next Receive sees it
		case err != nil:
			return nil, err
		}
		if !d.m.Nackable() && !b.nacks() {
			silence(d.m)
			return ds, errNoNack
		}
		if b.isLate(d) {
			silence(d.m)
			continue
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// watch tells whether gocloud had to wait: only then it asks for Done. With look set it ends there,
// so that nothing is waited for.
type watch struct {
	context.Context
	look, waited bool
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done is asked for when gocloud's queue is empty.
func (w *watch) Done() <-chan struct{} {
	w.waited = true
	if w.look {
		return closedChannel
	}
	return w.Context.Done()
}

// Err ends a look that had to wait.
func (w *watch) Err() error {
	if w.look && w.waited {
		return context.DeadlineExceeded
	}
	return w.Context.Err()
}

// next brings one message.
func (b *Broker) next(w *watch, s *source) (*delivery, error) {
	started := time.Now()
	b.mu.Lock()
	since := b.since
	s.asked = true
	b.mu.Unlock()
	m, err := s.sub.Receive(w)
	if w.waited {
		// At some time during the call gocloud held nothing. So what comes later was received
		// later.
		b.mu.Lock()
		if b.source == s && started.After(b.since) {
			b.since = started
		}
		b.took = time.Now()
		b.mu.Unlock()
		since = started
	}
	if err != nil {
		return nil, err
	}
	return &delivery{m: m, from: s, received: since}, nil
}

// isLate reports whether the delivery has run out already, as far as that is known.
func (b *Broker) isLate(d *delivery) bool {
	now := time.Now()
	at := firstReceived(d.m)
	b.mu.Lock()
	defer b.mu.Unlock()
	if at.After(now) || at.Before(d.received) {
		// The service's clock is another one, or it does not tell. While messages are taken without
		// a pause it counts as far back as the contract allows. One that was there at the end of a
		// pause may have waited for all of it.
		age := min(mostAge, b.own/partAge) + now.Sub(b.took)
		at = latest(d.received, now.Add(-age))
		if d.received = at; b.service != nil {
			return false // its extension tells
		}
	}
	d.received = at
	if now.Sub(at) < b.own || b.own == 0 {
		return false
	}
	b.stats.Late++
	return true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rest takes, at a drain, what gocloud still holds and what it is receiving. What is more than most
// is given back.
func (b *Broker) rest(ctx context.Context, ds []*delivery, most int) []*delivery {
	more, _ := b.hoard(ctx, b.current(), time.Now().Add(b.o.ReceiveGrace))
	ds = append(ds, more...)
	if len(ds) <= most {
		return ds
	}
	b.giveBack(ctx, ds[most:])
	return ds[:most]
}

// hoard takes all that comes until the time until.
func (b *Broker) hoard(ctx context.Context, s *source, until time.Time) (all []*delivery, err error) {
	for len(all) < mostReturned && time.Now().Before(until) {
		ds, err := b.takeOf(ctx, s, mostReturned-len(all), until)
		all = append(all, ds...)
		if err != nil || len(ds) == 0 {
			return all, err
		}
	}
	return all, nil
}

// giveBack nacks what nobody was given, also while the Broker closes. It is a courtesy: what fails
// comes again at its timeout.
func (b *Broker) giveBack(ctx context.Context, ds []*delivery) {
	b.mu.Lock()
	rs := make([]broker.Hold, len(ds))
	for i, d := range ds {
		d.until = d.received.Add(b.own)
		rs[i].Receipt = b.ledger.enter(d)
	}
	b.stats.Returned += int64(len(ds))
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	for len(rs) > 0 {
		n := min(len(rs), b.limits.SettleBatch)
		_ = b.nack(ctx, rs[:n])
		rs = rs[n:]
	}
}

// messages makes the contract's messages, and extends them where that is possible.
func (b *Broker) messages(ctx context.Context, ds []*delivery, visibility time.Duration) []*broker.Message {
	if len(ds) == 0 {
		return nil
	}
	b.firstHold(ctx, ds, visibility)
	ms := make([]*broker.Message, len(ds))
	for i, d := range ds {
		ms[i] = read(d.m)
		ms[i].Deadline = d.until
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, d := range ds {
		ms[i].Receipt = b.ledger.enter(d)
	}
	b.stats.Received += int64(len(ds))
	for _, s := range b.ledger.lapsed(now, b.own, len(b.old) > 0) {
		b.endIfIdle(s)
	}
	return ms
}

// firstHold sets the deadlines. With an extension they count from before its call, so they are
// early however long that took.
func (b *Broker) firstHold(ctx context.Context, ds []*delivery, visibility time.Duration) {
	b.mu.Lock()
	own := b.own
	b.mu.Unlock()
	for _, d := range ds {
		d.until = d.received.Add(own)
	}
	if b.service == nil {
		return
	}
	now := time.Now()
	// It goes on when ctx has ended: who drains has to hand these messages back in time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), firstTimeout)
	defer cancel()
	times := make([]time.Duration, len(ds))
	for i := range times {
		times[i] = visibility
	}
	err := b.service.hold(ctx, ds, times)
	for i, d := range ds {
		switch err := broker.ErrAt(err, i); {
		case err == nil:
			d.until = now.Add(visibility)
		case errors.Is(err, broker.ErrReceiptExpired):
			d.until = now // it is not ours any more
		}
	}
}
