package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/retry"
)

var presets = []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.SQSFIFO, membroker.PubSub}

// visibility is what the tests' queues have; each preset allows it.
const visibility = 30 * time.Second

// queue wraps a broker with calls that must not fail.
type queue struct {
	*membroker.Broker
	t      *testing.T
	preset membroker.Preset
}

func open(t *testing.T, o membroker.Options) queue {
	t.Helper()
	b := must.Get(membroker.New(&o))
	return queue{b, t, o.Preset}
}

// virtual runs f in a bubble for each preset, on an empty queue.
func virtual(t *testing.T, on []membroker.Preset, f func(t *testing.T, q queue)) {
	t.Helper()
	for _, p := range on {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, open(t, membroker.Options{Preset: p})) })
		})
	}
}

// send puts a message per text, "group/body" or "body"; a preset that needs a group gets one each.
func (q queue) send(texts ...string) []string {
	q.t.Helper()
	ms := make([]broker.Outgoing, len(texts))
	for i, text := range texts {
		group, body, ok := strings.Cut(text, "/")
		if !ok {
			group, body = "", text
			if q.Limits().RequireGroup {
				group = "of " + body
			}
		}
		ms[i] = broker.Outgoing{Body: []byte(body), Group: group}
	}
	ids, err := q.Send(q.t.Context(), ms)
	if err != nil {
		q.t.Fatal(err)
	}
	return ids
}

func (q queue) receive(o broker.ReceiveOptions) []*broker.Message {
	q.t.Helper()
	if o.Max == 0 {
		o.Max = min(10, q.Limits().ReceiveBatch)
	}
	ms, err := q.Receive(q.t.Context(), o)
	if err != nil {
		q.t.Fatal(err)
	}
	return ms
}

// get receives without waiting and wants these bodies, in order.
func (q queue) get(want ...string) []*broker.Message {
	q.t.Helper()
	ms := q.receive(broker.ReceiveOptions{})
	if got := bodies(ms); !slices.Equal(got, want) {
		q.t.Fatalf("received %q, want %q", got, want)
	}
	return ms
}

func (q queue) one(want string) *broker.Message {
	q.t.Helper()
	return q.get(want)[0]
}

func (q queue) ack(ms ...*broker.Message) {
	q.t.Helper()
	want(q.t, q.tryAck(ms...), nil)
}

func (q queue) tryAck(ms ...*broker.Message) error {
	rs := make([]broker.Receipt, len(ms))
	for i, m := range ms {
		rs[i] = m.Receipt
	}
	return q.Ack(q.t.Context(), rs)
}

func (q queue) nack(m *broker.Message, d time.Duration) error {
	return q.Nack(q.t.Context(), []broker.Hold{{Receipt: m.Receipt, For: d}})
}

func (q queue) extend(m *broker.Message, d time.Duration) error {
	return q.Extend(q.t.Context(), []broker.Hold{{Receipt: m.Receipt, For: d}})
}

func (q queue) depth(visible, inFlight, delayed int64) {
	q.t.Helper()
	d, err := q.Depth(q.t.Context())
	if want := (broker.Depth{Visible: visible, InFlight: inFlight, Delayed: delayed}); err != nil || d != want {
		q.t.Fatalf("depth %+v, %v; want %+v", d, err, want)
	}
}

// want checks the answer for the first entry of a call.
func want(t *testing.T, err, target error) {
	t.Helper()
	if got := broker.ErrAt(err, 0); !errors.Is(got, target) || target == nil && err != nil {
		t.Fatalf("answer %v, want %v", err, target)
	}
}

func bodies(ms []*broker.Message) []string {
	var s []string
	for _, m := range ms {
		s = append(s, string(m.Body))
	}
	return s
}

func numbered(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprint(i)
	}
	return s
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	retry.Rest(context.Background(), d)
}
