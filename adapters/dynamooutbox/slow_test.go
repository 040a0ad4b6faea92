package dynamooutbox

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// slow is a store whose renewals take their time.
type slow struct {
	dedupe.Store
	takes time.Duration
}

func (s slow) Renew(ctx context.Context, rs []dedupe.Renewal) ([]dedupe.Renewed, error) {
	pass(s.takes)
	return s.Store.Renew(ctx, rs)
}

// TestExtendBesideASlowRenewal: a delivery whose claim lasts long enough is not lost because the
// claim of another partition is renewed, and that takes its time.
func TestExtendBesideASlowRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := newOutbox(t, w.f.client(), testTable, testQueue, slow{w.leases, 2 * time.Second}, &Options{Partitions: 2})
		if err := b.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		var groups [2]string
		for i := 0; groups[0] == "" || groups[1] == ""; i++ {
			group := fmt.Sprint("group-", i)
			groups[partOf(group, 2)] = group
		}
		w.put(b, inGroup(groups[0], -1, "a"), inGroup(groups[1], -1, "b"))
		ms := receive(t, b, 10)
		if len(ms) != 2 {
			t.Fatalf("%q came", bodies(ms))
		}
		extend := func(ms ...*broker.Message) {
			t.Helper()
			var hs []broker.Hold
			for _, m := range ms {
				hs = append(hs, broker.Hold{Receipt: m.Receipt, For: 30 * time.Second})
			}
			if err := b.Extend(t.Context(), hs); err != nil {
				t.Error(err)
			}
		}
		pass(14 * time.Second)
		extend(ms[1]) // its claim lasts for 31 s
		pass(6 * time.Second)
		extend(ms[0]) // its claim is renewed, until 2 s after this
		pass(15 * time.Second)
		extend(ms[0], ms[1])
		ack(t, b, ms...)
	})
}

// TestManyAreHeld: what stands behind many messages that are in somebody's hands is found, although
// the relay is woken again and again meanwhile.
func TestManyAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(&Options{Partitions: 1})
		for range 6 {
			var many []broker.Outgoing
			for i := range 45 {
				many = append(many, keyed(fmt.Sprint("held-", i)))
			}
			w.put(b, many...)
		}
		for held := 0; held < 6*45; {
			ms := receive(t, b, 45)
			if held += len(ms); len(ms) == 0 {
				t.Fatalf("%d came", held)
			}
		}
		pass(time.Second)
		w.put(b, keyed("behind"))
		w.f.before = func(op string, _ object) {
			if op == "Query" {
				b.Wake()
			}
		}
		want(t, b, 10, "behind")
	})
}

// TestItemsOfTheFuture: the same message makes the same item whenever it is asked for, also where
// its maker's clock is ahead.
func TestItemsOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t).outbox(nil)
		ms := []broker.Outgoing{keyed("a"), inGroup("g", -1, "b"), inGroup("g", 7, "c")}
		if err := onceq.Fill(ms); err != nil {
			t.Fatal(err)
		}
		for i := range ms {
			ms[i].Meta.Created = ms[i].Meta.Created.Add(time.Hour)
		}
		first, err := b.Items(ms...)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		again, err := b.Items(ms...)
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Errorf("the items have changed: %v", err)
		}
	})
}
