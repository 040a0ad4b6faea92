package verdict

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
	cuts := []error{nil, ErrTimeout, ErrDraining, ErrTaken, ErrUnanswered, ErrDeliveryLost}
	f.Fuzz(func(t *testing.T, kind, cut uint8, text, class string, delay int64, panicked, parks, joined bool, attempt, most int) {
		e := Handled{Panicked: panicked, Parks: parks, Joined: joined, Attempt: attempt, Most: most, Cause: cuts[int(cut)%len(cuts)]}
		permanent, retry, unknown := false, false, false
		if kind != 0 || panicked {
			if kind&32 != 0 { // longer than what is kept
				text, class = strings.Repeat(text, MaxText+1), strings.Repeat(class, MaxClass+1)
			}
			e.Err = &userError{text, class, kind&1 != 0}
			if kind&2 != 0 {
				e.Err, permanent = &PermanentError{e.Err}, true
			}
			if kind&4 != 0 {
				e.Err, retry = &RetryError{e.Err, max(0, time.Duration(delay))}, true
			}
			if kind&64 != 0 {
				e.Err, unknown = &UnknownError{e.Err}, true
			}
			if kind&8 != 0 {
				e.Err = errors.Join(errors.New("joined"), e.Err)
			}
			if kind&16 != 0 && kind&1 == 0 { // a wrapper asks for the text at once
				e.Err = fmt.Errorf("wrapped: %w", e.Err)
			}
		}
		v := Of(e)
		cutBy := func(cause error) bool { return errors.Is(e.Cause, cause) }
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
		lost := cutBy(ErrTaken)
		broken := kind&1 != 0 && e.Err != nil // its methods panic, and it counts as an error of class panic
		is("nothing is settled", v == (Verdict{}), lost)
		is("done", v.To == dedupe.Done, !lost && e.Err == nil && !joined)
		is("parked", v.To == dedupe.Parked, !lost && parks && (e.Err == nil && joined || e.Err != nil && (panicked || e.Cause != nil || unknown)))
		only("uncounted, and no drain", v.Uncounted, cutBy(ErrDraining) && v.To == dedupe.Released)
		only("released, and no attempt is left", v.To == dedupe.Released && !v.Uncounted, most <= 0 || attempt < most)
		only("failed, and neither permanent nor out of attempts", v.To == dedupe.Failed, permanent || most > 0 && attempt >= most)
		only("permanent, and released", v.To == dedupe.Released, !permanent || broken)
		only("a delay, and no RetryAfter", v.Delay != 0, retry && v.To == dedupe.Released)
		only("backoff, and not released", v.Backoff, v.To == dedupe.Released && !v.Uncounted)
		only("backoff against RetryAfter", v.Backoff, !retry || broken)
		only("a negative delay", v.Delay < 0, false)
		is("a class", v.Class != "", v.To != 0 && v.To != dedupe.Done)
		for _, s := range []struct {
			text string
			most int
		}{{v.Class, MaxClass}, {v.Text, MaxText}} {
			only("a text that no column holds", len(s.text) > s.most || !utf8.ValidString(s.text) || strings.Contains(s.text, "\x00"), false)
		}
		if v.To != dedupe.Done && !lost && e.Err == nil {
			is("the transaction's class", v.Class == NotCommitted, e.Cause == nil || parks || cutBy(ErrDraining))
		}
	})
}
