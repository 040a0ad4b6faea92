package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/places"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// This file owns how the command ends: which error is which exit code, and what is said to who
// lacks a right. Main calls classify once, and each command's own code calls exit and usable, in
// the goroutine of Main. Nothing is kept, so nothing is locked.

// The exit codes.
const (
	exitDone        = 0
	exitFound       = 1 // the answer is: there is something
	exitUsage       = 2
	exitReach       = 3 // cannot be reached, or not allowed
	exitPartly      = 4
	exitRefused     = 5
	exitInterrupted = 130
)

// A coded error ends the command with its code. Without a text nothing is printed.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string {
	if c.err == nil {
		return ""
	}
	return c.err.Error()
}

func (c *coded) Unwrap() error { return c.err }

// exit is an error with a code and a text.
func exit(code int, format string, args ...any) error {
	return &coded{code, fmt.Errorf(format, args...)}
}

// exitWith gives an error its code; a nil error ends with the code alone.
func exitWith(code int, err error) error { return &coded{code, err} }

// classify is the code of an error, and what is said of it.
func classify(ctx context.Context, err error) (code int, text string) {
	c := (*coded)(nil)
	switch {
	case err == nil, errors.Is(err, out.ErrClosed):
		return exitDone, ""
	case errors.As(err, &c):
		return c.code, c.Error()
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return exitReach, "no answer in time (--timeout): " + err.Error()
	case ctx.Err() != nil:
		return exitInterrupted, "interrupted"
	case errors.Is(err, dedupe.ErrBadKey), errors.Is(err, dedupe.ErrBadRequest), errors.Is(err, broker.ErrUnsupported), errors.Is(err, broker.ErrTooLarge):
		return exitUsage, err.Error()
	case errors.Is(err, dedupe.ErrLeaseLost), errors.Is(err, dedupe.ErrBusy):
		return exitRefused, err.Error()
	}
	return exitReach, err.Error() + permission(err)
}

// permission is what an answer "not allowed" asks for.
func permission(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) && isDenied(api.ErrorCode()) {
		op := (*smithy.OperationError)(nil)
		service, operation := "", ""
		if errors.As(err, &op) {
			service, operation = strings.ToLower(op.ServiceID), op.OperationName
		}
		if operation == "" {
			return ""
		}
		var actions []string
		for _, a := range actionsOf(operation) {
			actions = append(actions, fmt.Sprintf("%q", service+":"+a))
		}
		return fmt.Sprintf("\nadd to the policy of whoever runs this:\n  {\"Effect\": \"Allow\", \"Action\": [%s], \"Resource\": %q}",
			strings.Join(actions, ", "), resourceOf(service, api.ErrorMessage()))
	}
	if text := grant(err); text != "" {
		return text
	}
	if places.IsDenied(err) {
		return "\nthe error names the role that is missing; give it to whoever runs this"
	}
	return ""
}

// notAllowed is how PostgreSQL says what a right is missing on.
var notAllowed = regexp.MustCompile(`permission denied for (table|sequence|schema|view|database) (\S+)`)

// grant is the statement that gives the right which PostgreSQL misses.
func grant(err error) string {
	state := (interface{ SQLState() string })(nil)
	if !errors.As(err, &state) || state.SQLState() != "42501" {
		return ""
	}
	m := notAllowed.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	what, rights := strings.ToUpper(m[1])+" "+m[2], ""
	switch m[1] {
	case "sequence", "schema":
		rights = "USAGE"
	case "database":
		rights = "CONNECT"
	default: // to look needs SELECT alone
		what, rights = m[2], "SELECT, INSERT, UPDATE, DELETE"
	}
	return fmt.Sprintf("\nas the owner, for whoever runs this (SELECT alone is enough to look):\n  GRANT %s ON %s TO ROLE;", rights, strings.TrimRight(what, ".,;:)"))
}

func isDenied(code string) bool {
	for _, c := range [...]string{"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "KmsAccessDenied", "KMS.AccessDeniedException"} {
		if code == c || strings.HasSuffix(code, "."+c) {
			return true
		}
	}
	return false
}

// actionsOf is the permission of an operation. A batch has none of its own.
func actionsOf(operation string) []string {
	switch operation {
	case "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch":
		return []string{strings.TrimSuffix(operation, "Batch")}
	case "StartMessageMoveTask":
		return []string{operation, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes"}
	}
	return []string{operation}
}

// resourceOf is the ARN that AWS's sentence names, else a pattern to fill in.
func resourceOf(service, message string) string {
	for word := range strings.FieldsSeq(message) {
		word = strings.Trim(word, `"'.,;()`)
		if strings.HasPrefix(word, "arn:aws") && strings.Contains(word, ":"+service+":") {
			return word
		}
	}
	if service == "dynamodb" {
		return "arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE"
	}
	return "arn:aws:" + service + ":REGION:ACCOUNT:QUEUE"
}

// usable turns the errors of ops that a caller mends into exit codes.
func usable(err error) error {
	switch {
	case err == nil, isCoded(err):
		return err
	case errors.Is(err, ops.ErrRefused):
		return exitWith(exitRefused, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), ops.ErrRefused.Error()+": ")))
	case errors.Is(err, ops.ErrNoRule), errors.Is(err, ops.ErrNoKey):
		return exit(exitFound, "%s", strings.TrimPrefix(err.Error(), "ops: "))
	case errors.Is(err, ops.ErrUnknownQueue), errors.Is(err, ops.ErrMissing), errors.Is(err, control.ErrInvalid):
		return exitWith(exitUsage, err)
	}
	return err
}

func isCoded(err error) bool {
	c := (*coded)(nil)
	return errors.As(err, &c) || errors.Is(err, out.ErrClosed)
}
