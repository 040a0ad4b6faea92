package tablequeue

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
)

func TestReceipts(t *testing.T) {
	for _, r := range []Receipt{{1, 1, false}, {1, 1, true}, {1 << 62, 1<<31 - 1, true}, {-3, 0, false}} {
		if got, ok := ParseReceipt(broker.Receipt(r.String())); !ok || got != r {
			t.Errorf("%v comes back as %v, %v", r, got, ok)
		}
	}
	for _, text := range []string{
		"", "g", ".", "1", "1.", ".1", "1.1gg", "+1.1", "01.1", "1.01", "1.1 ", " 1.1", "1.1.1", "1.2147483648", "9223372036854775808.1", "0x1.1", "1_0.1",
	} {
		if r, ok := ParseReceipt(broker.Receipt(text)); ok {
			t.Errorf("%q is taken for %v", text, r)
		}
	}
}

func wrapped(err error) error { return errors.Join(errors.New("orders"), err) }

// TestSettling: rows are named once and in order, and what becomes of one is the answer of all
// entries that have its receipt.
func TestSettling(t *testing.T) {
	receipts := []broker.Receipt{"7.1", "3.2g", "7.1", "nonsense", "3.1", "7.1", "3.2g"}
	for name, c := range map[string]struct {
		expired []Receipt
		want    []bool // whether the entry fails
	}{
		"all are settled":      {nil, []bool{3: true, 6: false}},
		"the one with twins":   {[]Receipt{{7, 1, false}}, []bool{true, false, true, true, false, true, false}},
		"the one with one":     {[]Receipt{{3, 2, true}}, []bool{false, true, false, true, false, false, true}},
		"the one without":      {[]Receipt{{3, 1, false}}, []bool{3: true, 4: true, 6: false}},
		"everything but these": {[]Receipt{{3, 1, false}, {3, 2, true}, {7, 1, false}}, []bool{true, true, true, true, true, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Acks(receipts, wrapped)
			var rows []Receipt
			for _, e := range s.Entries() {
				rows = append(rows, e.Receipt)
				if receipts[e.I] != broker.Receipt(e.String()) {
					t.Errorf("entry %d is %s", e.I, e)
				}
				if slices.Contains(c.expired, e.Receipt) {
					s.Fail(e.I, broker.ErrReceiptExpired)
				}
			}
			if want := []Receipt{{3, 1, false}, {3, 2, true}, {7, 1, false}}; !slices.Equal(rows, want) {
				t.Errorf("the rows are %v, want %v", rows, want)
			}
			err := s.Answer()
			for i, fails := range c.want {
				if got := broker.ErrAt(err, i); errors.Is(got, broker.ErrReceiptExpired) != fails {
					t.Errorf("entry %d, %s, was answered: %v", i, receipts[i], got)
				}
			}
		})
	}
}

// TestRefusedHolds: a time that cannot be is the entry's error, and no other's.
func TestRefusedHolds(t *testing.T) {
	holds := func(ds ...time.Duration) (hs []broker.Hold) {
		for i, d := range ds {
			hs = append(hs, broker.Hold{Receipt: broker.Receipt(Receipt{int64(i), 1, false}.String()), For: d})
		}
		return hs
	}
	for name, c := range map[string]struct {
		s       Settling
		refused []int
	}{
		"nacks":      {Nacks(holds(0, -1, Longest, Longest+1, 1), wrapped), []int{1, 3}},
		"extensions": {Extensions(holds(MinHold, MinHold-1, MaxHold, MaxHold+1, 0, -1), wrapped), []int{1, 3, 4, 5}},
	} {
		left := c.s.Entries()
		err := c.s.Answer()
		for i := range c.s.N {
			refused := slices.Contains(c.refused, i)
			if errors.Is(broker.ErrAt(err, i), broker.ErrUnsupported) != refused {
				t.Errorf("%s: entry %d was answered: %v", name, i, broker.ErrAt(err, i))
			}
			if slices.ContainsFunc(left, func(e Entry) bool { return e.I == i }) == refused {
				t.Errorf("%s: entry %d is settled: %v", name, i, !refused)
			}
		}
	}
}
