package brokertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/suite"
)

// This file owns what a case works with: its queue, and the calls and checks that the cases share.
// A case calls them from one goroutine. Its other goroutines call the broker, wait, Pause and
// Errorf alone, so nothing is locked.

// env is what a case works with: the harness under both suites, and a queue of its own.
type env struct {
	*suite.Env
	h     Harness
	queue Queue
	b     broker.Broker
	l     broker.Limits
	// v is the queue's visibility timeout, hold an extension that the driver allows.
	v, hold time.Duration
	// prompt is how long a message that is available may take to come.
	prompt time.Duration
	sent   int
}

func newEnv(c *suite.Env, h Harness, o QueueOptions) *env {
	c.Helper()
	o.Visibility = h.Visibility
	e := &env{Env: c, h: h, v: h.Visibility, prompt: h.Visibility / 2}
	e.queue = h.Open(c.TB, o)
	if e.queue.Broker == nil {
		e.Harnessf("Harness.Open gave a Queue without a Broker")
	}
	e.b = e.queue.Broker
	e.l = e.b.Limits()
	e.hold = max(e.v, e.l.MinHold)
	if e.l.MaxHold > 0 {
		e.hold = min(e.hold, e.l.MaxHold)
	}
	return e
}

// out is a message that the queue takes: it has a group and a deduplication id of its own
// where messages need them.
func (e *env) out(body string) broker.Outgoing {
	e.sent++
	o := broker.Outgoing{Body: []byte(body)}
	if e.l.RequireGroup {
		o.Group = fmt.Sprintf("group-%d", e.sent)
		o.DedupID = fmt.Sprintf("send-%d", e.sent)
	}
	return o
}

// inGroup is a message of a group.
func (e *env) inGroup(group, body string) broker.Outgoing {
	o := e.out(body)
	o.Group = group
	return o
}

// send puts messages, in batches that the driver allows.
func (e *env) send(os ...broker.Outgoing) (ids []string) {
	e.Helper()
	for len(os) > 0 {
		n := min(len(os), e.l.SendBatch)
		got, err := e.b.Send(e.Context(), os[:n])
		e.OK(err, "Send")
		if len(got) != n {
			e.Fatalf("Send of %d messages answered %d ids", n, len(got))
		}
		ids = append(ids, got...)
		os = os[n:]
	}
	return ids
}

func (e *env) sendBodies(bodies ...string) (ids []string) {
	e.Helper()
	os := make([]broker.Outgoing, len(bodies))
	for i, b := range bodies {
		os[i] = e.out(b)
	}
	return e.send(os...)
}

// sendAfter sends while the case does something else; answer waits for its end.
func (e *env) sendAfter(d time.Duration, o broker.Outgoing) (answer func()) {
	sent := make(chan error, 1)
	go func() {
		e.Pause(d)
		_, err := e.b.Send(e.Context(), []broker.Outgoing{o})
		sent <- err
	}()
	return func() {
		e.Helper()
		e.OK(<-sent, "Send")
	}
}

// wait is d, or as much of it as a Receive may wait.
func (e *env) wait(d time.Duration) time.Duration {
	if e.l.MaxWait > 0 {
		d = min(d, e.l.MaxWait)
	}
	return max(d, 0)
}

// poll receives until something comes or until is reached; the last call does not wait.
func (e *env) poll(r broker.Receiver, most int, until time.Time) []*broker.Message {
	e.Helper()
	for {
		started := time.Now()
		ms, err := r.Receive(e.Context(), broker.ReceiveOptions{Max: most, Wait: e.wait(time.Until(until))})
		e.OK(err, "Receive")
		if len(ms) > most {
			e.Fatalf("Receive with Max %d brought %d messages", most, len(ms))
		}
		for _, m := range ms {
			e.wellFormed(m)
		}
		if len(ms) > 0 || !time.Now().Before(until) {
			return ms
		}
		if time.Since(started) < time.Millisecond {
			// A driver that rounds short waits down must not be asked in a tight loop.
			e.Pause(min(time.Until(until), 10*time.Millisecond))
		}
	}
}

// wellFormed checks what holds for every message, whatever the case.
func (e *env) wellFormed(m *broker.Message) {
	e.Helper()
	switch {
	case m == nil:
		e.Fatalf("Receive brought a nil message")
	case m.ID == "" || m.Receipt == "":
		e.Fatalf("a message came with ID %q and receipt %q; both are needed", m.ID, m.Receipt)
	case m.Meta != nil && m.Meta.BodyEncoding != "":
		e.Errorf("Meta.BodyEncoding %q was left set; the driver undoes the encoding and clears it", m.Meta.BodyEncoding)
	case m.Meta != nil && m.MetaErr != nil:
		e.Errorf("Meta and MetaErr are both set")
	}
	if _, ok := m.Attributes[broker.MetaAttribute]; ok && m.MetaErr == nil && m.Meta != nil {
		e.Errorf("our own attribute %q is among the user's", broker.MetaAttribute)
	}
}

// take brings n available messages.
func (e *env) take(n int) []*broker.Message {
	e.Helper()
	var all []*broker.Message
	for until := time.Now().Add(e.prompt); len(all) < n; {
		ms := e.poll(e.b, min(n-len(all), e.l.ReceiveBatch), until)
		if len(ms) == 0 {
			e.Fatalf("%d of %d available messages came within %v: %s", len(all), n, e.prompt, bodies(all))
		}
		all = append(all, ms...)
	}
	return all
}

func (e *env) takeOne() *broker.Message {
	e.Helper()
	return e.take(1)[0]
}

// longBefore brings what comes more than an hour before until. What comes so early stays until
// somebody receives it, so a look now and then finds it.
func (e *env) longBefore(until time.Time) (ms []*broker.Message) {
	e.Helper()
	for len(ms) == 0 && time.Until(until) > time.Hour {
		e.Pause(max(29*time.Minute, time.Until(until)/2)) // years are few looks then
		ms = e.poll(e.b, 1, time.Now().Add(time.Minute))
	}
	return ms
}

// between brings the message that is due. None may come before from, and one must come by the time
// by.
func (e *env) between(from, by time.Time, what string) *broker.Message {
	e.Helper()
	ms := e.longBefore(from)
	if len(ms) == 0 {
		ms = e.poll(e.b, 1, by)
	}
	if len(ms) == 0 {
		e.Fatalf("%s did not come by %s", what, e.at(by))
	}
	if early := time.Until(from); early > 0 {
		e.Fatalf("%s: %s came %v too early", what, bodies(ms), early)
	}
	return ms[0]
}

// receiveBy brings one message, which must come by the time by.
func (e *env) receiveBy(by time.Time, what string) *broker.Message {
	e.Helper()
	return e.between(time.Time{}, by, what)
}

// quiet fails when a message comes before until, a time by which none is due.
func (e *env) quiet(until time.Time, what string) {
	e.Helper()
	ms := e.longBefore(until)
	if len(ms) == 0 {
		ms = e.poll(e.b, 1, until)
	}
	if len(ms) > 0 {
		e.Fatalf("%s: %s came, %v before it may", what, bodies(ms), time.Until(until))
	}
}

// gone checks that nothing is left that a deadline could bring back.
func (e *env) gone(what string) {
	e.Helper()
	if ms := e.poll(e.b, 1, time.Now().Add(max(e.v, e.hold)+e.h.Slack+e.v/4)); len(ms) > 0 {
		e.Fatalf("%s: %s came", what, bodies(ms))
	}
}

// heldAndBack checks that m, received at answered, is hidden until its deadline and then
// comes back, and brings it.
func (e *env) heldAndBack(m *broker.Message, answered time.Time, what string) *broker.Message {
	e.Helper()
	again := e.between(m.Deadline, answered.Add(e.v+e.h.Slack), what)
	e.same(again, m)
	return again
}

// same checks that two deliveries are of one message.
func (e *env) same(got, want *broker.Message) {
	e.Helper()
	if got.ID != want.ID {
		e.Fatalf("message %s (%.40q) came where %s (%.40q) was due", got.ID, got.Body, want.ID, want.Body)
	}
}

// lapse waits until the delivery has run out for certain, without receiving.
func (e *env) lapse(answered time.Time) {
	e.Pause(time.Until(answered.Add(e.v + e.h.Slack)))
}

// staleAnswer checks the answer to a receipt that is no longer good.
func (e *env) staleAnswer(err error, call string) {
	e.Helper()
	if err := broker.ErrAt(err, 0); err != nil && !errors.Is(err, broker.ErrReceiptExpired) {
		e.Errorf("%s was answered %v; want success or ErrReceiptExpired", call, err)
	}
}

func (e *env) ack(ms ...*broker.Message) {
	e.Helper()
	for len(ms) > 0 {
		n := min(len(ms), e.l.SettleBatch)
		rs := make([]broker.Receipt, n)
		for i, m := range ms[:n] {
			rs[i] = m.Receipt
		}
		e.OK(e.b.Ack(e.Context(), rs), "Ack")
		ms = ms[n:]
	}
}

func (e *env) nack(m *broker.Message, d time.Duration) {
	e.Helper()
	e.OK(e.b.Nack(e.Context(), []broker.Hold{{Receipt: m.Receipt, For: d}}), "Nack")
}

func (e *env) extend(m *broker.Message, d time.Duration) {
	e.Helper()
	e.OK(e.b.Extend(e.Context(), []broker.Hold{{Receipt: m.Receipt, For: d}}), "Extend")
}

// at is a time of the case's clock, as text.
func (e *env) at(t time.Time) string { return t.Format("15:04:05.000") }

func bodies(ms []*broker.Message) string {
	if len(ms) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, m := range ms {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.40q", m.Body)
	}
	return b.String()
}
