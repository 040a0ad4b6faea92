package membroker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

// What a receipt is good for after its delivery has ended, by preset.
func TestReceiptHabits(t *testing.T) {
	lenient := []membroker.Preset{membroker.SQSStandard, membroker.PubSub}
	strict := []membroker.Preset{membroker.Memory, membroker.SQSFIFO}

	t.Run("late ack removes", func(t *testing.T) {
		virtual(t, lenient, func(t *testing.T, q queue) {
			q.send("a", "b")
			ms := q.get("a", "b")
			pass(visibility)
			want(t, q.tryAck(ms[0]), nil)
			q.depth(1, 0, 0)
			q.get("b")
		})
	})
	t.Run("late ack fails", func(t *testing.T) {
		virtual(t, strict, func(t *testing.T, q queue) {
			q.send("a")
			m := q.one("a")
			pass(visibility)
			want(t, q.tryAck(m), broker.ErrReceiptExpired)
			q.get("a")
		})
	})
	// The habit that loses leases silently: the answer is success, the message is visible.
	t.Run("late extension does nothing", func(t *testing.T) {
		for ps, answer := range map[*[]membroker.Preset]error{&lenient: nil, &strict: broker.ErrReceiptExpired} {
			virtual(t, *ps, func(t *testing.T, q queue) {
				q.send("a")
				m := q.one("a")
				pass(visibility)
				want(t, q.extend(m, time.Minute), answer)
				want(t, q.nack(m, time.Minute), answer)
				q.get("a")
			})
		}
	})
	t.Run("old receipt changes nothing", func(t *testing.T) {
		for ps, answer := range map[*[]membroker.Preset]error{&lenient: nil, &strict: broker.ErrReceiptExpired} {
			virtual(t, *ps, func(t *testing.T, q queue) {
				q.send("a")
				old := q.one("a")
				pass(visibility)
				q.get("a")
				want(t, q.tryAck(old), answer)
				want(t, q.extend(old, 10*time.Minute), answer)
				want(t, q.nack(old, 0), answer)
				q.depth(0, 1, 0)
				pass(visibility)
				q.get("a")
			})
		}
	})
	t.Run("ack after nack", func(t *testing.T) {
		virtual(t, presets, func(t *testing.T, q queue) {
			q.send("a")
			m := q.one("a")
			want(t, q.nack(m, time.Minute), nil)
			if q.preset == membroker.Memory {
				want(t, q.tryAck(m), broker.ErrReceiptExpired)
				want(t, q.extend(m, time.Minute), broker.ErrReceiptExpired)
				q.depth(0, 0, 1)
				return
			}
			want(t, q.extend(m, visibility), nil)
			want(t, q.tryAck(m), nil)
			q.depth(0, 0, 0)
		})
	})
	t.Run("ack after nack without delay", func(t *testing.T) {
		for ps, answer := range map[*[]membroker.Preset]error{&lenient: nil, &strict: broker.ErrReceiptExpired} {
			virtual(t, *ps, func(t *testing.T, q queue) {
				q.send("a")
				m := q.one("a")
				want(t, q.nack(m, 0), nil)
				want(t, q.tryAck(m), answer)
			})
		}
	})
	t.Run("after an ack", func(t *testing.T) {
		virtual(t, presets, func(t *testing.T, q queue) {
			q.send("a", "b")
			ms := q.get("a", "b")
			q.ack(ms[0], ms[0])
			q.ack(ms[0])
			var answer error = broker.ErrReceiptExpired
			if q.preset == membroker.PubSub {
				answer = nil
			}
			want(t, q.extend(ms[0], visibility), answer)
			want(t, q.nack(ms[0], 0), answer)
			// The slot is taken by another message now.
			q.send("c")
			q.ack(ms[0])
			want(t, q.extend(ms[0], visibility), answer)
			q.depth(1, 1, 0)
		})
	})
}

// Forged receipts, and those of another broker, are answered ErrReceiptExpired and change
// nothing.
func TestAlienReceipts(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		other := open(t, membroker.Options{})
		other.send("x")
		q.send("a")
		foreign, own := other.one("x").Receipt, q.one("a").Receipt
		q.send("b")
		q.one("b")
		nonce, slot, serial := own[:8], own[8:16], own[16:]
		for what, r := range map[string]broker.Receipt{
			"empty": "", "short": "x", "another broker's": foreign, "cut": own[1:], "too long": own + "0",
			"not hexadecimal":         own[:len(own)-1] + "g",
			"a serial of another":     nonce + slot + "0000000000000004", // the delivery of b
			"a serial not yet given":  nonce + slot + "00000000ffffffff",
			"a slot not there":        nonce + "ffffffff" + "00000000ffffffff",
			"the serial of no one":    nonce + slot + "0000000000000000",
			"another nonce":           "00000000" + slot + serial,
			"a slot that none uses":   nonce + "00000007" + "00000000ffffffff",
			"a serial with the top b": nonce + slot + "8000000000000002",
		} {
			if r == own {
				t.Fatalf("%s: no forgery", what)
			}
			for call, err := range map[string]error{
				"ack":    q.Ack(t.Context(), []broker.Receipt{r}),
				"nack":   q.Nack(t.Context(), []broker.Hold{{Receipt: r}}),
				"extend": q.Extend(t.Context(), []broker.Hold{{Receipt: r, For: 10 * time.Minute}}),
			} {
				if !errors.Is(broker.ErrAt(err, 0), broker.ErrReceiptExpired) {
					t.Errorf("%s, %s: %v", what, call, err)
				}
			}
			q.depth(0, 2, 0)
		}
		pass(visibility)
		q.depth(2, 0, 0)
	})
}

func TestAnswersByPosition(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		q.send("a", "b", "c")
		ms := q.get("a", "b", "c")
		err := q.Ack(t.Context(), []broker.Receipt{ms[0].Receipt, "nonsense", ms[2].Receipt})
		if broker.ErrAt(err, 0) != nil || broker.ErrAt(err, 2) != nil {
			t.Fatal(err)
		}
		want(t, broker.ErrAt(err, 1), broker.ErrReceiptExpired)
		q.depth(0, 1, 0)
		err = q.Nack(t.Context(), []broker.Hold{{Receipt: ms[1].Receipt, For: -1}, {Receipt: ms[1].Receipt}})
		want(t, err, broker.ErrUnsupported)
		want(t, broker.ErrAt(err, 1), nil)
		q.depth(1, 0, 0)
	})
}

func TestTotalHold(t *testing.T) {
	virtual(t, []membroker.Preset{membroker.SQSStandard, membroker.SQSFIFO}, func(t *testing.T, q queue) {
		q.send("a")
		m := q.one("a")
		pass(20 * time.Second)
		// Asking for more than is left changes nothing.
		want(t, q.extend(m, 12*time.Hour), broker.ErrUnsupported)
		want(t, q.nack(m, 12*time.Hour), broker.ErrUnsupported)
		q.depth(0, 1, 0)
		want(t, q.extend(m, 12*time.Hour-20*time.Second), nil)
		pass(12*time.Hour - 21*time.Second)
		want(t, q.extend(m, 2*time.Second), broker.ErrUnsupported)
		want(t, q.extend(m, time.Second), nil)
		q.get()
		pass(time.Second)
		// A new delivery can be held for the whole time again.
		m = q.one("a")
		want(t, q.extend(m, 12*time.Hour), nil)
	})
	virtual(t, []membroker.Preset{membroker.Memory, membroker.PubSub}, func(t *testing.T, q queue) {
		q.send("a")
		m := q.one("a")
		for range 100 {
			want(t, q.extend(m, 10*time.Minute), nil)
			pass(9 * time.Minute)
		}
		q.ack(m)
	})
}

func TestInFlightLimit(t *testing.T) {
	const most = 120_000
	fill := func(t *testing.T, p membroker.Preset) (queue, *broker.Message) {
		q := open(t, membroker.Options{Preset: p})
		texts := numbered(most + 10)
		for part := range slices.Chunk(texts, 10) {
			q.send(part...)
		}
		var last *broker.Message
		for i := range most / 10 {
			n := 10
			if i == most/10-1 {
				n = 7 // so that the last receive meets the limit half way
			}
			ms := q.receive(broker.ReceiveOptions{Max: n, Visibility: time.Hour})
			if len(ms) != n {
				t.Fatalf("receive %d brought %d", i, len(ms))
			}
			last = ms[0]
		}
		if ms := q.receive(broker.ReceiveOptions{Visibility: time.Hour}); len(ms) != 3 {
			t.Fatalf("%d messages at the limit, want the 3 that fit", len(ms))
		}
		return q, last
	}
	synctest.Test(t, func(t *testing.T) {
		q, last := fill(t, membroker.SQSStandard)
		_, err := q.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
		want(t, err, broker.ErrThrottled)
		if !strings.Contains(err.Error(), "OverLimit") {
			t.Fatal(err)
		}
		waits(t, q, last)
	})
	synctest.Test(t, func(t *testing.T) {
		q, last := fill(t, membroker.SQSFIFO)
		q.get()
		waits(t, q, last)
	})
}

// waits checks that a receive that waits at the limit is not told of it: it gets nothing, or what
// comes free.
func waits(t *testing.T, q queue, last *broker.Message) {
	t.Helper()
	start := time.Now()
	if ms := q.receive(broker.ReceiveOptions{Wait: 5 * time.Second}); len(ms) > 0 || time.Since(start) != 5*time.Second {
		t.Fatalf("at the limit %d messages after %v", len(ms), time.Since(start))
	}
	start = time.Now()
	time.AfterFunc(time.Second, func() { q.ack(last) })
	if ms := q.receive(broker.ReceiveOptions{Wait: -1}); len(ms) != 1 || time.Since(start) != time.Second {
		t.Fatalf("after an ack %d messages after %v", len(ms), time.Since(start))
	}
}
