package webonceq

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/ops"
)

// This file owns how an error is told: with which status, in which words, and to whom. All are
// functions of their arguments.

// hidden stands where a text is that not everybody may read.
const hidden = "(hidden: it needs the permission “bodies”)"

var errNoScopes = errors.New("no worker was seen lately, so nobody knows its scopes")

func statusOf(err error) int {
	said, conflict, price, canary, scan := (*sayError)(nil), (*ops.ConflictError)(nil), (*control.CostError)(nil), (*dlq.CanaryError)(nil), (*ops.ScanError)(nil)
	switch {
	case errors.As(err, &said):
		return said.status
	case errors.Is(err, ops.ErrUnknownQueue), errors.Is(err, ops.ErrNoKey), errors.Is(err, dlq.ErrNoLetter), errors.Is(err, ops.ErrNoRule):
		return http.StatusNotFound
	case errors.As(err, &conflict), errors.As(err, &price), errors.As(err, &canary), errors.As(err, &scan), errors.Is(err, ops.ErrRefused), errors.Is(err, ops.ErrNoAudit),
		errors.Is(err, control.ErrInvalid), errors.Is(err, dlq.ErrPlan), errors.Is(err, dedupe.ErrLeaseLost), errors.Is(err, dedupe.ErrBadKey), errors.Is(err, ops.ErrMissing),
		errors.Is(err, ops.ErrPlanUsed), errors.Is(err, ops.ErrNoAct), errors.Is(err, ops.ErrNotWatched):
		return http.StatusConflict
	case errors.Is(err, ops.ErrTooMany):
		return http.StatusTooManyRequests
	case errors.Is(err, ops.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway // what is behind the page has failed: a queue, or a store
}

// A sayError has the status of its answer.
type sayError struct {
	status int
	err    error
}

func (e *sayError) Error() string { return e.err.Error() }
func (e *sayError) Unwrap() error { return e.err }

// refusedAct is what an act's error is told with: 409, or 429.
func refusedAct(text string) error { return &sayError{http.StatusConflict, errors.New(text)} }

// sentence is an error as a screen shows it: without the package's name, and safe.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, name := range [...]string{"ops: ", "dlq: ", "control: ", "webonceq: ", "refused: "} {
		text = strings.TrimPrefix(text, name)
	}
	return dlq.Printable(cut(text, 1000))
}

// trouble is a service's error. Its text may have addresses and names, so not everybody reads it.
func (a *ask) trouble(err error) string {
	if !a.can(Bodies) {
		return "it did not answer."
	}
	return sentence(err)
}

// told is an error beside a button, or on a screen of its own. Of those that are not onceq's own
// word, trouble hides the text.
func (a *ask) told(err error) string {
	if p := (*ops.PausedError)(nil); errors.As(err, &p) && p.AllQueues && a.who.Queues != nil {
		return sentence(&ops.PausedError{What: p.What, Until: p.Until}) // see ruleSeen
	}
	switch {
	case a.can(Bodies) || err == nil:
	case errors.Is(err, errNoScopes):
	case errors.Is(err, ops.ErrNoAudit):
		return sentence(ops.ErrNoAudit)
	case statusOf(err) == http.StatusBadGateway, statusOf(err) == http.StatusGatewayTimeout:
		return "a queue or a store has failed, or does not answer; the text needs the permission “bodies”"
	}
	return sentence(err)
}
