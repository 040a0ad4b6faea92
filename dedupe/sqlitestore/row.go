package sqlitestore

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// This file owns the form of a row: how a record is written and read, with any driver. The writer
// and the reading calls use it. It keeps nothing and locks nothing.

// columns is the row of a record, in the order of columnValues and columnTargets.
var columns = []string{
	"scope", "key", "status", "fence", "token", "attempt", "started", "policy", "owner", "message_id",
	"lease_until", "fingerprint", "result", "state", "error_class", "first_error", "last_error",
	"created", "claimed_at", "updated", "finished", "expires", "past", "sent",
}

func columnValues(r *dedupe.Record) []any {
	return []any{
		r.Key.Scope, r.Key.Key, r.Status.String(), int64(r.Fence), r.Token[:], r.Attempt, r.Started, r.Policy.String(), r.Owner, r.MessageID,
		sqlitewriter.TimeText(r.LeaseUntil), r.Fingerprint, r.Result, records.EncodeState(r.StateNo, r.State), r.ErrClass, r.FirstErr, r.LastErr,
		sqlitewriter.TimeText(r.Created), sqlitewriter.TimeText(r.ClaimedAt), sqlitewriter.TimeText(r.Updated), sqlitewriter.TimeText(r.Finished), sqlitewriter.TimeText(r.Expires),
		dedupe.EncodePast(r.Past), sqlitewriter.TimeText(r.Sent),
	}
}

func columnTargets(r *dedupe.Record) []any {
	return []any{
		&r.Key.Scope, &r.Key.Key, (*statusColumn)(&r.Status), (*fenceColumn)(&r.Fence), (*tokenColumn)(&r.Token),
		&r.Attempt, &r.Started, (*policyColumn)(&r.Policy), &r.Owner, &r.MessageID,
		(*timeColumn)(&r.LeaseUntil), (*blobColumn)(&r.Fingerprint), (*blobColumn)(&r.Result), &stateColumn{r},
		&r.ErrClass, &r.FirstErr, &r.LastErr,
		(*timeColumn)(&r.Created), (*timeColumn)(&r.ClaimedAt), (*timeColumn)(&r.Updated), (*timeColumn)(&r.Finished), (*timeColumn)(&r.Expires),
		&pastColumn{r}, (*timeColumn)(&r.Sent),
	}
}

// contentError is a row that the store did not write like this. It concerns its own entry only.
type contentError struct{ text string }

func (e *contentError) Error() string { return e.text }

func badContent(format string, args ...any) error {
	return &contentError{fmt.Sprintf(format, args...)}
}

// nameRow says which row the trouble is in.
func nameRow(table string, k dedupe.Key, err error) error {
	if bad := (*contentError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("sqlitestore: table %s, scope %q, key %q: %w", table, k.Scope, k.Key, err)
	}
	return err
}

// text is a value that should be text. Drivers differ in how they hand it over.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

type statusColumn dedupe.Status

func (c *statusColumn) Scan(v any) error {
	s := text(v)
	st, err := dedupe.ParseStatus(s)
	if err != nil {
		return badContent("unknown status %q", s)
	}
	*c = statusColumn(st)
	return nil
}

type policyColumn dedupe.Policy

func (c *policyColumn) Scan(v any) error {
	s := text(v)
	for p := dedupe.Rerun; p <= dedupe.Park; p++ {
		if p.String() == s {
			*c = policyColumn(p)
			return nil
		}
	}
	return badContent("unknown policy %q", s)
}

type fenceColumn uint64

func (c *fenceColumn) Scan(v any) error {
	n, ok := v.(int64)
	if !ok || n <= 0 {
		return badContent("fence is %v, want a number above 0", v)
	}
	*c = fenceColumn(n)
	return nil
}

type tokenColumn dedupe.Token

func (c *tokenColumn) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok || len(b) != len(c) {
		return badContent("token has %d bytes, want %d", len(b), len(c))
	}
	copy(c[:], b)
	return nil
}

type timeColumn time.Time

func (c *timeColumn) Scan(v any) error {
	if v == nil {
		*c = timeColumn{}
		return nil
	}
	s := text(v)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return badContent("time %q is not like %s", s, sqlitewriter.TimeLayout)
	}
	*c = timeColumn(t.UTC())
	return nil
}

// blobColumn keeps NULL (nil) and empty apart.
type blobColumn []byte

func (c *blobColumn) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*c = nil
	case []byte:
		*c = append(blobColumn{}, v...)
	case string:
		*c = blobColumn(v)
	default:
		return badContent("%T where bytes are wanted", v)
	}
	return nil
}

// stateColumn is a state with its number before it.
type stateColumn struct{ r *dedupe.Record }

func (c *stateColumn) Scan(v any) error {
	var b blobColumn
	if err := b.Scan(v); err != nil {
		return err
	}
	var err error
	if c.r.StateNo, c.r.State, err = records.DecodeState(b); err != nil {
		return badContent("%v", err)
	}
	return nil
}

// pastColumn is the history of a record whose Created was read before it.
type pastColumn struct{ r *dedupe.Record }

func (c *pastColumn) Scan(v any) error {
	var b blobColumn
	if err := b.Scan(v); err != nil {
		return err
	}
	c.r.Past = records.DecodePast(b, c.r.Created)
	return nil
}
