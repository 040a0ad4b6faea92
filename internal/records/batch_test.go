package records

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/onceq/onceq/dedupe"
)

// removal is an entry of a call of Forget; an empty key is refused.
func removal(key string) dedupe.Forgotten {
	return dedupe.Forgotten{Key: dedupe.Key{Scope: "s", Key: key}}
}

// TestParts: an entry that is refused stands in no part, a part that is busy is busy alone, and any
// other error ends the call.
func TestParts(t *testing.T) {
	calls := NewCalls("store", 3)
	busy, boom := fmt.Errorf("part: %w", dedupe.ErrBusy), errors.New("boom")
	two := func(valid []int) [][]int { return slices.Collect(slices.Chunk(valid, 2)) }
	for _, c := range []struct {
		name   string
		keys   []string
		divide func([]int) [][]int
		part   int // the number of the part that fails; 0 = none
		err    error
		want   string // by entry: . answered, r refused, b busy; empty = the call fails
		parts  int
	}{
		{name: "none", divide: Whole, want: "-"},
		{name: "all are refused", keys: []string{"", ""}, divide: Whole, want: "rr"},
		{name: "one part", keys: []string{"a", "", "b"}, divide: Whole, want: ".r.", parts: 1},
		{name: "two parts", keys: []string{"a", "", "b", "c"}, divide: two, want: ".r..", parts: 2},
		{name: "the first is busy", keys: []string{"a", "", "b", "c"}, divide: two, part: 1, err: busy, want: "brb.", parts: 2},
		{name: "the second is busy", keys: []string{"a", "b", "", "c"}, divide: two, part: 2, err: busy, want: "..rb", parts: 2},
		{name: "the first fails", keys: []string{"a", "b", "c"}, divide: two, part: 1, err: boom, parts: 1},
	} {
		var fs []dedupe.Forgotten
		for _, k := range c.keys {
			fs = append(fs, removal(k))
		}
		parts := 0
		as, err := calls.Removals.Parts(fs, c.divide, func(part []int, as []error) error {
			if parts++; parts == c.part {
				return c.err
			}
			for _, i := range part {
				as[i] = nil
			}
			return nil
		})
		if c.want == "" {
			if !errors.Is(err, c.err) || as != nil {
				t.Errorf("%s: %v, %v", c.name, as, err)
			}
		} else if got := marks(as); err != nil || got != strings.Trim(c.want, "-") {
			t.Errorf("%s: answered %q, %v; want %q", c.name, got, err, c.want)
		}
		if parts != c.parts {
			t.Errorf("%s: %d parts, want %d", c.name, parts, c.parts)
		}
	}
}

func marks(as []error) (s string) {
	for _, err := range as {
		switch {
		case err == nil:
			s += "."
		case errors.Is(err, dedupe.ErrBusy):
			s += "b"
		case errors.Is(err, dedupe.ErrBadKey) && strings.HasPrefix(err.Error(), "store: "):
			s += "r"
		default:
			s += "?"
		}
	}
	return s
}

// TestEach: entries are answered in their order, those that are refused not at all.
func TestEach(t *testing.T) {
	var seen []string
	as := NewCalls("store", 3).Removals.Each([]dedupe.Forgotten{removal("b"), removal(""), removal("a")}, func(f *dedupe.Forgotten, err *error) {
		seen = append(seen, f.Key.Key)
		*err = dedupe.ErrBusy
	})
	if !slices.Equal(seen, []string{"b", "a"}) || marks(as) != "brb" {
		t.Errorf("%v, answers %q", seen, marks(as))
	}
}

// TestCalls: what each call refuses, and how a failure looks.
func TestCalls(t *testing.T) {
	c := NewCalls("store", 3)
	k := dedupe.Key{Scope: "s", Key: "k"}
	for what, err := range map[string]error{
		"a claim without a token": c.Claims.check(&dedupe.ClaimRequest{Key: k, TTL: 1}),
		"a renewal without a TTL": c.Renewals.check(&dedupe.Renewal{Key: k}),
		"a settlement to claimed": c.Settlements.check(&dedupe.Settlement{Key: k, To: dedupe.Claimed}),
	} {
		if !errors.Is(err, dedupe.ErrBadRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n, want := range map[int]error{3: nil, 4: dedupe.ErrResultSize} {
		b := make([]byte, n)
		renew := c.Renewals.check(&dedupe.Renewal{Key: k, TTL: 1, State: b, StateNo: 1})
		settle := c.Settlements.check(&dedupe.Settlement{Key: k, To: dedupe.Done, Result: b})
		if !errors.Is(renew, want) || !errors.Is(settle, want) {
			t.Errorf("%d bytes: %v and %v, want %v", n, renew, settle, want)
		}
	}
	boom := errors.New("boom")
	for _, err := range []error{c.Claims.Failed(boom).Err, c.Renewals.Failed(boom).Err, c.Settlements.Failed(boom).Err, c.Removals.Failed(boom)} {
		if !errors.Is(err, boom) {
			t.Errorf("a failure is answered %v", err)
		}
	}
}
