package letter_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/letter"
	"github.com/onceq/onceq/internal/letter/lettertest"
)

func TestInParts(t *testing.T) {
	for _, c := range []struct {
		name    string
		n, most int
		want    string
	}{
		{"all at once", 10, 10, "[0-10]"},
		{"halves", 10, 5, "[0-10 0-5 5-10]"},
		{"an odd number", 5, 2, "[0-5 0-2 2-5 2-3 3-5]"},
		{"one by one", 3, 1, "[0-3 0-1 1-3 1-2 2-3]"},
		{"one that is always too much", 2, 0, "[0-2 0-1 1-2]"},
		{"one", 1, 1, "[0-1]"},
		{"none", 0, 1, "[0-0]"},
	} {
		var calls []string
		letter.InParts(c.n, func(from, to int) bool {
			calls = append(calls, fmt.Sprintf("%d-%d", from, to))
			return to-from > c.most
		})
		if got := fmt.Sprint(calls); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestIsTooMuch(t *testing.T) {
	large := fmt.Errorf("%w: a test", broker.ErrTooLarge)
	for _, c := range []struct {
		err  error
		n    int
		want bool
	}{
		{large, 2, true},
		{broker.ErrUnsupported, 2, true},
		{broker.ErrBadMeta, 2, true},
		{large, 1, false},
		{&broker.BatchError{Errs: []error{large, nil}}, 2, false},
		{broker.ErrThrottled, 2, false},
		{errors.New("another"), 2, false},
		{nil, 2, false},
	} {
		if got := letter.IsTooMuch(c.err, c.n); got != c.want {
			t.Errorf("%v for %d messages: %t, want %t", c.err, c.n, got, c.want)
		}
	}
}

// Where the letter has no metadata of ours there is nothing to shrink, and Bare takes nothing away
// from one that was made.
func TestShrink(t *testing.T) {
	for _, c := range []struct {
		name string
		out  broker.Outgoing
		fit  letter.Fit
		want bool
	}{
		{"trimmed", letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), letter.Whole), letter.Trimmed, true},
		{"folded", letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), letter.Whole), letter.Folded, true},
		{"bare", letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), letter.Whole), letter.Bare, false},
		{"without metadata", letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), letter.Bare), letter.Trimmed, false},
		{"of a job that has not failed", broker.Outgoing{Meta: &broker.Meta{ID: "j"}}, letter.Trimmed, false},
	} {
		had := c.out.Meta
		if got := letter.Shrink(&c.out, c.fit); got != c.want || c.out.Meta != had {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
		if c.want {
			made := letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), c.fit)
			if got, want := broker.EncodeMeta(c.out.Meta), broker.EncodeMeta(made.Meta); got != want || len(c.out.Attributes) != len(made.Attributes) {
				t.Errorf("%s: %s, want %s", c.name, got, want)
			}
		}
	}
}

func TestAttributes(t *testing.T) {
	folded := letter.Make(lettertest.Message(), lettertest.Key(), lettertest.Dead(), letter.Folded)
	got := letter.Attributes(map[string]string{"tenant": "new", "more": "1"}, folded.Meta)
	if want := map[string]string{"tenant": "new", "more": "1", "traceparent": "00-1-2-01"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(folded.Meta.Dead.Attributes) != 2 || folded.Meta.Dead.Attributes["tenant"] != "acme" {
		t.Errorf("the letter's own were changed: %v", folded.Meta.Dead.Attributes)
	}
	if got := letter.Attributes(nil, nil); got != nil {
		t.Errorf("%v without metadata", got)
	}
}
