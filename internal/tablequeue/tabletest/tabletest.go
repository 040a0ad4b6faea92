// Package tabletest is what the tests of the queues in a table of a database say alike.
package tabletest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/tablequeue"
)

// Bodies are messages with these bodies, in a group or none.
func Bodies(group string, of ...string) []broker.Outgoing {
	ms := make([]broker.Outgoing, len(of))
	for i, b := range of {
		ms[i] = broker.Outgoing{Body: []byte(b), Group: group}
	}
	return ms
}

// Send sends messages, none of which may be refused.
func Send(tb testing.TB, s broker.Sender, ms ...broker.Outgoing) []string {
	tb.Helper()
	ids, err := s.Send(tb.Context(), ms)
	if err != nil {
		tb.Fatal(err)
	}
	return ids
}

// Take brings n messages, in as many receives as it needs.
func Take(tb testing.TB, r broker.Receiver, n int) []*broker.Message {
	tb.Helper()
	var all []*broker.Message
	for end := time.Now().Add(20 * time.Second); len(all) < n; {
		ms, err := r.Receive(tb.Context(), broker.ReceiveOptions{Max: min(n-len(all), tablequeue.ReceiveBatch), Wait: time.Second})
		if err != nil {
			tb.Fatal(err)
		}
		if all = append(all, ms...); time.Now().After(end) {
			tb.Fatalf("%d of %d messages came", len(all), n)
		}
	}
	return all
}

// Receive brings what is there, at most n messages, and does not wait.
func Receive(tb testing.TB, r broker.Receiver, n int) []*broker.Message {
	tb.Helper()
	ms, err := r.Receive(tb.Context(), broker.ReceiveOptions{Max: n})
	if err != nil {
		tb.Fatal(err)
	}
	return ms
}

// None fails where something is there.
func None(tb testing.TB, r broker.Receiver, why string) {
	tb.Helper()
	if ms := Receive(tb, r, 1); len(ms) > 0 {
		tb.Fatalf("%s: %q came", why, ms[0].Body)
	}
}

// Ack acks messages, all of which must be the receiver's still.
func Ack(tb testing.TB, r broker.Receiver, ms ...*broker.Message) {
	tb.Helper()
	rs := make([]broker.Receipt, len(ms))
	for i, m := range ms {
		rs[i] = m.Receipt
	}
	for chunk := range slices.Chunk(rs, r.Limits().SettleBatch) {
		if err := r.Ack(tb.Context(), chunk); err != nil {
			tb.Fatal(err)
		}
	}
}

// MaxBody is the Options.MaxBody of a queue for [SendRefuses].
const MaxBody = 1000

// SendRefuses sends what the table cannot hold: it is refused by position, with field and limit,
// and its neighbours are sent. What is just within the limits comes as it was sent.
func SendRefuses(t *testing.T, q broker.Broker) {
	t.Helper()
	big := map[string]string{"a": strings.Repeat("x", 1<<20)}
	for _, c := range []struct {
		m    broker.Outgoing
		want string
		is   error
	}{
		{broker.Outgoing{Group: "a\x00b"}, "Group \"a\\x00b\" has a NUL", broker.ErrUnsupported},
		{broker.Outgoing{Group: "a\xffb"}, "not UTF-8", broker.ErrUnsupported},
		{broker.Outgoing{Group: strings.Repeat("g", 1025)}, "a Group of 1025 bytes; it has at most 1024", broker.ErrUnsupported},
		{broker.Outgoing{Attributes: map[string]string{"a": "\xff"}}, `attribute "a" has bytes that are not UTF-8`, broker.ErrUnsupported},
		{broker.Outgoing{Attributes: map[string]string{"\xff": "a"}}, "the attribute's name", broker.ErrUnsupported},
		{broker.Outgoing{Attributes: big}, "attributes of 1048577 bytes; at most 1048576", broker.ErrTooLarge},
		{broker.Outgoing{Body: make([]byte, MaxBody+1)}, "a body of 1001 bytes; Options.MaxBody is 1000", broker.ErrTooLarge},
		{broker.Outgoing{Meta: &broker.Meta{CorrelationID: big["a"]}}, "metadata of", broker.ErrTooLarge},
		{broker.Outgoing{Delay: -1}, "a Delay of -1ns", broker.ErrUnsupported},
		{broker.Outgoing{Delay: tablequeue.Longest + 1}, "a Delay of", broker.ErrUnsupported},
		{broker.Outgoing{Meta: &broker.Meta{}, Attributes: map[string]string{"onceq": "x"}}, "is ours", broker.ErrBadMeta},
	} {
		ids, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}, c.m, {Body: []byte("b")}})
		at := broker.ErrAt(err, 1)
		if !errors.Is(at, c.is) || !strings.Contains(at.Error(), c.want) || broker.ErrAt(err, 0) != nil || broker.ErrAt(err, 2) != nil || ids[0] == "" || ids[1] != "" || ids[2] == "" {
			t.Errorf("%q, %v; want %v with %q", ids, err, c.is, c.want)
		}
		Ack(t, q, Take(t, q, 2)...)
	}
	edge := broker.Outgoing{
		Group: strings.Repeat("ü", 512), Body: make([]byte, MaxBody), Delay: 0,
		Attributes: map[string]string{"a\x00": "b\x00"},
	}
	Send(t, q, edge, broker.Outgoing{}, broker.Outgoing{Body: []byte{}})
	ms := Take(t, q, 3)
	for _, m := range ms {
		if m.Group != "" && (m.Group != edge.Group || len(m.Body) != MaxBody || m.Attributes["a\x00"] != "b\x00") || m.Group == "" && len(m.Body) != 0 {
			t.Errorf("%+v came", m)
		}
	}
	Ack(t, q, ms...)
	None(t, q, "after all")
}
