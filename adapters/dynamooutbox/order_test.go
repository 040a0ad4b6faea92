package dynamooutbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
)

// TestSequence: a group goes by the user's sequence, whatever the clocks of its producers say and
// in whatever order they commit.
func TestSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(nil)
		for i, seq := range []int{3, 11, 1, 2, 20} {
			m := inGroup("g", seq, fmt.Sprint(seq))
			m.Meta.Created = time.Now().Add(-time.Duration(i) * time.Hour)
			w.put(b, m)
		}
		want(t, b, 10, "1 2 3 11 20")
	})
}

// TestHeadWaits: a head that waits for its delay, its nack's or its send's, holds its group, and no
// other one. So does what is in somebody's hands.
func TestHeadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(&Options{Partitions: 1})
		late := inGroup("g", 1, "g1")
		late.Delay = time.Minute
		w.put(b, late, inGroup("g", 2, "g2"), inGroup("h", 1, "h1"), inGroup("h", 2, "h2"), inGroup("h", 3, "h3"))
		ms := want(t, b, 2, "h1 h2")
		want(t, b, 10, "")
		if err := b.Nack(t.Context(), []broker.Hold{{Receipt: ms[0].Receipt, For: 10 * time.Second}}); err != nil {
			t.Fatal(err)
		}
		ack(t, b, ms[1])
		want(t, b, 10, "")
		pass(10 * time.Second)
		ms = want(t, b, 10, "h1 h3")
		if ms[0].Attempt != 2 || ms[1].Attempt != 1 {
			t.Errorf("attempts %d and %d", ms[0].Attempt, ms[1].Attempt)
		}
		ack(t, b, ms...)
		pass(50 * time.Second)
		want(t, b, 10, "g1 g2")
	})
}

// TestLongGroup: a group of more than one page is sent without a pause of a Poll for each page.
func TestLongGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(&Options{Poll: 10 * time.Second})
		for i := range 350 {
			w.put(b, inGroup("g", i, fmt.Sprint(i)))
		}
		began := time.Now()
		for next := 0; next < 350; {
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 100, Wait: 20 * time.Second})
			if err != nil || len(ms) == 0 {
				t.Fatal(len(ms), err)
			}
			for _, m := range ms {
				if string(m.Body) != fmt.Sprint(next) {
					t.Fatalf("%s came where %d was due", m.Body, next)
				}
				next++
			}
			ack(t, b, ms...)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestPageEndsBetweenGroups: a group whose first message did not fit into a receive is not passed
// over.
func TestPageEndsBetweenGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(&Options{Partitions: 1, Poll: 10 * time.Second})
		for g := range 30 {
			w.put(b, inGroup(fmt.Sprint("g", g), 1, "a"), inGroup(fmt.Sprint("g", g), 2, "b"))
		}
		got, began := 0, time.Now()
		for got < 60 {
			ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 7, Wait: 20 * time.Second})
			if err != nil || len(ms) == 0 {
				t.Fatal(got, err)
			}
			got += len(ms)
			ack(t, b, ms...)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestAckDuringALook: what is deleted while a look reads it is not handed out again.
func TestAckDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(&Options{Partitions: 1})
		w.put(b, keyed("a"))
		m := want(t, b, 1, "a")[0]
		w.f.after = func(op string) {
			if op == "Query" {
				w.f.after = nil
				ack(t, b, m)
			}
		}
		want(t, b, 10, "")
	})
}

// TestLooks: an idle relay asks once a Poll and partition, consistently, and one that holds much
// asks less often.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(&Options{Partitions: 1})
		w.f.before = func(op string, in object) {
			if op == "Query" && in["ConsistentRead"] != true {
				t.Error("a look may miss what was written")
			}
		}
		idle := func(d time.Duration) (requests, read int) {
			requests, read = w.f.counts["Query"], w.f.read
			for end := time.Now().Add(d); time.Now().Before(end); {
				if ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Wait: 20 * time.Second}); len(ms) > 0 || err != nil {
					t.Fatal(bodies(ms), err)
				}
			}
			return w.f.counts["Query"] - requests, w.f.read - read
		}
		if n, _ := idle(time.Minute); n < 55 || n > 75 { // a stray now and then
			t.Errorf("%d requests in a minute, want about 60 and 12", n)
		}
		for i := range 1000 {
			w.put(b, keyed(fmt.Sprint(i)))
		}
		for range 10 {
			ms := receive(t, b, 100)
			hs := make([]broker.Hold, len(ms))
			for i, m := range ms {
				hs[i] = broker.Hold{Receipt: m.Receipt, For: time.Hour}
			}
			for len(hs) > 0 {
				if err := b.Nack(t.Context(), hs[:25]); err != nil {
					t.Fatal(err)
				}
				hs = hs[25:]
			}
		}
		if _, n := idle(2 * time.Minute); n > 14_000 {
			t.Errorf("%d items were read in two minutes for nothing, want 100 a second at most", n)
		}
	})
}

// TestStrays: what a producer with another number of partitions has put is found and sent.
func TestStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		other := newOutbox(t, w.f.client(), testTable, testQueue, nil, &Options{Partitions: 100})
		for i := range 200 {
			w.put(other, keyed(fmt.Sprintf("k%03d", i)))
		}
		to := &destination{}
		end := relay(t, w.outbox(&Options{Poll: 5 * time.Second}), to)
		pass(15 * time.Minute)
		if got := to.keys(); len(got) != 200 {
			t.Errorf("%d of 200 were sent", len(got))
		}
		end()
	})
}

// TestThrottling: a look and a delete that are throttled say so, and lose nothing.
func TestThrottling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(nil)
		w.put(b, keyed("a"), keyed("b"), keyed("c"))
		ms := receive(t, b, 10)
		w.f.leaveOut = 1
		err := b.Ack(t.Context(), []broker.Receipt{ms[0].Receipt, ms[1].Receipt, ms[2].Receipt})
		if !errors.Is(broker.ErrAt(err, 0), broker.ErrThrottled) || broker.ErrAt(err, 1) != nil || broker.ErrAt(err, 2) != nil {
			t.Fatal(err)
		}
		ack(t, b, ms[0])
		w.f.failing(t, func(op string, _ object) string {
			if op == "Query" {
				return "ProvisionedThroughputExceededException"
			}
			return ""
		})
		w.put(b, keyed("d"))
		if _, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1}); !errors.Is(err, broker.ErrThrottled) || !strings.Contains(err.Error(), testQueue) {
			t.Error(err)
		}
		w.f.failing(t, nil)
		want(t, b, 10, "d")
	})
}

// TestCutGroup: what is out, or waits, behind the place where a page was cut within its group stays
// known, although that round does not read it: its receipts hold, its delay is kept, and nobody
// gets it a second time.
func TestCutGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(&Options{Partitions: 1})
		w.put(b, inGroup("g", 20, "20"), inGroup("g", 21, "21"), inGroup("g", 22, "22"))
		ms := want(t, b, 10, "20 21 22")
		if err := b.Nack(t.Context(), []broker.Hold{{Receipt: ms[1].Receipt, For: time.Minute}}); err != nil {
			t.Fatal(err)
		}
		for i := range 10 { // of transactions that are committed late
			w.put(b, inGroup("g", i, fmt.Sprint(i)))
		}
		early := want(t, b, 1, "0") // the page is cut before 1
		pass(5 * time.Second)
		want(t, b, 1, "") // 0 is out: nothing of the group may go
		ack(t, b, ms[0], ms[2])
		ack(t, b, early...)
		began := time.Now()
		for i := 1; i < 10; i++ {
			ack(t, b, want(t, b, 1, fmt.Sprint(i))...)
		}
		want(t, b, 10, "")
		for time.Since(began) < time.Hour {
			if ms := receive(t, b, 10); len(ms) > 0 {
				if got := bodies(ms); got != "21" || ms[0].Attempt != 2 || time.Since(began) < 50*time.Second {
					t.Errorf("%q came after %v, delivery %d, want 21 again after its delay", got, time.Since(began), ms[0].Attempt)
				}
				break
			}
			pass(time.Second)
		}
		if time.Since(began) > 2*time.Minute {
			t.Error("what was given back has not come again")
		}
	})
}
