package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/retry"
)

// Env is what a case of any suite has: its test, its rule, and what it is trying. A suite embeds it
// in what its own cases work with.
//
// One goroutine of a case writes Doing. The methods may be called by several.
type Env struct {
	testing.TB
	// Doing says what is being tried, before each failure; empty = the rule says it all.
	Doing string

	suite, rule string
}

// Errorf reports that the case's rule is broken, and how it was seen.
func (e *Env) Errorf(format string, args ...any) {
	e.Helper()
	e.TB.Error(e.failure(format, args))
}

// Fatalf is Errorf where the case cannot go on.
func (e *Env) Fatalf(format string, args ...any) {
	e.Helper()
	e.TB.Fatal(e.failure(format, args))
}

func (e *Env) failure(format string, args []any) string {
	doing := ""
	if e.Doing != "" {
		doing = "\nwhen: " + e.Doing
	}
	return fmt.Sprintf("rule: %s%s\nseen: %s", e.rule, doing, fmt.Sprintf(format, args...))
}

// Harnessf ends the case because of a mistake of the harness. It blames no rule.
func (e *Env) Harnessf(format string, args ...any) {
	e.Helper()
	e.TB.Fatalf("%s: %s", e.suite, fmt.Sprintf(format, args...))
}

// OK ends the case when a call that must succeed did not.
func (e *Env) OK(err error, call string) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s was answered: %v", call, err)
	}
}

// Want checks that a call was answered with an error that wraps want; nil = with none.
func (e *Env) Want(call string, got, want error) {
	e.Helper()
	if !SameErr(got, want) {
		e.Errorf("%s was answered %v, want %v", call, got, want)
	}
}

// SameErr reports whether got wraps want, or both are nil.
func SameErr(got, want error) bool {
	if want == nil {
		return got == nil
	}
	return errors.Is(got, want)
}

// SameLimits checks that Limits, asked for again, says the same.
func (e *Env) SameLimits(was, is any) {
	e.Helper()
	if was != is {
		e.Errorf("Limits were %+v and are %+v", was, is)
	}
}

// Pause lets d go by, and reports whether the case goes on.
func (e *Env) Pause(d time.Duration) bool { return retry.Rest(e.Context(), d) }

// Ended is a context that has ended.
func (e *Env) Ended() context.Context {
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	return ctx
}
