package onceq

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
)

// ending is all that the verdict over a run depends on.
type ending struct {
	err      error // what the handler returned
	panicked bool  // err was made from a panic or a Goexit
	cut      error // the cause with which we cancelled the handler's context; nil = we did not
	parks    bool  // the policy is Park and the start was recorded
	joined   bool  // a transaction may have completed the job
	attempt  int
	most     int // MaxAttempts; < 0 = unlimited
}

// verdict is what a run's end is settled to, and what follows.
type verdict struct {
	to        dedupe.Status // 0 = nothing may be settled: the claim is somebody else's
	class     string
	text      string
	uncounted bool
	backoff   bool          // the delay comes from the job's Backoff
	refused   bool          // released, and its message becomes a dead letter all the same
	delay     time.Duration // of the nack, where to is Released
}

var errTxNotCommitted = classed(ClassTxNotCommitted, "onceq: CompleteTx was called, but the transaction did not commit")

// judge is the table of endings. The first rule that applies decides.
func judge(e ending) verdict {
	switch {
	case errors.Is(e.cut, errClaimLost):
		// The store said that the key is somebody else's: nothing we write could be right.
		return verdict{}
	case e.err == nil && !e.joined:
		return verdict{to: dedupe.Done}
	case e.err == nil && e.parks:
		// The handler says that all has happened, and the transaction did not commit: what of it was elsewhere must not
		// happen again.
		return verdict{to: dedupe.Parked, class: ClassTxNotCommitted, text: errTxNotCommitted.Error()}
	case e.err != nil && e.parks && (e.panicked || e.cut != nil || isUnknown(e.err)):
		// Nobody knows whether the effect happened, and the owner chose not to risk a second one.
		return verdict{to: dedupe.Parked, class: ClassInterrupted, text: text(e)}
	}
	if e.err == nil {
		e.err = errTxNotCommitted
	}
	v := verdict{class: class(e), text: text(e)}
	var permanent *permanentError
	var retry *retryError
	switch {
	case errors.As(e.err, &permanent):
		v.to = dedupe.Failed
	case errors.Is(e.cut, ErrDraining):
		v.to, v.uncounted = dedupe.Released, true
	case e.most > 0 && e.attempt >= e.most:
		v.to = dedupe.Failed
	case errors.As(e.err, &retry):
		v.to, v.delay = dedupe.Released, retry.d
	default:
		v.to, v.backoff = dedupe.Released, true
	}
	return v
}

func isUnknown(err error) bool {
	var u *unknownError
	return errors.As(err, &u)
}

// judged is judge, for an error of the user's whose methods may panic.
func judged(e ending) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			e.err = classed(ClassPanic, "the handler's error, of type %T, panicked when it was looked at: %v", e.err, p)
			v = judge(e)
		}
	}()
	return judge(e)
}

func class(e ending) string {
	var p *permanentError
	switch {
	case e.panicked:
		return ClassPanic
	case errors.As(e.err, &p):
	case errors.Is(e.cut, ErrTimeout):
		return ClassTimeout
	case errors.Is(e.cut, ErrLeaseLost):
		return ClassLease
	}
	return ClassOf(e.err)
}

func text(e ending) string {
	if e.cut != nil && !e.panicked {
		return clip(fmt.Sprintf("%v (cut off: %v)", safeText(e.err), e.cut), maxErrText)
	}
	return clip(safeText(e.err), maxErrText)
}

// safeText is err's text, also where its Error method panics.
func safeText(err error) (s string) {
	defer func() {
		if v := recover(); v != nil {
			s = fmt.Sprintf("%T: its Error method panicked", err)
		}
	}()
	return err.Error()
}
