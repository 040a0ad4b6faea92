package sqlitebroker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// TestReceipt: a receipt ends with the nack that used it, and is nothing to another queue of the
// same table.
func TestReceipt(t *testing.T) {
	f := openFile(t, tempFile(t))
	orders, mails := f.queue("orders", nil), f.queue("mails", nil)
	gone := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, broker.ErrReceiptExpired) {
			t.Errorf("%s was answered: %v", what, err)
		}
	}
	hold := func(m *broker.Message, d time.Duration) []broker.Hold {
		return []broker.Hold{{Receipt: m.Receipt, For: d}}
	}
	send(t, orders, bodies("", "1")...)
	m := one(t, orders)
	foreign := []broker.Receipt{m.Receipt}
	gone("an ack of another queue's receipt", mails.Ack(t.Context(), foreign))
	gone("a nack of it", mails.Nack(t.Context(), hold(m, 0)))
	gone("an extension of it", mails.Extend(t.Context(), hold(m, time.Minute)))
	if err := orders.Nack(t.Context(), hold(m, time.Hour)); err != nil {
		t.Fatal(err)
	}
	gone("a second nack", orders.Nack(t.Context(), hold(m, 0)))
	gone("an extension after the nack", orders.Extend(t.Context(), hold(m, time.Minute)))
	gone("an ack after the nack", orders.Ack(t.Context(), foreign))
	none(t, orders, "its delay is an hour")
	if n := scan[int](f, "SELECT count(*) FROM "+defaultTable); n != 1 {
		t.Errorf("%d messages are left", n)
	}
}

// TestHoldsOfTheirOwn: each entry of a nack or an extension has its own time, whatever the order of
// the rows.
func TestHoldsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFile(t, tempFile(t))
		q := f.queue("orders", nil)
		send(t, q, bodies("", "1", "2", "3")...)
		ms := take(t, q, 3)
		holds := []broker.Hold{{Receipt: ms[2].Receipt, For: time.Minute}, {Receipt: ms[0].Receipt, For: time.Hour}, {Receipt: ms[1].Receipt, For: time.Second}}
		for _, settle := range []func(context.Context, []broker.Hold) error{q.Extend, q.Nack} {
			begun := time.Now()
			if err := settle(t.Context(), holds); err != nil {
				t.Fatal(err)
			}
			for i, after := range []time.Duration{time.Hour, time.Second, time.Minute} {
				due := scan[string](f, "SELECT due FROM "+defaultTable+" ORDER BY seq LIMIT 1 OFFSET ?", i)
				if want := sqlitewriter.TimeText(begun.Add(after)); due != want {
					t.Errorf("message %d is due at %s, want %s", i+1, due, want)
				}
			}
		}
	})
}
