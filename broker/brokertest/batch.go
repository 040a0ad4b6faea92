package brokertest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/onceq/onceq/broker"
)

// This file has the cases of limits, batches and receives. Run calls each in a subtest with a queue
// of its own. Where a case sends from another goroutine, the two share the broker alone, so nothing
// is locked.

func limitsAreSane(e *env) {
	l := e.l
	for _, n := range []struct {
		name string
		n    int
	}{{"ReceiveBatch", l.ReceiveBatch}, {"SettleBatch", l.SettleBatch}, {"SendBatch", l.SendBatch}} {
		if n.n < 1 {
			e.Errorf("Limits.%s is %d", n.name, n.n)
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"MinHold", l.MinHold},
		{"MaxHold", l.MaxHold},
		{"MaxTotal", l.MaxTotal},
		{"MaxNack", l.MaxNack},
		{"MaxDelay", l.MaxDelay},
		{"MaxWait", l.MaxWait},
		{"MaxBody", time.Duration(l.MaxBody)},
		{"MaxAttributes", time.Duration(l.MaxAttributes)},
	} {
		if d.d < 0 {
			e.Errorf("Limits.%s is below 0", d.name)
		}
	}
	if l.MaxHold > 0 && l.MinHold > l.MaxHold {
		e.Errorf("MinHold %v is above MaxHold %v", l.MinHold, l.MaxHold)
	}
	if l.MaxTotal > 0 && l.MaxHold > l.MaxTotal {
		e.Errorf("MaxHold %v is above MaxTotal %v", l.MaxHold, l.MaxTotal)
	}
	if l.RequireGroup && !l.OrderedGroups {
		e.Errorf("RequireGroup is true and OrderedGroups false")
	}
	e.sendBodies("a")
	e.ack(e.takeOne())
	e.SameLimits(l, e.b.Limits())
}

func idsAreStable(e *env) {
	ids := e.sendBodies("0", "1", "2")
	if slices.Contains(ids, "") || ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] {
		e.Errorf("Send answered the ids %q", ids)
	}
	receipts := map[broker.Receipt]bool{}
	for range 3 {
		ms := e.take(3)
		for _, m := range ms {
			if receipts[m.Receipt] {
				e.Errorf("receipt %q came twice", m.Receipt)
			}
			receipts[m.Receipt] = true
			if i := int(m.Body[0] - '0'); ids[i] != m.ID {
				e.Errorf("message %d came with ID %q; Send answered %q", i, m.ID, ids[i])
			}
		}
		for _, m := range ms {
			e.nack(m, 0)
		}
	}
}

// mixed brings the receipts of good messages with bad ones between them: good[0], bad, good[1],
// bad, good[2]. The first bad receipt was never given out. The second is of an acked message.
func mixed(e *env) (rs []broker.Receipt, good []*broker.Message) {
	e.sendBodies("gone", "a", "b", "c")
	ms := e.take(4)
	i := slices.IndexFunc(ms, func(m *broker.Message) bool { return string(m.Body) == "gone" })
	if i < 0 {
		e.Fatalf("messages came twice or not at all: %s", bodies(ms))
	}
	gone := ms[i]
	good = slices.Delete(slices.Clone(ms), i, i+1)
	e.ack(gone)
	return []broker.Receipt{good[0].Receipt, "never-given-out", good[1].Receipt, gone.Receipt, good[2].Receipt}, good
}

// byPosition checks the answer to a batch of mixed.
func byPosition(e *env, call string, err error) {
	if err == nil {
		// A service that does not say which entries failed answers success for all.
		return
	}
	var b *broker.BatchError
	if !errors.As(err, &b) {
		e.Fatalf("%s with bad receipts among good ones was answered %v; it tells nothing of any entry", call, err)
	}
	if len(b.Errs) != 5 {
		e.Fatalf("%s of 5 entries has %d answers", call, len(b.Errs))
	}
	for i, err := range b.Errs {
		if i%2 == 0 && err != nil {
			e.Errorf("%s: entry %d is good and was answered: %v", call, i, err)
		}
		if i%2 == 1 && err != nil && !errors.Is(err, broker.ErrReceiptExpired) {
			e.Errorf("%s: entry %d is bad and was answered %v; want ErrReceiptExpired", call, i, err)
		}
	}
}

func holds(rs []broker.Receipt, d time.Duration) []broker.Hold {
	hs := make([]broker.Hold, len(rs))
	for i, r := range rs {
		hs[i] = broker.Hold{Receipt: r, For: d}
	}
	return hs
}

func batchAckByPosition(e *env) {
	rs, _ := mixed(e)
	byPosition(e, "Ack", e.b.Ack(e.Context(), rs))
	e.gone("after the ack of all")
}

func batchNackByPosition(e *env) {
	rs, good := mixed(e)
	byPosition(e, "Nack", e.b.Nack(e.Context(), holds(rs, 0)))
	back := e.take(3)
	for _, m := range good {
		if !slices.ContainsFunc(back, func(b *broker.Message) bool { return b.ID == m.ID }) {
			e.Errorf("%q did not come back; these did: %s", m.Body, bodies(back))
		}
	}
	e.ack(back...)
	e.gone("after the ack of all")
}

func batchExtendByPosition(e *env) {
	rs, good := mixed(e)
	e.Pause(e.v / 4)
	from := time.Now().Add(e.hold)
	byPosition(e, "Extend", e.b.Extend(e.Context(), holds(rs, e.hold)))
	by := time.Now().Add(e.hold + e.h.Slack)
	e.ack(e.between(from, by, "an extended message"))
	e.ack(e.take(len(good) - 1)...)
	e.gone("after the ack of all")
}

func receipts(ms []*broker.Message) []broker.Receipt {
	rs := make([]broker.Receipt, len(ms))
	for i, m := range ms {
		rs[i] = m.Receipt
	}
	return rs
}

func fullBatches(e *env) {
	n := min(max(e.l.SendBatch, e.l.ReceiveBatch, e.l.SettleBatch), 1000)
	os := make([]broker.Outgoing, n)
	for i := range os {
		os[i] = e.out(strconv.Itoa(i))
	}
	e.send(os...)
	// A part is settled before the next is taken. On a busy machine the timeout of the first
	// message would otherwise run out behind a thousand others.
	settle := func(n int, end func(part []*broker.Message)) {
		for part := range slices.Chunk(e.take(n), e.l.SettleBatch) {
			if e.l.Extends {
				e.OK(e.b.Extend(e.Context(), holds(receipts(part), e.hold)), "Extend")
			}
			end(part)
		}
	}
	size := min(n, max(e.l.ReceiveBatch, e.l.SettleBatch))
	settle(size, func(part []*broker.Message) { e.OK(e.b.Nack(e.Context(), holds(receipts(part), 0)), "Nack") })
	for left := n; left > 0; left -= size {
		settle(min(left, size), func(part []*broker.Message) { e.ack(part...) })
	}
	e.gone("after the ack of all")
}

func fullExtension(e *env) {
	n := min(e.l.SettleBatch, 1000)
	for i := range n {
		e.sendBodies(strconv.Itoa(i))
	}
	ms := e.take(n)
	rs := make([]broker.Receipt, n)
	for i, m := range ms {
		rs[i] = m.Receipt
	}
	e.Pause(e.v / 4)
	from := time.Now().Add(e.hold)
	e.OK(e.b.Extend(e.Context(), holds(rs, e.hold)), "Extend")
	by := time.Now().Add(e.hold + e.h.Slack)
	e.ack(e.between(from, by, "a message of a full batch of extensions"))
	e.ack(e.take(n - 1)...)
	e.gone("after the ack of all")
}

// receiptTwice settles [a, a, b]: a caller that gathers settlements may hold a receipt twice.
func receiptTwice(e *env) {
	twice := func(ms []*broker.Message) []broker.Receipt {
		return []broker.Receipt{ms[0].Receipt, ms[0].Receipt, ms[1].Receipt}
	}
	answer := func(call string, err error) {
		e.Helper()
		var b *broker.BatchError
		if err != nil && (!errors.As(err, &b) || len(b.Errs) != 3) {
			e.Fatalf("%s with a receipt twice was answered %v; it tells nothing of any entry", call, err)
		}
		for i := range 3 {
			// The second of two equal ones may come too late.
			if at := broker.ErrAt(err, i); at != nil && (i != 1 || !errors.Is(at, broker.ErrReceiptExpired)) {
				e.Errorf("%s with a receipt twice: entry %d was answered: %v", call, i, at)
			}
		}
	}
	e.sendBodies("a", "b")
	answer("Nack", e.b.Nack(e.Context(), holds(twice(e.take(2)), 0)))
	ms := e.take(2)
	if e.l.Extends {
		e.Pause(e.v / 4)
		from := time.Now().Add(e.hold)
		answer("Extend", e.b.Extend(e.Context(), holds(twice(ms), e.hold)))
		by := time.Now().Add(e.hold + e.h.Slack)
		ms = append(ms[:0], e.between(from, by, "an extended message"), e.takeOne())
	}
	answer("Ack", e.b.Ack(e.Context(), twice(ms)))
	e.gone("after the ack of both")
}

// takesNoMore leaves two messages in the queue for a whole timeout. A Receive that took more than
// it handed out would have held them, or counted a delivery.
func takesNoMore(e *env) {
	e.sendBodies("a", "b", "c")
	first := e.takeOne()
	e.lapse(time.Now())
	for range 3 {
		m := e.takeOne()
		answered := time.Now()
		if left := m.Deadline.Sub(answered); left < e.v-e.v/4-e.h.Slack {
			e.Errorf("a message that nobody had received came with a Deadline %v after the answer; the timeout is %v", left, e.v)
		}
		if m.ID != first.ID && e.l.Attempts && m.Attempt != 1 {
			e.Errorf("a message that nobody had received came with Attempt %d", m.Attempt)
		}
		e.ack(m)
	}
	e.gone("after the ack of all")
}

func emptyBatch(e *env) {
	ids, err := e.b.Send(e.Context(), nil)
	if len(ids) > 0 || err != nil {
		e.Errorf("Send of nothing was answered %q, %v", ids, err)
	}
	e.Want("Ack of nothing", e.b.Ack(e.Context(), nil), nil)
	e.Want("Nack of nothing", e.b.Nack(e.Context(), nil), nil)
	if e.l.Extends {
		e.Want("Extend of nothing", e.b.Extend(e.Context(), nil), nil)
	}
}

func oversizeBatch(e *env) {
	os := make([]broker.Outgoing, e.l.SendBatch+1)
	for i := range os {
		os[i] = e.out("oversize")
	}
	_, err := e.b.Send(e.Context(), os)
	e.Want(fmt.Sprintf("Send of %d messages, with SendBatch %d,", len(os), e.l.SendBatch), err, broker.ErrUnsupported)
	e.quiet(time.Now().Add(e.prompt), "a message of a refused batch")
	e.sendBodies("a")
	m := e.takeOne()
	answered := time.Now()
	rs := slices.Repeat([]broker.Receipt{m.Receipt}, e.l.SettleBatch+1)
	for i := range rs[1:] {
		rs[i+1] = broker.Receipt(fmt.Sprintf("never-given-out-%d", i))
	}
	refused := func(call string, err error) {
		e.Helper()
		e.Want(fmt.Sprintf("%s of %d receipts, with SettleBatch %d,", call, len(rs), e.l.SettleBatch), err, broker.ErrUnsupported)
	}
	refused("Ack", e.b.Ack(e.Context(), rs))
	refused("Nack", e.b.Nack(e.Context(), holds(rs, 0)))
	if e.l.Extends {
		refused("Extend", e.b.Extend(e.Context(), holds(rs, e.hold)))
	}
	e.heldAndBack(m, answered, "a message whose settlements were refused")
}

func receiveMax(e *env) {
	n := min(e.l.ReceiveBatch, 10) + 2
	for range n {
		e.sendBodies("a")
	}
	seen := map[string]bool{}
	most := 1
	for until := time.Now().Add(e.prompt); len(seen) < n; {
		ms := e.poll(e.b, most, until) // poll checks the number itself
		if len(ms) == 0 {
			e.Fatalf("%d of %d messages came within %v", len(seen), n, e.prompt)
		}
		for _, m := range ms {
			if seen[m.ID] {
				e.Errorf("message %s came twice", m.ID)
			}
			seen[m.ID] = true
		}
		e.ack(ms...)
		most = min(2*most, e.l.ReceiveBatch)
	}
}

func receiveWait(e *env) {
	receive := func(wait time.Duration) ([]*broker.Message, time.Duration) {
		started := time.Now()
		ms, err := e.b.Receive(e.Context(), broker.ReceiveOptions{Max: 1, Wait: wait})
		e.OK(err, "Receive")
		return ms, time.Since(started)
	}
	// Without a service in between, the clock is exact; with one, a call takes a while.
	call := time.Millisecond
	if !e.h.Virtual {
		call = max(time.Second, e.v)
	}
	for _, wait := range []time.Duration{0, e.wait(e.v / 2), e.wait(e.v)} {
		ms, took := receive(wait)
		if len(ms) > 0 {
			e.Fatalf("an empty queue gave %s", bodies(ms))
		}
		if took > wait+call || took < wait-call {
			e.Errorf("an empty Receive with Wait %v took %v", wait, took)
		}
	}
	for _, wait := range []time.Duration{e.wait(e.v), -1} {
		after := e.wait(e.v / 4)
		sent := e.sendAfter(after, e.out("a"))
		ms, took := receive(wait)
		sent()
		if len(ms) == 0 || took > after+call {
			e.Errorf("Receive with Wait %v, and a message sent after %v, took %v and brought %s", wait, after, took, bodies(ms))
		}
		if len(ms) == 0 {
			ms = e.take(1)
		}
		e.ack(ms...)
	}
}
