package membroker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

func TestSendReceiveAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := membroker.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := b.Send(t.Context(), []broker.Outgoing{{Body: []byte("one"), Meta: &broker.Meta{ID: "j"}}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for attempt := 1; attempt <= 2; attempt++ {
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Wait: time.Minute})
			if err != nil || len(ms) != 1 {
				t.Fatalf("receive %d: %v, %v", attempt, ms, err)
			}
			m := ms[0]
			if m.ID != ids[0] || string(m.Body) != "one" || m.Meta.ID != "j" || m.Attempt != attempt {
				t.Fatalf("receive %d: %+v", attempt, m)
			}
			if attempt == 2 {
				if got := time.Since(start); got != 30*time.Second {
					t.Fatalf("redelivered after %v", got)
				}
				if err := b.Ack(t.Context(), []broker.Receipt{m.Receipt}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if d, err := b.Depth(t.Context()); err != nil || d != (broker.Depth{}) {
			t.Fatalf("depth %+v, %v", d, err)
		}
	})
}
