package pgstore

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
	"github.com/onceq/onceq/internal/records"
)

// row is a record as it is read. One row is used for all of a result: pgx then plans the reading
// once.
type row struct {
	ord    int64 // from 1: which of the keys asked for
	now    time.Time
	key    dedupe.Key // where a statement does not know it
	r      dedupe.Record
	status string
	fence  int64
	policy string

	past []byte

	leaseUntil, created, claimedAt, updated, finished, expires, sent pgtype.Timestamptz
}

// targets are what the columns are read into.
func (w *row) targets() []any {
	return []any{
		&w.status, &w.fence, (*[16]byte)(&w.r.Token), &w.r.Attempt, &w.r.Started, &w.policy, &w.r.Owner, &w.r.MessageID, &w.leaseUntil,
		&w.r.Fingerprint, &w.r.Result, &w.r.State, &w.r.ErrClass, &w.r.FirstErr, &w.r.LastErr,
		&w.created, &w.claimedAt, &w.updated, &w.finished, &w.expires, &w.past, &w.sent,
	}
}

// numbered puts what a read of given keys has before the columns.
func (w *row) numbered() []any { return append([]any{&w.ord, &w.now}, w.targets()...) }

// listed puts the key before the columns.
func (w *row) listed() []any { return append([]any{&w.key.Scope, &w.key.Key}, w.targets()...) }

// record is what was read, as the record of k. The error is a *contentError.
func (w *row) record(k dedupe.Key) (dedupe.Record, error) {
	r := w.r
	w.r = dedupe.Record{} // its bytes belong to r now
	r.Key = k
	var err error
	if r.Status, err = dedupe.ParseStatus(w.status); err != nil {
		return dedupe.Record{}, &contentError{k, fmt.Sprintf("unknown status %q", w.status)}
	}
	switch w.policy {
	case "rerun":
		r.Policy = dedupe.Rerun
	case "park":
		r.Policy = dedupe.Park
	default:
		return dedupe.Record{}, &contentError{k, fmt.Sprintf("unknown policy %q", w.policy)}
	}
	if w.fence <= 0 {
		return dedupe.Record{}, &contentError{k, fmt.Sprintf("fence is %d, want a number above 0", w.fence)}
	}
	r.Fence = uint64(w.fence)
	if r.StateNo, r.State, err = records.DecodeState(r.State); err != nil {
		return dedupe.Record{}, &contentError{k, err.Error()}
	}
	for _, c := range []struct {
		to   *time.Time
		from *pgtype.Timestamptz
	}{
		{&r.LeaseUntil, &w.leaseUntil},
		{&r.Created, &w.created},
		{&r.ClaimedAt, &w.claimedAt},
		{&r.Updated, &w.updated},
		{&r.Finished, &w.finished},
		{&r.Expires, &w.expires},
		{&r.Sent, &w.sent},
	} {
		switch {
		case !c.from.Valid:
			*c.to = time.Time{}
		case c.from.InfinityModifier != pgtype.Finite:
			return dedupe.Record{}, &contentError{k, "a time is infinite"}
		default:
			*c.to = c.from.Time.UTC()
		}
	}
	r.Past = records.DecodePast(w.past, r.Created)
	return r, nil
}

// contentError is a row that the store has not written like this. It concerns its own entry only.
type contentError struct {
	key  dedupe.Key
	text string
}

func (e *contentError) Error() string {
	return fmt.Sprintf("scope %q, key %q: %s", e.key.Scope, e.key.Key, e.text)
}

// keyed are arrays that begin with the two of the keys. What takes them has inScope for a scope.
func keyed[T any](of []T, key func(T) *dedupe.Key) *arrays {
	a := newArrays()
	shared(a, of, func(e T) string { return key(e).Scope }, (*array).text)
	column(a, of, func(e T) string { return key(e).Key }, (*array).text)
	return a
}

// inScope is the scope of the row g of the arrays.
const inScope = `coalesce(g.scope, ($1::pg_catalog.text[])[1])`

// readRows adds the reading of the records under the keys, which are two arrays. Records that the
// transaction itself has written are left out. read gets each record with its place in the arrays.
func (s *Store) readRows(p *pgkit.Pipeline, keys []any, read func(n int, w *row)) {
	w := new(row)
	targets := w.numbered()
	p.Query(s.sql().read, keys, func(rows pgx.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		w.now = w.now.UTC()
		read(int(w.ord)-1, w)
		return nil
	})
}
