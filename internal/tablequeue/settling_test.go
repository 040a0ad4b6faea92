package tablequeue

import (
	"errors"
	"slices"
	"testing"

	"github.com/onceq/onceq/broker"
)

// TestTwins: a receipt that stands in a batch twice is settled once, and both are answered alike.
func TestTwins(t *testing.T) {
	same := func(err error) error { return err }
	gone, there := Receipt{Seq: 7, N: 2}.String(), Receipt{Seq: 9, N: 1, Grouped: true}.String()
	rs := []broker.Receipt{broker.Receipt(there), broker.Receipt(gone), "7.02", broker.Receipt(there), broker.Receipt(gone), broker.Receipt(gone)}
	s := Acks(rs, same)
	es := s.Entries()
	if len(es) != 2 || es[0].I != 1 || es[1].I != 0 {
		t.Fatalf("the entries are %+v, want the first of each, in the order of the rows", es)
	}
	s.Fail(es[0].I, broker.ErrReceiptExpired)
	var failed *broker.BatchError
	if err := s.Answer(); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	var late []bool
	for i := range rs {
		late = append(late, errors.Is(failed.Errs[i], broker.ErrReceiptExpired))
	}
	if !slices.Equal(late, []bool{false, true, true, false, true, true}) {
		t.Errorf("late are %v", late)
	}
}
