// Package records has what the stores share that keep records in a database.
package records

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/onceq/onceq/dedupe"
)

// Ready tells why a call of n entries cannot begin, in the store's name.
func Ready(ctx context.Context, store string, closed bool, n, most int) error {
	if closed {
		return fmt.Errorf("%s: %w", store, dedupe.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: nothing was written: %w", store, err)
	}
	if n > most {
		return fmt.Errorf("%s: %w: a batch of %d entries, the limit is %d", store, dedupe.ErrBadRequest, n, most)
	}
	return nil
}

// Pages goes through the records of q, size of them at a time: read answers at most n of those that
// come after the key last, in the order of their keys. Of q it looks at After and Limit alone. The
// sequence ends after the first error.
func Pages(size int, q dedupe.Query, read func(last dedupe.Key, n int) ([]*dedupe.Record, error)) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) {
		if err := CheckAfter(&q); err != nil {
			yield(nil, err)
			return
		}
		limit, left, last := q.Limit, q.Limit, q.After
		for {
			n := size
			if limit > 0 {
				n = min(n, left)
			}
			page, err := read(last, n)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
			}
			left -= len(page)
			if len(page) < n || limit > 0 && left == 0 {
				return
			}
			last = page[len(page)-1].Key
		}
	}
}

// CheckSize refuses what is larger than most bytes, with [dedupe.ErrResultSize].
func CheckSize(field string, b []byte, most int) error {
	if len(b) > most {
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", dedupe.ErrResultSize, field, len(b), most)
	}
	return nil
}

// Encode is a transaction's result as it is stored: a []byte as it is, nil as none, anything else
// as JSON, of at most so many bytes.
func Encode(result any, most int) ([]byte, error) {
	var b []byte
	switch r := result.(type) {
	case nil:
	case []byte:
		b = r
	default:
		var err error
		if b, err = json.Marshal(r); err != nil {
			return nil, fmt.Errorf("the result cannot be written as JSON: %w", err)
		}
	}
	return b, CheckSize("the result", b, most)
}
