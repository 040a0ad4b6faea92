package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/onceq/onceq/dedupe"
)

// isConflict reports whether a transaction holds the item: nothing was written.
func isConflict(err error) bool {
	return errors.As(err, new(*types.TransactionConflictException)) || errors.As(err, new(*types.ReplicatedWriteConflictException))
}

func isInvalid(err error, texts ...string) bool {
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "ValidationException" {
		return false
	}
	for _, t := range texts {
		if strings.Contains(api.ErrorMessage(), t) {
			return true
		}
	}
	return false
}

// isTooLarge reports whether the item would be larger than DynamoDB holds: nothing was written.
func isTooLarge(err error) bool {
	var api smithy.APIError
	return isInvalid(err, "") && errors.As(err, &api) && saysTooLarge(api.ErrorMessage())
}

func saysTooLarge(message string) bool {
	return strings.Contains(strings.ToLower(message), "item size")
}

// isForeignKey reports whether the table's key is another one. DynamoDB Local says it in its own
// words.
func isForeignKey(err error) bool {
	return isInvalid(err, "key element", "Missing the key", "number of conditions on the keys", "required keys")
}

// explain says what was being done, in a form that errors.Is and errors.As see through. Its answer
// is silent if the entry may have been applied, or will be when it is sent again.
func (s *Store) explain(ctx context.Context, call string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dedupe.ErrBusy):
		return fmt.Errorf("dynamostore: %s: %w", call, err)
	case ctx.Err() != nil:
		// The SDK does not always name it.
		return silent{fmt.Errorf("dynamostore: %s: the outcome is unknown: %w: %w", call, ctx.Err(), err)}
	case isTooLarge(err):
		return fmt.Errorf("dynamostore: %s: %w: the record would have more than %d bytes: %w", call, dedupe.ErrResultSize, maxItem, err)
	case errors.As(err, new(*types.ResourceNotFoundException)):
		return silent{fmt.Errorf("dynamostore: %s: %w (is there a table %s in the client's region? CreateTable makes it)", call, err, s.table)}
	case isForeignKey(err):
		return silent{fmt.Errorf("dynamostore: %s: %w (table %s must have the partition key %q and the sort key %q, both strings; was it made "+
			"for another library?)", call, err, s.table, attrKey, attrScope)}
	}
	return silent{fmt.Errorf("dynamostore: %s: %w", call, err)}
}

// foreign is the error of an item that this store has not written. It concerns its own entry only.
func foreign(call string, err error) error { return fmt.Errorf("dynamostore: %s: %w", call, err) }

type lostKey struct{}

// candid answers an entry by do. A lost lease says that nothing was written. If the answer of a try
// was lost, that try may have written, and another have won the key since: then the outcome is
// open, and whoever asks again learns it.
func candid(ctx context.Context, call string, do func(ctx context.Context) error) error {
	lost := new(atomic.Bool)
	err := do(context.WithValue(ctx, lostKey{}, lost))
	if lost.Load() && errors.Is(err, dedupe.ErrLeaseLost) {
		return silent{fmt.Errorf("dynamostore: %s: the outcome is unknown: the answer of a try was lost, and the key has moved on since", call)}
	}
	return err
}
