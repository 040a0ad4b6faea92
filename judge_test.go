package onceq

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/dedupe"
)

// userError is an error of a user's, as bad as one can be.
type userError struct {
	text, class string
	panics      bool
}

func (e *userError) Error() string {
	if e.panics {
		panic(e.text)
	}
	return e.text
}

func (e *userError) ErrorClass() string {
	if e.panics {
		panic(e.class)
	}
	return e.class
}

// FuzzVerdict holds the table of endings against what must be true of every ending.
func FuzzVerdict(f *testing.F) {
	f.Add(uint8(0), uint8(0), "", "", int64(0), false, false, false, 1, 10)
	f.Add(uint8(1), uint8(1), "text", "class", int64(5), true, true, false, 10, 10)
	f.Add(uint8(2), uint8(2), "\xff\x00", "\xff\x00", int64(-1), false, true, true, 3, -1)
	f.Add(uint8(34), uint8(1), "é", "€", int64(1), false, false, true, 1, 1)
	f.Add(uint8(8), uint8(0), "a", "b", int64(0), false, false, false, 3, 3)
	f.Add(uint8(4), uint8(0), "a", "b", int64(-1), false, false, false, 1, 0)
	f.Add(uint8(9), uint8(4), "", "", int64(1), false, true, false, 2, 1)
	f.Add(uint8(0), uint8(5), "", "", int64(1), false, true, true, 2, 1)
	f.Add(uint8(66), uint8(0), "a", "b", int64(1), false, true, false, 1, 10)
	f.Add(uint8(72), uint8(0), "a", "b", int64(1), false, false, true, 1, 1)
	f.Add(uint8(65), uint8(2), "a", "b", int64(1), false, true, false, 1, 1)
	cuts := []error{nil, ErrTimeout, ErrDraining, errClaimLost, errUnanswered, errDeliveryLost}
	f.Fuzz(func(t *testing.T, kind, cut uint8, text, class string, delay int64, panicked, parks, joined bool, attempt, most int) {
		e := ending{panicked: panicked, parks: parks, joined: joined, attempt: attempt, most: most, cut: cuts[int(cut)%len(cuts)]}
		permanent, retry, unknown := false, false, false
		if kind != 0 || panicked {
			if kind&32 != 0 { // longer than what is kept
				text, class = strings.Repeat(text, maxErrText+1), strings.Repeat(class, maxClass+1)
			}
			e.err = &userError{text, class, kind&1 != 0}
			if kind&2 != 0 {
				e.err, permanent = Permanent(e.err), true
			}
			if kind&4 != 0 {
				e.err, retry = RetryAfter(time.Duration(delay), e.err), true
			}
			if kind&64 != 0 {
				e.err, unknown = Unknown(e.err), true
			}
			if kind&8 != 0 {
				e.err = errors.Join(errors.New("joined"), e.err)
			}
			if kind&16 != 0 && kind&1 == 0 { // a wrapper asks for the text at once
				e.err = fmt.Errorf("wrapped: %w", e.err)
			}
		}
		v := judged(e)
		cutBy := func(cause error) bool { return errors.Is(e.cut, cause) }
		is := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Errorf("%+v\nis judged %+v\n%s: %v, want %v", e, v, what, got, want)
			}
		}
		only := func(what string, got, may bool) {
			t.Helper()
			if got && !may {
				t.Errorf("%+v\nis judged %+v\n%s", e, v, what)
			}
		}
		lost := cutBy(errClaimLost)
		broken := kind&1 != 0 && e.err != nil // its methods panic, and it counts as an error of class panic
		is("nothing is settled", v == verdict{}, lost)
		is("done", v.to == dedupe.Done, !lost && e.err == nil && !joined)
		is("parked", v.to == dedupe.Parked, !lost && parks && (e.err == nil && joined || e.err != nil && (panicked || e.cut != nil || unknown && !broken)))
		only("uncounted, and no drain", v.uncounted, cutBy(ErrDraining) && v.to == dedupe.Released)
		only("released, and no attempt is left", v.to == dedupe.Released && !v.uncounted, most <= 0 || attempt < most)
		only("failed, and neither permanent nor out of attempts", v.to == dedupe.Failed, permanent || most > 0 && attempt >= most)
		only("permanent, and released", v.to == dedupe.Released, !permanent || broken)
		only("a delay, and no RetryAfter", v.delay != 0, retry && v.to == dedupe.Released)
		only("backoff, and not released", v.backoff, v.to == dedupe.Released && !v.uncounted)
		only("backoff against RetryAfter", v.backoff, !retry || broken)
		only("a negative delay", v.delay < 0, false)
		is("a class", v.class != "", v.to != 0 && v.to != dedupe.Done)
		for _, s := range []struct {
			text string
			most int
		}{{v.class, maxClass}, {v.text, maxErrText}} {
			only("a text that no column holds", len(s.text) > s.most || !utf8.ValidString(s.text) || strings.Contains(s.text, "\x00"), false)
		}
		if v.to != dedupe.Done && !lost && e.err == nil {
			is("the transaction's class", v.class == ClassTxNotCommitted, e.cut == nil || parks || cutBy(ErrDraining))
		}
	})
}
