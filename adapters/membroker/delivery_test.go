package membroker_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

func TestAckedIsGone(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		q.send("a", "b", "c")
		q.depth(3, 0, 0)
		ms := q.get("a", "b", "c")
		q.depth(0, 3, 0)
		q.ack(ms...)
		q.depth(0, 0, 0)
		pass(13 * time.Hour)
		q.get()
	})
}

func TestExpiryRedelivers(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		id := q.send("a")[0]
		first := q.one("a")
		if got := time.Until(first.Deadline); got != visibility {
			t.Fatalf("deadline in %v", got)
		}
		pass(visibility - 1)
		q.get()
		pass(time.Nanosecond)
		second := q.one("a")
		if first.ID != id || second.ID != id || first.Receipt == second.Receipt {
			t.Fatalf("ids %q, %q, %q; receipts %q, %q", id, first.ID, second.ID, first.Receipt, second.Receipt)
		}
		if q.Limits().Attempts && (first.Attempt != 1 || second.Attempt != 2) || !q.Limits().Attempts && second.Attempt != 0 {
			t.Fatalf("attempts %d, %d", first.Attempt, second.Attempt)
		}
		if !first.Published.Equal(second.Published) {
			t.Fatalf("published %v, then %v", first.Published, second.Published)
		}
	})
}

func TestVisibilityOfOneReceive(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		q.send("a")
		m := q.receive(broker.ReceiveOptions{Visibility: 45 * time.Second})[0]
		if got := time.Until(m.Deadline); got != 45*time.Second {
			t.Fatalf("deadline in %v", got)
		}
		pass(45*time.Second - 1)
		q.get()
		pass(time.Nanosecond)
		q.get("a")
	})
}

func TestExtend(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		q.send("a")
		m := q.one("a")
		for range 5 {
			pass(20 * time.Second)
			want(t, q.extend(m, visibility), nil)
		}
		pass(visibility - 1)
		q.get()
		// An extension may also shorten.
		want(t, q.extend(m, 10*time.Second), nil)
		pass(10*time.Second - 1)
		q.get()
		pass(time.Nanosecond)
		q.get("a")
	})
}

func TestNack(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		q.send("a", "b")
		ms := q.get("a", "b")
		want(t, q.nack(ms[0], 20*time.Second), nil)
		want(t, q.nack(ms[1], 0), nil)
		q.get("b")
		pass(20*time.Second - 1)
		q.get()
		pass(time.Nanosecond)
		q.get("a")
	})
}

func TestNackCountsAs(t *testing.T) {
	check := func(inFlight, delayed int64) func(*testing.T, queue) {
		return func(t *testing.T, q queue) {
			q.send("a")
			want(t, q.nack(q.one("a"), time.Minute), nil)
			q.depth(0, inFlight, delayed)
			pass(time.Minute)
			q.depth(1, 0, 0)
		}
	}
	virtual(t, presets[:1], check(0, 1))
	virtual(t, presets[1:], check(1, 0))
}

func TestSendDelay(t *testing.T) {
	virtual(t, []membroker.Preset{membroker.Memory, membroker.SQSStandard}, func(t *testing.T, q queue) {
		_, err := q.Send(t.Context(), []broker.Outgoing{
			{Body: []byte("late"), Delay: 2 * time.Minute}, {Body: []byte("later"), Delay: 3 * time.Minute}, {Body: []byte("now")},
		})
		want(t, err, nil)
		q.depth(1, 0, 2)
		q.ack(q.one("now"))
		pass(2*time.Minute - 1)
		q.get()
		pass(time.Nanosecond)
		q.one("late")
		pass(time.Minute)
		q.get("late", "later") // "late" expired half a minute before
	})
	virtual(t, []membroker.Preset{membroker.SQSFIFO, membroker.PubSub}, func(t *testing.T, q queue) {
		_, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("late"), Group: "g", Delay: 1}})
		want(t, err, broker.ErrUnsupported)
		q.depth(0, 0, 0)
	})
}

func TestOrder(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		q.send("a", "b", "c", "d")
		ms := q.receive(broker.ReceiveOptions{Max: 2})
		want(t, q.nack(ms[0], 0), nil)
		// What came back stands behind what waited all the time.
		q.get("c", "d", "a")
		pass(visibility)
		// A batch that expires together keeps its order.
		q.get("b", "c", "d", "a")
	})
}

func TestManyExpireInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		texts := numbered(100)
		q.send(texts...)
		for i := range 100 {
			// 37 is prime to 100: each message gets a deadline of its own, far from sorted.
			q.receive(broker.ReceiveOptions{Max: 1, Visibility: time.Duration(1+i*37%100) * time.Minute})
		}
		for minute := range 100 {
			pass(time.Minute)
			i := slices.IndexFunc(texts, func(s string) bool { return slices.Index(texts, s)*37%100 == minute })
			q.ack(q.get(texts[i])...)
		}
		q.depth(0, 0, 0)
	})
}

func TestReceiverOwnsTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		big := bytes.Repeat([]byte("x"), 4096)
		out := []broker.Outgoing{
			{Body: []byte("small"), Attributes: map[string]string{"k": "v"}, Meta: &broker.Meta{ID: "1", BodyEncoding: "base64", Dead: &broker.Letter{Class: "c"}}},
			{Body: big},
			{Body: []byte("other"), Attributes: map[string]string{}},
		}
		if _, err := q.Send(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		spoil := func(body []byte, attributes map[string]string, meta *broker.Meta) {
			clear(body)
			body = append(body, "spill"...)
			_ = body
			if attributes != nil {
				attributes["k"] = "spoilt"
			}
			if meta != nil {
				meta.ID, meta.Dead.Class = "spoilt", "spoilt"
			}
		}
		for _, o := range out {
			spoil(o.Body, o.Attributes, o.Meta)
		}
		for range 3 {
			ms := q.receive(broker.ReceiveOptions{})
			if len(ms) != 3 {
				t.Fatalf("%d messages", len(ms))
			}
			m := ms[0]
			if string(m.Body) != "small" || m.Attributes["k"] != "v" || m.Meta.ID != "1" || m.Meta.Dead.Class != "c" || m.Meta.BodyEncoding != "" {
				t.Fatalf("%q %v %+v %+v", m.Body, m.Attributes, m.Meta, m.Meta.Dead)
			}
			if !bytes.Equal(ms[1].Body, bytes.Repeat([]byte("x"), 4096)) || string(ms[2].Body) != "other" || ms[2].Attributes != nil || ms[2].Meta != nil {
				t.Fatalf("%q %v %v", ms[2].Body, ms[2].Attributes, ms[2].Meta)
			}
			for _, m := range ms {
				spoil(m.Body, m.Attributes, m.Meta)
				if string(ms[2].Body) != "other" && m != ms[2] {
					t.Fatal("an append to one body reached another")
				}
			}
			pass(visibility)
		}
	})
}

func TestEmptyBatchesAreApplied(t *testing.T) {
	virtual(t, presets, func(t *testing.T, q queue) {
		ids, err := q.Send(t.Context(), nil)
		if ids != nil || err != nil || q.Ack(t.Context(), nil) != nil || q.Nack(t.Context(), nil) != nil || q.Extend(t.Context(), nil) != nil {
			t.Fatal(ids, err)
		}
	})
}

func TestBurstIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		var first *broker.Message
		texts := numbered(100)
		for range 400 {
			q.send(texts...)
		}
		for range 400 {
			ms := q.receive(broker.ReceiveOptions{Max: 100})
			if first == nil {
				first = ms[0]
			}
			q.ack(ms...)
		}
		q.depth(0, 0, 0)
		// The old receipt names a slot that is used anew and must not touch it.
		want(t, q.tryAck(first), nil)
		q.send("a")
		want(t, q.tryAck(first), nil)
		m := q.one("a")
		want(t, q.tryAck(first), nil)
		want(t, q.extend(first, time.Hour), broker.ErrReceiptExpired)
		q.depth(0, 1, 0)
		q.ack(m)
		q.depth(0, 0, 0)
	})
}
