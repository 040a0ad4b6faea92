package verdict

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// Handled is how a run of a handler ended, in errors.
type Handled struct {
	Err      error // what the handler returned
	Panicked bool  // Err was made from a panic or a Goexit
	Cause    error // with which we cancelled the handler's context; nil = we did not
	Parks    bool  // as in Ending
	Joined   bool  // as in Ending
	Attempt  int
	Most     int // MaxAttempts; < 0 = unlimited
}

// Of is the verdict over h: what the table says, with the class, the text and the delay of the
// error. An error of the user's counts as a panic if its methods panic.
func Of(h Handled) (v Verdict) {
	defer func() {
		if p := recover(); p != nil {
			h.Err = Classed(Panicked, "the handler's error, of type %T, panicked when it was looked at: %v", h.Err, p)
			v = of(h)
		}
	}()
	return of(h)
}

func of(h Handled) Verdict {
	e, after := h.ending()
	v := Judge(e)
	if v.To == 0 || v.To == dedupe.Done {
		return v
	}
	if h.Err == nil {
		h.Err = ErrNotCommitted
		if v.To == dedupe.Parked { // for that reason alone, whatever has cut it off
			h.Cause = nil
		}
	}
	if v.Class == Postponed { // nothing has failed
		v.Delay = after
		return v
	}
	if v.Class == "" {
		v.Class = ClassOf(h.Err)
	}
	v.Text = Text(h.Err)
	if h.Cause != nil && !h.Panicked {
		v.Text = Clip(fmt.Sprintf("%v (cut off: %v)", SafeText(h.Err), h.Cause), MaxText)
	}
	if v.To == dedupe.Released && !v.Uncounted && !v.Backoff {
		v.Delay = after
	}
	return v
}

// ending is what the table needs to know of h. after is when the error asks to be tried again.
func (h *Handled) ending() (e Ending, after time.Duration) {
	e = Ending{Cut: cutBy(h.Cause), Parks: h.Parks, Joined: h.Joined, LastTry: h.Most > 0 && h.Attempt >= h.Most}
	if h.Err == nil {
		return e, 0
	}
	var notBegun *NotBegunError
	var unknown *UnknownError
	var permanent *PermanentError
	var retry *RetryError
	var postpone *PostponeError
	e.Returned = Error
	// Under Park Unknown wins over NotBegun: a middleware around a limiter may have done something.
	switch e.Unknown = errors.As(h.Err, &unknown); {
	case h.Panicked:
		e.Returned = Panic
	case errors.As(h.Err, &notBegun) && !(e.Unknown && e.Parks) && notBegun.Holds(h.Cause):
		e.Returned = NotBegun
	case errors.As(h.Err, &permanent):
		e.Returned = Permanent
	case errors.As(h.Err, &postpone):
		e.Returned, after = Postpone, postpone.After
	case errors.As(h.Err, &retry):
		e.Asks, after = true, retry.After
	}
	return e, after
}

// IsMarked reports whether a handler's error says itself what is to follow: one of the marks that
// an [Ending] is made of.
func IsMarked(err error) bool {
	e, _ := (&Handled{Err: err}).ending()
	return e.Unknown || e.Asks || e.Returned != Error
}

func cutBy(cause error) Cut {
	switch {
	case cause == nil:
		return Uncut
	case errors.Is(cause, ErrTaken):
		return ByTaker
	case errors.Is(cause, ErrTimeout):
		return ByTimeout
	case errors.Is(cause, ErrLeaseLost):
		return ByUnconfirmed
	case errors.Is(cause, ErrDraining):
		return ByDrain
	}
	return ByCaller
}
