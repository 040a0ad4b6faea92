package sqlitebroker

import (
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
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
