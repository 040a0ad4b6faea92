package verdict

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// The rule: what a handler's error says, and what cut the handler off, reach the table of endings.
func TestOf(t *testing.T) {
	err := errors.New("refused")
	released := func(class string) Verdict { return Verdict{To: dedupe.Released, Backoff: true, Class: class} }
	parked := Verdict{To: dedupe.Parked, Class: Interrupted}
	for _, c := range []struct {
		name string
		h    Handled
		want Verdict // without its text
	}{
		{"nil", Handled{}, Verdict{To: dedupe.Done}},
		{"an error", Handled{Err: err}, released("error")},
		{"an error, park", Handled{Err: err, Parks: true}, released("error")},
		{"the last attempt", Handled{Err: err, Attempt: 3, Most: 3}, Verdict{To: dedupe.Failed, Class: "error"}},
		{"no last attempt", Handled{Err: err, Attempt: 3, Most: -1}, released("error")},
		{"a panic", Handled{Err: Classed(Panicked, "boom"), Panicked: true}, released(Panicked)},
		{"a panic of a permanent error", Handled{Err: &PermanentError{err}, Panicked: true}, released(Panicked)},
		{"not begun", Handled{Err: &NotBegunError{Err: err}}, Verdict{To: dedupe.Released, Uncounted: true, Class: "error"}},
		{"not begun, if it is cut off", Handled{Err: &NotBegunError{err, true}, Parks: true}, released("error")},
		{"not begun, if it is cut off, and it is", Handled{Err: &NotBegunError{err, true}, Parks: true, Cause: ErrTimeout}, Verdict{To: dedupe.Released, Uncounted: true, Class: "error"}},
		{"not begun, and its effect is unknown", Handled{Err: &UnknownError{Err: &NotBegunError{err, true}}, Parks: true, Cause: ErrDraining}, Verdict{To: dedupe.Parked, Class: Interrupted}},
		{"not begun, and its effect is unknown, rerun", Handled{Err: &UnknownError{Err: &NotBegunError{err, true}}, Cause: ErrDraining}, Verdict{To: dedupe.Released, Uncounted: true, Class: "error"}},
		{"postponed before it began", Handled{Err: &NotBegunError{&PostponeError{err, time.Hour}, true}}, Verdict{To: dedupe.Released, Uncounted: true, Class: Postponed, Delay: time.Hour}},
		{"postponed before it began, drained", Handled{Err: &NotBegunError{&PostponeError{err, time.Hour}, true}, Parks: true, Cause: ErrDraining}, Verdict{To: dedupe.Released, Uncounted: true, Class: "error"}},
		{"postponed, timed out, park", Handled{Err: &PostponeError{err, time.Hour}, Parks: true, Cause: ErrTimeout}, parked},
		{"permanent", Handled{Err: &PermanentError{err}}, Verdict{To: dedupe.Failed, Class: Final}},
		{"unknown", Handled{Err: &UnknownError{err}, Parks: true}, parked},
		{"postponed", Handled{Err: &PostponeError{After: time.Hour}}, Verdict{To: dedupe.Released, Uncounted: true, Class: Postponed, Delay: time.Hour}},
		{"retry after", Handled{Err: &RetryError{err, time.Minute}}, Verdict{To: dedupe.Released, Class: "error", Delay: time.Minute}},
		{"retry after, wrapped", Handled{Err: fmt.Errorf("call: %w", &RetryError{err, time.Minute})}, Verdict{To: dedupe.Released, Class: "error", Delay: time.Minute}},

		{"taken", Handled{Err: err, Cause: ErrTaken}, Verdict{}},
		{"timed out", Handled{Err: err, Cause: ErrTimeout}, released(TimedOut)},
		{"not confirmed", Handled{Err: err, Cause: ErrUnanswered}, released(Unconfirmed)},
		{"drained", Handled{Err: err, Cause: ErrDraining}, Verdict{To: dedupe.Released, Uncounted: true, Class: "error"}},
		{"the caller has gone", Handled{Err: err, Cause: errors.New("gone")}, released("error")},
		{"the caller has gone, park", Handled{Err: err, Cause: errors.New("gone"), Parks: true}, parked},
	} {
		got := Of(c.h)
		got.Text = ""
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
