package records

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/onceq/onceq/dedupe"
)

func TestPages(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name               string
		there, limit, most int // most: where the loop stops; 0 = nowhere
		fails              int // the call that fails; 0 = none
		want, calls        int
		err                error
	}{
		{name: "none", calls: 1},
		{name: "part of a page", there: 2, want: 2, calls: 1},
		{name: "whole pages", there: 6, want: 6, calls: 3},
		{name: "whole pages and a part", there: 7, want: 7, calls: 3},
		{name: "limit within a page", there: 7, limit: 2, want: 2, calls: 1},
		{name: "limit at a page's end", there: 7, limit: 6, want: 6, calls: 2},
		{name: "limit beyond a page", there: 7, limit: 5, want: 5, calls: 2},
		{name: "limit beyond all", there: 7, limit: 9, want: 7, calls: 3},
		{name: "left early", there: 7, most: 4, want: 4, calls: 2},
		{name: "an error", there: 7, fails: 2, want: 3, calls: 2, err: boom},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			var got []string
			var err error
			for r, e := range Pages(3, dedupe.Query{Limit: c.limit}, func(last dedupe.Key, n int) (page []*dedupe.Record, err error) {
				if calls++; calls == c.fails {
					return nil, boom
				}
				for i := range c.there {
					if k := strconv.Itoa(i); k > last.Key && len(page) < n {
						page = append(page, &dedupe.Record{Key: dedupe.Key{Scope: "s", Key: k}})
					}
				}
				return page, nil
			}) {
				if err = e; e != nil {
					continue
				}
				if got = append(got, r.Key.Key); len(got) == c.most {
					break
				}
			}
			if len(got) != c.want || !slices.IsSorted(got) || calls != c.calls || !errors.Is(err, c.err) {
				t.Errorf("%q in %d calls, %v; want %d in %d, %v", got, calls, err, c.want, c.calls, c.err)
			}
		})
	}
}

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		result any
		want   string
		err    error
	}{
		{nil, "", nil},
		{[]byte{}, "", nil},
		{[]byte("raw"), "raw", nil},
		{map[string]int{"a": 1}, `{"a":1}`, nil},
		{"", `""`, nil},
		{"123456", "", dedupe.ErrResultSize},
		{[]byte("12345678"), "", dedupe.ErrResultSize},
	} {
		b, err := Encode(c.result, 7)
		if !errors.Is(err, c.err) || err == nil && string(b) != c.want || err == nil && (b == nil) != (c.result == nil) {
			t.Errorf("Encode(%v) is %q, %v; want %q, %v", c.result, b, err, c.want, c.err)
		}
	}
	if _, err := Encode(func() {}, 7); err == nil {
		t.Error("a function was encoded")
	}
}
