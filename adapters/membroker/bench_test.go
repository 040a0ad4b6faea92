package membroker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

const benchBatch = 10

func benchMessages(group func(i int) string) []broker.Outgoing {
	body := make([]byte, 256)
	ms := make([]broker.Outgoing, benchBatch)
	for i := range ms {
		ms[i] = broker.Outgoing{Body: body, Meta: &broker.Meta{ID: "0123456789abcdef", Type: "order", Key: "order-1234"}}
		if group != nil {
			ms[i].Group = group(i)
		}
	}
	return ms
}

// BenchmarkRound is send, receive and ack of a batch of ten; allocations are the batch's.
func BenchmarkRound(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchRound(b, benchMessages(nil)) })
	b.Run("groups", func(b *testing.B) {
		benchRound(b, benchMessages(func(i int) string { return fmt.Sprint("g", i/2) }))
	})
}

func benchRound(b *testing.B, out []broker.Outgoing) {
	q := must.Get(membroker.New(nil))
	rs := make([]broker.Receipt, benchBatch)
	b.ReportAllocs()
	for b.Loop() {
		round(b, q, out, rs)
	}
	perMessage(b)
}

func perMessage(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchBatch, "ns/message")
}

func round(b *testing.B, q *membroker.Broker, out []broker.Outgoing, rs []broker.Receipt) {
	ctx := context.Background()
	if _, err := q.Send(ctx, out); err != nil {
		b.Fatal(err)
	}
	ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: benchBatch})
	if err != nil || len(ms) != benchBatch {
		b.Fatal(len(ms), err)
	}
	for i, m := range ms {
		rs[i] = m.Receipt
	}
	if err := q.Ack(ctx, rs); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDepth shows what a batch of ten costs on a queue of a thousand and of a million
// messages, half of them in flight.
func BenchmarkDepth(b *testing.B) {
	for _, depth := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) { benchDepth(b, depth) })
	}
}

func benchDepth(b *testing.B, depth int) {
	ctx := context.Background()
	out := benchMessages(nil)
	fill := func(b *testing.B) (*membroker.Broker, []broker.Receipt) {
		q := must.Get(membroker.New(nil))
		for range depth / benchBatch {
			if _, err := q.Send(ctx, out); err != nil {
				b.Fatal(err)
			}
		}
		var held []broker.Receipt
		for len(held) < depth/2 {
			ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: benchBatch, Visibility: q.Limits().MaxHold})
			if err != nil {
				b.Fatal(err)
			}
			for _, m := range ms {
				held = append(held, m.Receipt)
			}
		}
		return q, held
	}
	b.Run("round", func(b *testing.B) {
		q, _ := fill(b)
		rs := make([]broker.Receipt, benchBatch)
		for b.Loop() {
			round(b, q, out, rs)
		}
		perMessage(b)
	})
	b.Run("extend", func(b *testing.B) {
		q, held := fill(b)
		hs := make([]broker.Hold, benchBatch)
		for i := 0; b.Loop(); i += benchBatch {
			for k := range hs {
				// Strides bring receipts from all over the heap.
				hs[k] = broker.Hold{Receipt: held[(i+k)*7919%len(held)], For: q.Limits().MaxHold}
			}
			if err := q.Extend(ctx, hs); err != nil {
				b.Fatal(err)
			}
		}
		perMessage(b)
	})
	b.Run("nack", func(b *testing.B) {
		q, _ := fill(b)
		hs := make([]broker.Hold, benchBatch)
		for b.Loop() {
			ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: benchBatch})
			if err != nil || len(ms) != benchBatch {
				b.Fatal(len(ms), err)
			}
			for k, m := range ms {
				hs[k] = broker.Hold{Receipt: m.Receipt}
			}
			if err := q.Nack(ctx, hs); err != nil {
				b.Fatal(err)
			}
		}
		perMessage(b)
	})
}

// BenchmarkHandOver is one message at a time from a sender to receives that wait.
func BenchmarkHandOver(b *testing.B) {
	q := must.Get(membroker.New(nil))
	ctx := context.Background()
	done := make(chan error, 1)
	n := b.N
	b.ReportAllocs()
	go func() {
		for range n {
			ms, err := q.Receive(ctx, broker.ReceiveOptions{Max: 1, Wait: -1})
			if err == nil {
				err = q.Ack(ctx, []broker.Receipt{ms[0].Receipt})
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	out := benchMessages(nil)[:1]
	for range n {
		if _, err := q.Send(ctx, out); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
