package membroker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
)

var ordered = []membroker.Preset{membroker.Memory, membroker.SQSFIFO, membroker.PubSub}

func TestGroupInOrder(t *testing.T) {
	virtual(t, ordered, func(t *testing.T, q queue) {
		q.send("g/1", "h/a", "g/2", "g/3", "h/b")
		// One receive may bring several of a group.
		ms := q.get("1", "2", "3", "a", "b")
		if ms[0].Group != "g" || ms[3].Group != "h" {
			t.Fatalf("groups %q, %q", ms[0].Group, ms[3].Group)
		}
	})
}

func TestHeadHoldsItsFollowersOnly(t *testing.T) {
	virtual(t, ordered, func(t *testing.T, q queue) {
		q.send("g/1", "g/2", "h/a", "g/3")
		head := q.receive(broker.ReceiveOptions{Max: 1})[0]
		q.get("a")
		q.get()
		q.depth(2, 2, 0)
		q.ack(head)
		q.get("2", "3")
	})
}

func TestExpiredHeadComesFirst(t *testing.T) {
	virtual(t, ordered, func(t *testing.T, q queue) {
		q.send("g/1", "g/2", "g/3", "g/4")
		ms := q.receive(broker.ReceiveOptions{Max: 3})
		want(t, q.extend(ms[1], time.Minute), nil)
		pass(visibility)
		// 1 and 3 expired; 2 is in flight and holds 3 and 4, not 1.
		one := q.one("1")
		q.get()
		q.ack(one)
		q.get()
		pass(visibility)
		q.get("2", "3", "4")
	})
}

func TestNackedHeadHolds(t *testing.T) {
	virtual(t, ordered, func(t *testing.T, q queue) {
		q.send("g/1", "g/2", "h/a")
		ms := q.get("1", "2", "a")
		want(t, q.nack(ms[0], time.Minute), nil)
		want(t, q.nack(ms[1], 0), nil)
		q.get()
		pass(visibility)
		q.get("a")
		pass(visibility)
		q.get("1", "2", "a")
	})
}

func TestAckInTheMiddle(t *testing.T) {
	virtual(t, ordered, func(t *testing.T, q queue) {
		q.send("g/1", "g/2", "g/3")
		ms := q.get("1", "2", "3")
		q.ack(ms[1])
		want(t, q.nack(ms[2], 0), nil)
		q.get()
		want(t, q.nack(ms[0], 0), nil)
		q.get("1", "3")
	})
}

func TestDelayedHeadHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, membroker.Options{})
		if _, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("1"), Group: "g", Delay: time.Minute}, {Body: []byte("2"), Group: "g"}}); err != nil {
			t.Fatal(err)
		}
		q.get()
		pass(time.Minute)
		q.get("1", "2")
	})
}

func TestGroupsTakeTurns(t *testing.T) {
	virtual(t, ordered, func(t *testing.T, q queue) {
		q.send("g/1", "g/2", "g/3", "h/a")
		m := q.receive(broker.ReceiveOptions{Max: 1})[0]
		q.ack(m)
		// g became due again after h did.
		if ms := q.receive(broker.ReceiveOptions{Max: 1}); string(ms[0].Body) != "a" {
			t.Fatalf("received %q", ms[0].Body)
		}
	})
}

// A late ack takes a visible message away: a head, and what stands between others.
func TestLateAckInAGroup(t *testing.T) {
	virtual(t, []membroker.Preset{membroker.PubSub}, func(t *testing.T, q queue) {
		q.send("g/1", "g/2", "g/3")
		ms := q.get("1", "2", "3")
		want(t, q.extend(ms[1], time.Minute), nil)
		pass(visibility)
		q.ack(ms[0])
		q.get()
		q.depth(1, 1, 0)
		q.ack(ms[2])
		q.depth(0, 1, 0)
		q.ack(ms[1])
		q.depth(0, 0, 0)
		q.send("g/4")
		q.get("4")
	})
}

func TestStandardCarriesGroups(t *testing.T) {
	virtual(t, []membroker.Preset{membroker.SQSStandard}, func(t *testing.T, q queue) {
		q.send("g/1", "g/2")
		m := q.receive(broker.ReceiveOptions{Max: 1})[0]
		if m.Group != "g" {
			t.Fatalf("group %q", m.Group)
		}
		q.get("2")
	})
}

func TestFIFONeedsAGroup(t *testing.T) {
	virtual(t, []membroker.Preset{membroker.SQSFIFO}, func(t *testing.T, q queue) {
		ids, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("a")}, {Body: []byte("b"), Group: "g"}})
		want(t, err, broker.ErrUnsupported)
		if ids[0] != "" || ids[1] == "" || broker.ErrAt(err, 1) != nil {
			t.Fatal(ids, err)
		}
		q.get("b")
	})
}

func TestDeduplication(t *testing.T) {
	put := func(t *testing.T, q queue, body, id string) string {
		t.Helper()
		ids, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte(body), Group: "g", DedupID: id}})
		want(t, err, nil)
		return ids[0]
	}
	virtual(t, []membroker.Preset{membroker.SQSFIFO}, func(t *testing.T, q queue) {
		first := put(t, q, "a", "x")
		pass(time.Minute)
		if again := put(t, q, "swallowed", "x"); again != first {
			t.Fatalf("ids %q, %q", first, again)
		}
		q.ack(q.one("a"))
		pass(4*time.Minute - 1)
		// Kept after the ack, and counted from the first send.
		put(t, q, "swallowed", "x")
		put(t, q, "b", "y")
		q.ack(q.one("b"))
		pass(time.Nanosecond)
		if again := put(t, q, "c", "x"); again == first {
			t.Fatal("the window is over; the id is the old one")
		}
		put(t, q, "swallowed", "y")
		q.ack(q.one("c"))
		// Without an id nothing is swallowed; within a batch it is.
		put(t, q, "d", "")
		put(t, q, "d", "")
		if _, err := q.Send(t.Context(), []broker.Outgoing{{Body: []byte("e"), Group: "g", DedupID: "z"}, {Body: []byte("f"), Group: "g", DedupID: "z"}}); err != nil {
			t.Fatal(err)
		}
		q.get("d", "d", "e")
	})
	// Each id has a window of its own, however many have ended before it.
	virtual(t, []membroker.Preset{membroker.SQSFIFO}, func(t *testing.T, q queue) {
		for i := range 50 {
			put(t, q, "first", fmt.Sprint(i))
			pass(10 * time.Second)
		}
		for i := range 50 {
			// At this moment the window of i ends; those of the later ones are open.
			put(t, q, "second", fmt.Sprint(i))
			if i < 49 {
				put(t, q, "swallowed", fmt.Sprint(i+1))
			}
			pass(10 * time.Second)
		}
		q.depth(100, 0, 0)
	})
	virtual(t, []membroker.Preset{membroker.Memory, membroker.SQSStandard, membroker.PubSub}, func(t *testing.T, q queue) {
		put(t, q, "a", "x")
		put(t, q, "b", "x")
		q.get("a", "b")
	})
}
