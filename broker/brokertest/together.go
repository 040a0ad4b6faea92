package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file has the cases of calls at the same time, of contexts that end, and of what few queues
// have: Close, a missing queue, redrive, depth. Run calls each in a subtest with a queue of its
// own. ledger.mu guards what the goroutines of a case share.

func cancelledReceiveStrandsNothing(e *env) {
	// bound is what the call in flight may still take.
	const bound = 10 * time.Second
	long := e.wait(max(e.v, 2*bound))
	for _, begun := range []time.Duration{0, e.prompt / 10} {
		ctx, cancel := context.WithCancel(e.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			e.Pause(begun)
			cancel()
		})
		if begun == 0 {
			wg.Wait()
		}
		started := time.Now()
		e.ended(e.b.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: long}))
		if took := time.Since(started) - begun; took > bound {
			e.Errorf("a cancelled Receive ended after %v", took)
		}
		wg.Wait()
	}
	several := min(e.l.ReceiveBatch, e.l.SendBatch, 10)
	for round := range 32 {
		// One message, and a batch, which a driver may hand out in part.
		n := 1
		if round%8 >= 4 {
			n = several
		}
		os := make([]broker.Outgoing, n)
		for i := range os {
			os[i] = e.out(fmt.Sprintf("%d-%d", round, i))
		}
		ctx, cancel := context.WithCancel(e.Context())
		var wg sync.WaitGroup
		var ms []*broker.Message
		var err error
		wg.Go(func() { ms, err = e.b.Receive(ctx, broker.ReceiveOptions{Max: e.l.ReceiveBatch, Wait: long}) })
		var sendErr error
		send := func() { _, sendErr = e.b.Send(e.Context(), os) }
		var cancelled time.Time
		switch round % 4 {
		case 0: // the poll is under way; send, then cancel while its answer is coming
			e.Pause(time.Millisecond)
			send()
		case 1: // both at once
			e.Pause(time.Millisecond)
			wg.Go(send)
		case 2: // the poll may not have begun
			send()
		case 3: // cancel first
			cancel()
			send()
		}
		cancelled = time.Now()
		cancel()
		wg.Wait()
		e.OK(sendErr, "Send")
		if took := time.Since(cancelled); took > bound {
			e.Errorf("a cancelled Receive ended after %v", took)
		}
		e.ended(ms, err)
		for until := time.Now().Add(e.prompt); len(ms) < n; {
			more := e.poll(e.b, e.l.ReceiveBatch, until)
			if len(more) == 0 {
				e.Fatalf("of %d messages sent around the cancellation %d came within %v; the others are stranded for the timeout of %v",
					n, len(ms), e.prompt, e.v)
			}
			ms = append(ms, more...)
		}
		e.ack(ms...)
	}
}

// endedContext makes every call that changes something with a context that has ended.
func endedContext(e *env) {
	ctx := e.Ended()
	// applied reports whether the call says that it was applied.
	applied := func(call string, err error) bool {
		e.Helper()
		err = broker.ErrAt(err, 0)
		if err != nil && !errors.Is(err, context.Canceled) {
			e.Errorf("%s with an ended context was answered %v, which does not wrap the context's error", call, err)
		}
		return err == nil
	}
	ids, err := e.b.Send(ctx, []broker.Outgoing{e.out("a")})
	if applied("Send", err) {
		if m := e.takeOne(); len(ids) != 1 || m.ID != ids[0] {
			e.Errorf("Send answered %q, and %s came", ids, m.ID)
		} else {
			e.ack(m)
		}
	} else {
		e.ack(e.poll(e.b, 1, time.Now().Add(e.prompt))...) // it may or may not have been sent
	}

	e.sendBodies("nack")
	m := e.takeOne()
	answered := time.Now()
	if applied("Nack", e.b.Nack(ctx, []broker.Hold{{Receipt: m.Receipt}})) {
		m = e.takeOne()
	} else {
		m = e.receiveBy(answered.Add(e.v+e.h.Slack), "a message, given back or not,")
	}
	if e.l.Extends {
		e.Pause(e.v / 4)
		from := time.Now().Add(e.hold)
		if applied("Extend", e.b.Extend(ctx, []broker.Hold{{Receipt: m.Receipt, For: e.hold}})) {
			m = e.between(from, time.Now().Add(e.hold+e.h.Slack), "a message extended with an ended context")
		} else {
			m = e.receiveBy(time.Now().Add(e.hold+e.h.Slack), "a message, extended or not,")
		}
	}
	if applied("Ack", e.b.Ack(ctx, []broker.Receipt{m.Receipt})) {
		e.gone("after an ack with an ended context that succeeded")
	}
}

// ended checks the answer of a Receive whose context was cancelled.
func (e *env) ended(ms []*broker.Message, err error) {
	e.Helper()
	switch {
	case err != nil && len(ms) > 0:
		e.Errorf("a cancelled Receive brought %s and the error %v; callers drop one of them", bodies(ms), err)
	case err != nil && !errors.Is(err, context.Canceled):
		e.Errorf("a cancelled Receive was answered %v, which does not wrap the context's error", err)
	case err == nil && len(ms) == 0:
		e.Errorf("a cancelled Receive brought nothing and no error")
	}
}

// ledger counts what concurrent receivers saw.
type ledger struct {
	mu     sync.Mutex
	held   map[string]time.Time // until when somebody holds the message
	nacked map[string]bool
	acked  map[string]bool
}

func concurrentUse(e *env) {
	const senders, receivers, each = 4, 6, 50
	l := ledger{held: map[string]time.Time{}, nacked: map[string]bool{}, acked: map[string]bool{}}
	outs := make([]broker.Outgoing, senders*each)
	for i := range outs {
		outs[i] = e.out(strconv.Itoa(i))
		outs[i].Meta = &broker.Meta{ID: strconv.Itoa(i)}
	}
	until := time.Now().Add(3*e.v + 10*time.Second)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			batch := min(1+s*3, e.l.SendBatch)
			for at := s * each; at < (s+1)*each; at += batch {
				if _, err := e.b.Send(e.Context(), outs[at:min(at+batch, (s+1)*each)]); err != nil {
					e.Errorf("Send was answered: %v", err)
				}
			}
		})
	}
	for r := range receivers {
		wg.Go(func() {
			most := min(1+r, e.l.ReceiveBatch, e.l.SettleBatch)
			for time.Now().Before(until) && l.left(len(outs)) {
				ms, err := e.b.Receive(e.Context(), broker.ReceiveOptions{Max: most, Wait: e.wait(time.Second)})
				if err != nil {
					e.Errorf("Receive was answered: %v", err)
					return
				}
				l.settle(e, ms)
			}
		})
	}
	wg.Wait()
	if n := len(l.acked); n < len(outs) {
		e.Fatalf("%d of %d messages came", n, len(outs))
	}
	e.gone("after the ack of all")
}

func (l *ledger) left(all int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked) < all
}

// settle gives every fifth message back once and acks the others.
func (l *ledger) settle(e *env, ms []*broker.Message) {
	var acks []broker.Receipt
	var ids []string
	var nacks []broker.Hold
	l.mu.Lock()
	for _, m := range ms {
		if m.Meta == nil || m.Meta.ID != string(m.Body) {
			e.Errorf("message %q came with the metadata of another one", m.Body)
			continue
		}
		id := m.Meta.ID
		if time.Now().Before(l.held[id]) || l.acked[id] {
			e.Errorf("message %s came while another receiver held it, or after its ack", id)
		}
		if len(id) > 0 && (id[len(id)-1] == '0' || id[len(id)-1] == '5') && !l.nacked[id] {
			l.nacked[id] = true
			nacks = append(nacks, broker.Hold{Receipt: m.Receipt})
			continue
		}
		l.held[id] = m.Deadline
		acks, ids = append(acks, m.Receipt), append(ids, id)
	}
	l.mu.Unlock()
	if len(nacks) > 0 {
		if err := e.b.Nack(e.Context(), nacks); err != nil {
			e.Errorf("Nack was answered: %v", err)
		}
	}
	if len(acks) == 0 {
		return
	}
	if err := e.b.Ack(e.Context(), acks); err != nil {
		e.Errorf("Ack was answered: %v", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.acked[id] = true
	}
}

func closed(e *env) {
	e.sendBodies("a")
	m := e.takeOne()
	waited := make(chan error, 1)
	go func() {
		_, err := e.b.Receive(e.Context(), broker.ReceiveOptions{Max: 1, Wait: e.wait(e.v)})
		waited <- err
	}()
	e.Pause(e.prompt / 10)
	if err := e.queue.Close(); err != nil {
		e.Harnessf("Queue.Close: %v", err)
	}
	timer := time.NewTimer(e.prompt)
	defer timer.Stop()
	select {
	case err := <-waited:
		if err != nil && !errors.Is(err, broker.ErrClosed) {
			e.Errorf("a Receive that waited was answered: %v", err)
		}
	case <-timer.C:
		e.Errorf("a Receive that waited did not end within %v of Close", e.prompt)
		<-waited //nolint:errcheck // late is wrong, whatever the answer
	}
	_, receiveErr := e.b.Receive(e.Context(), broker.ReceiveOptions{Max: 1})
	_, sendErr := e.b.Send(e.Context(), []broker.Outgoing{e.out("b")})
	answers := map[string]error{
		"Receive": receiveErr,
		"Send":    broker.ErrAt(sendErr, 0),
		"Ack":     broker.ErrAt(e.b.Ack(e.Context(), []broker.Receipt{m.Receipt}), 0),
		"Nack":    broker.ErrAt(e.b.Nack(e.Context(), holds([]broker.Receipt{m.Receipt}, 0)), 0),
	}
	if e.l.Extends {
		answers["Extend"] = broker.ErrAt(e.b.Extend(e.Context(), holds([]broker.Receipt{m.Receipt}, e.hold)), 0)
	}
	for call, err := range answers {
		e.Want(call, err, broker.ErrClosed)
	}
}

func missingQueue(e *env) {
	b := e.h.Missing(e.TB)
	_, err := b.Receive(e.Context(), broker.ReceiveOptions{Max: 1})
	e.Want("Receive", err, broker.ErrNotFound)
	_, err = b.Send(e.Context(), []broker.Outgoing{e.out("a")})
	e.Want("Send", broker.ErrAt(err, 0), broker.ErrNotFound)
}

func nativeRedrive(e *env) {
	o := full(e)
	if p, ok := broker.As[broker.Redriver](e.b); ok {
		policy, err := p.Redrive(e.Context())
		e.OK(err, "Redrive")
		if n := policy.MaxReceives; n != redriveAfter {
			e.Errorf("Redrive tells of %d receives, and %d were asked for", n, redriveAfter)
		}
	}
	e.send(o)
	for range redriveAfter {
		e.nack(arrives(e, o), 0)
	}
	// Some services move the message when it would be delivered once more.
	e.quiet(time.Now().Add(e.prompt), "a message that was received as often as it may be")
	ms := e.poll(e.queue.DeadLetters, 1, time.Now().Add(e.prompt+e.h.Slack))
	if len(ms) == 0 {
		e.Fatalf("it did not come to the dead-letter queue within %v", e.prompt+e.h.Slack)
	}
	m := ms[0]
	for name := range m.Attributes {
		if _, ok := o.Attributes[name]; !ok {
			// The service may tell where the letter comes from.
			delete(m.Attributes, name)
		}
	}
	e.unchanged(m, o)
	e.OK(e.queue.DeadLetters.Ack(e.Context(), []broker.Receipt{m.Receipt}), "Ack")
}

func throttled(e *env) {
	e.sendBodies("a", "b")
	ms := e.take(2)
	e.queue.Throttle(true)
	if e.l.Extends {
		err := e.b.Extend(e.Context(), []broker.Hold{{Receipt: ms[0].Receipt, For: e.hold}})
		e.Want("Extend", broker.ErrAt(err, 0), broker.ErrThrottled)
		e.notExpired("Extend", err)
	}
	err := e.b.Ack(e.Context(), []broker.Receipt{ms[0].Receipt})
	e.Want("Ack", broker.ErrAt(err, 0), broker.ErrThrottled)
	e.notExpired("Ack", err)
	err = e.b.Nack(e.Context(), []broker.Hold{{Receipt: ms[1].Receipt}})
	e.Want("Nack", broker.ErrAt(err, 0), broker.ErrThrottled)
	e.notExpired("Nack", err)
	_, err = e.b.Receive(e.Context(), broker.ReceiveOptions{Max: 1})
	e.Want("Receive", err, broker.ErrThrottled)
	e.queue.Throttle(false)

	e.quiet(time.Now(), "a message whose nack was throttled")
	if e.l.Extends {
		e.extend(ms[0], e.hold)
	}
	e.ack(ms[1])
	e.nack(ms[0], 0)
	again := e.receiveBy(time.Now().Add(e.prompt+e.h.Slack), "the message whose ack was throttled, nacked afterwards,")
	e.same(again, ms[0])
	e.ack(again)

	e.queue.Throttle(true)
	_, err = e.b.Send(e.Context(), []broker.Outgoing{e.out("c")})
	e.Want("Send", broker.ErrAt(err, 0), broker.ErrThrottled)
	e.queue.Throttle(false)
	e.gone("after a send that was throttled, and acks of all others")
}

// notExpired says what a worker would do: it gives up a lease that it still holds.
func (e *env) notExpired(call string, err error) {
	e.Helper()
	if errors.Is(err, broker.ErrReceiptExpired) {
		e.Errorf("%s, throttled, was answered ErrReceiptExpired: a worker would give up what it still holds", call)
	}
}

func depth(e *env) {
	check := func(want broker.Depth) {
		e.Helper()
		d, _ := broker.As[broker.Depther](e.b) // as countsDepth asks
		got, err := d.Depth(e.Context())
		e.OK(err, "Depth")
		if got.Oldest = (time.Time{}); got != want { // a time of the service's clock
			e.Errorf("Depth is %+v, want %+v", got, want)
		}
	}
	check(broker.Depth{})
	e.sendBodies("a", "b", "c")
	want := broker.Depth{Visible: 3}
	if e.l.MaxDelay > 0 {
		o := e.out("late")
		o.Delay = min(e.v, e.l.MaxDelay)
		e.send(o)
		want.Delayed = 1
	}
	check(want)
	ms := e.take(2)
	want.Visible, want.InFlight = 1, 2
	check(want)
	e.ack(ms[0])
	want.InFlight = 1
	check(want)
	e.nack(ms[1], 0)
	want.Visible, want.InFlight = 2, 0
	check(want)
}
