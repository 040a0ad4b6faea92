package dynamooutbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/broker"
)

// This file owns what errors become: the call and the queue are named, and DynamoDB's codes become
// the contract's sentinels. It locks nothing.

// The calls, as errors name them.
const (
	callReceive = "Receive"
	callAck     = "Ack"
	callNack    = "Nack"
	callExtend  = "Extend"
	callCreate  = "CreateTable"
	callDepth   = "Depth"
	callPeek    = "Peek"
)

// wrap names the call and the queue.
func (b *Outbox) wrap(call string, err error) error {
	return fmt.Errorf("dynamooutbox: %s: %s: %w", call, b.queue, err)
}

// explain says what was being done, in a form that errors.Is and errors.As see through.
func (b *Outbox) explain(ctx context.Context, call string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		// The SDK does not always name it.
		return b.wrap(call, fmt.Errorf("%w: %w", ctx.Err(), err))
	}
	return b.wrap(call, b.hint(err))
}

// hint adds the sentinel, and what to do about a refusal that repeating does not mend.
func (b *Outbox) hint(err error) error {
	if errors.As(err, new(*leaseError)) {
		return err // its codes are about the store
	}
	switch codeOf(err) {
	case "ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException", "Throttling":
		return fmt.Errorf("%w: %w", broker.ErrThrottled, err)
	case "ResourceNotFoundException":
		return fmt.Errorf("%w: %w (is there a table %s in the client's region? CreateTable makes it)", broker.ErrNotFound, err, b.table)
	case "AccessDeniedException":
		return fmt.Errorf("%w (the package's documentation lists the rights on table %s)", err, b.table)
	case "ValidationException":
		if isForeignKey(err) {
			return fmt.Errorf("%w (table %s must have the partition key %q and the sort key %q, both strings; was it made for something else?)",
				err, b.table, attrPK, attrSK)
		}
	}
	return err
}

// leaseError is an error of the store that holds the claims.
type leaseError struct{ error }

func (e *leaseError) Unwrap() error { return e.error }

func codeOf(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}

// isForeignKey reports whether the table's key is another one. DynamoDB Local says it in words of
// its own.
func isForeignKey(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	m := api.ErrorMessage()
	for _, text := range [...]string{"key element", "Missing the key", "conditions on the keys", "required keys", "key schema", "Query condition missed"} {
		if strings.Contains(m, text) {
			return true
		}
	}
	return false
}

// unsupported is an ErrUnsupported that says what was asked.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", broker.ErrUnsupported, fmt.Sprintf(format, args...))
}
