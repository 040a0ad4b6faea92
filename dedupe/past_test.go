package dedupe_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/dedupe"
)

// attempt is a usual one, n seconds after the first.
func attempt(n int) dedupe.Attempt {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC).Add(time.Duration(n) * time.Second)
	return dedupe.Attempt{
		Number: n + 1, Fence: 1_780_000_000_000_000 + uint64(n)*1000, Owner: "worker-7f9c:4711", Claimed: at,
		Ended: at.Add(time.Second / 2), End: dedupe.Released, Class: "timeout",
	}
}

func TestEncodePast(t *testing.T) {
	odd := attempt(3)
	odd.Fence, odd.End, odd.Reopened, odd.Class, odd.Err, odd.Number = 1, dedupe.Parked, true, "", "é\x00\xff", 0
	odd.Claimed = time.Unix(-5, 0).UTC()
	zero := dedupe.Attempt{End: dedupe.Claimed, Claimed: time.Time{}, Ended: time.Time{}}
	for name, past := range map[string][]dedupe.Attempt{
		"none":     nil,
		"one":      {attempt(0)},
		"some":     {attempt(0), odd, zero, attempt(1), attempt(2)},
		"the most": {attempt(0), attempt(1), attempt(2), attempt(3), attempt(4), attempt(5), attempt(6), attempt(7), attempt(8), attempt(9), attempt(10), attempt(11), attempt(12), attempt(13), attempt(14), attempt(15)},
	} {
		b := dedupe.EncodePast(past)
		if got := dedupe.DecodePast(b); !reflect.DeepEqual(got, past) || (b == nil) != (past == nil) {
			t.Errorf("%s: %d bytes came back as\n%+v, want\n%+v", name, len(b), got, past)
		}
	}
	one, two := dedupe.EncodePast([]dedupe.Attempt{attempt(0)}), dedupe.EncodePast([]dedupe.Attempt{attempt(0), attempt(1)})
	if len(one) > 60 || len(two)-len(one) > 16 {
		t.Errorf("an attempt takes %d bytes, another like it %d", len(one), len(two)-len(one))
	}
}

// TestPastBounds: texts are cut in whole characters; where the room is short, the texts of errors
// go first, and then attempts of the middle.
func TestPastBounds(t *testing.T) {
	long := func(n int, owner, class, err string) (past []dedupe.Attempt) {
		for i := range n {
			a := attempt(i)
			a.Owner, a.Class, a.Err = string(rune('a'+i%26))+owner, string(rune('a'+i%26))+class, err
			past = append(past, a)
		}
		return past
	}
	wide := strings.Repeat("é", 200)
	for _, c := range []struct {
		name             string
		past             []dedupe.Attempt
		kept, errs, last int // last: the Number of the newest
	}{
		{"two with long texts", long(2, wide, wide, wide), 2, 2, 2},
		{"sixteen with texts", long(16, "", "", wide), 16, 12, 16},
		{"forty with texts", long(40, "", "", wide), 16, 12, 40},
		{"forty with long owners", long(40, wide, "", wide), 13, 0, 40},
		{"forty with long owners and classes", long(40, wide, wide, wide), 7, 0, 40},
		{"forty without texts", long(40, "", "", ""), 16, 0, 40},
	} {
		given := append([]dedupe.Attempt(nil), c.past...)
		b := dedupe.EncodePast(c.past)
		got := dedupe.DecodePast(b)
		errs := 0
		for _, a := range got {
			if a.Err != "" {
				errs++
			}
			if len(a.Owner) > 64 || len(a.Class) > 64 || len(a.Err) > 60 || !utf8.ValidString(a.Owner+a.Class+a.Err) {
				t.Errorf("%s: texts of %d, %d and %d bytes", c.name, len(a.Owner), len(a.Class), len(a.Err))
			}
		}
		if len(b) > dedupe.MaxPastBytes || len(got) != c.kept || errs != c.errs || got[0].Number != 1 || got[len(got)-1].Number != c.last {
			t.Errorf("%s: %d bytes, %d attempts, %d texts, from %d to %d; want %d, %d, 1 to %d", c.name, len(b), len(got), errs,
				got[0].Number, got[len(got)-1].Number, c.kept, c.errs, c.last)
		}
		if !reflect.DeepEqual(given, c.past) {
			t.Errorf("%s: the caller's attempts were changed", c.name)
		}
		for i := 2; i < len(got); i++ {
			if got[i].Number != got[i-1].Number+1 {
				t.Errorf("%s: attempt %d behind %d; what is left out comes after the first", c.name, got[i].Number, got[i-1].Number)
			}
		}
	}
}

// TestDecodePastRefuses: what is not of this version is nothing.
func TestDecodePastRefuses(t *testing.T) {
	good := dedupe.EncodePast([]dedupe.Attempt{attempt(0), attempt(1)})
	cases := map[string][]byte{
		"empty": {}, "another version": append([]byte{2}, good[1:]...), "too long": append(bytes.Clone(good), make([]byte, 1024)...),
		"a status of none": {1, 0, 1, 2, 2, 2}, "an unknown flag": append([]byte{1, good[1] | 1<<7}, good[2:]...),
		"a long text":                   {1, 2, 1, 2, 2, 2, 65},
		"a year that JSON cannot write": {1, 2 | 1<<4 | 1<<5, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0},
	}
	var many []byte
	for range 17 {
		many = append(many, 1|1<<4|1<<5, 1, 2, 2, 2)
	}
	cases["seventeen"] = append([]byte{1}, many...)
	for name, b := range cases {
		if past := dedupe.DecodePast(b); past != nil {
			t.Errorf("%s: %+v", name, past)
		}
	}
	whole := 0
	for n := range good {
		if dedupe.DecodePast(good[:n]) != nil {
			whole++ // just behind the first
		}
	}
	if whole != 1 {
		t.Errorf("%d beginnings of two attempts were read, want the one that is one attempt", whole)
	}
}

// FuzzPast: any bytes are read within the bounds, and what was read is written and read again as
// the same.
func FuzzPast(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(dedupe.EncodePast([]dedupe.Attempt{attempt(0)}))
	a := attempt(1)
	a.Err, a.Owner = "no answer", "another"
	f.Add(dedupe.EncodePast([]dedupe.Attempt{attempt(0), a, attempt(2)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		past := dedupe.DecodePast(b)
		if len(past) > dedupe.MaxPast {
			t.Fatalf("%d attempts", len(past))
		}
		again := dedupe.EncodePast(past)
		if len(again) > dedupe.MaxPastBytes {
			t.Fatalf("%d bytes", len(again))
		}
		// Numbers may stand there longer than they need, and texts in halves of characters.
		if second := dedupe.EncodePast(dedupe.DecodePast(again)); len(past) > 0 && (again == nil || !bytes.Equal(again, second)) {
			t.Fatalf("%x became %x and %x", b, again, second)
		}
	})
}
