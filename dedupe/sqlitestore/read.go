package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// This file owns what reads: Get, List and Count, and the clock. Operators and their tools call it,
// from any goroutine, each call on a connection of the pool. Nothing is locked.

// listPage is how many rows List reads at a time. List keeps no read transaction open between
// pages, because SQLite could not empty the write-ahead log meanwhile.
const listPage = 200

// Get reads records, on a connection of the pool. SQLite parses the query once for all keys,
// because that takes longer than to find a row.
func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if s.w.IsClosed() {
		return nil, errClosed
	}
	if len(ks) > maxBatch {
		return nil, fmt.Errorf("%w: a batch of %d keys, the limit is %d", dedupe.ErrBadRequest, len(ks), maxBatch)
	}
	read, err := s.db.PrepareContext(ctx, s.sql.read)
	if err != nil {
		return nil, explain("reading", err)
	}
	defer read.Close()
	rs := make([]*dedupe.Record, len(ks))
	for i, k := range ks {
		r := new(dedupe.Record)
		err := read.QueryRowContext(ctx, k.Scope, k.Key).Scan(columnTargets(r)...)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return nil, explain("reading", nameRow(s.sql.table, k, err))
		}
		if !r.Expired(time.Now()) {
			rs[i] = r
		}
	}
	return rs, nil
}

// List goes through records in the order of scope, then key, byte by byte, a page at a time.
// Expired ones are left out.
func (s *Store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return records.Pages(listPage, q, func(last dedupe.Key, n int) ([]*dedupe.Record, error) {
		return s.page(ctx, &q, last, n)
	})
}

// page reads the n records after the key last.
func (s *Store) page(ctx context.Context, q *dedupe.Query, last dedupe.Key, n int) ([]*dedupe.Record, error) {
	if s.w.IsClosed() {
		return nil, errClosed
	}
	b, args := s.where(q)
	b.WriteString(" AND (scope, key) > (?, ?)")
	args = append(args, last.Scope, last.Key)
	b.WriteString(" ORDER BY scope, key LIMIT ?")
	rows, err := s.db.QueryContext(ctx, s.sql.list+b.String(), append(args, n)...)
	if err != nil {
		return nil, explain("listing", err)
	}
	defer rows.Close()
	var page []*dedupe.Record
	for rows.Next() {
		r := new(dedupe.Record)
		if err := rows.Scan(columnTargets(r)...); err != nil {
			return nil, explain("listing", nameRow(s.sql.table, r.Key, err))
		}
		page = append(page, r)
	}
	if err := rows.Err(); err != nil {
		return nil, explain("listing", err)
	}
	return page, nil
}

// where is what q selects, apart from its limit. The index of what people look for is named where
// it will do, because without statistics SQLite would rather go through the whole scope. For that
// the status must be a part of the text, and no argument.
func (s *Store) where(q *dedupe.Query) (b *strings.Builder, args []any) {
	b = new(strings.Builder)
	switch q.Status {
	case dedupe.Failed, dedupe.Parked, dedupe.Released:
		b.WriteString(s.sql.byStatus)
	case dedupe.Claimed, dedupe.Done: // they have no index
	}
	b.WriteString(" WHERE (expires IS NULL OR expires > ?)")
	args = []any{sqlitewriter.TimeText(time.Now())}
	add := func(cond string, values ...any) {
		b.WriteString(" AND " + cond)
		args = append(args, values...)
	}
	if q.Scope != "" {
		add("scope = ?", q.Scope)
	}
	if q.Prefix != "" {
		// 0xff stands above every byte of UTF-8
		add("key >= ? AND key < ?", q.Prefix, q.Prefix+"\xff")
	}
	if st := q.Status; st >= dedupe.Claimed && st <= dedupe.Parked {
		add("status = '" + st.String() + "'")
	} else if st != 0 {
		add("false")
	}
	if !q.Before.IsZero() {
		add("updated < ?", sqlitewriter.TimeText(q.Before))
	}
	if !q.LeaseBefore.IsZero() {
		add("status = 'claimed' AND lease_until < ?", sqlitewriter.TimeText(q.LeaseBefore))
	}
	return b, args
}

var (
	_ dedupe.Counter = (*Store)(nil)
	_ dedupe.Clock   = (*Store)(nil)
)

// Count counts records by scope and status, all of them exactly. Unless the query names Failed,
// Parked or Released, it reads the whole table, or the whole scope.
func (s *Store) Count(ctx context.Context, q dedupe.Query) ([]dedupe.Count, error) {
	if s.w.IsClosed() {
		return nil, errClosed
	}
	b, args := s.where(&q)
	rows, err := s.db.QueryContext(ctx, s.sql.count+b.String()+" GROUP BY scope, status", args...)
	if err != nil {
		return nil, explain("counting", err)
	}
	defer rows.Close()
	var counts []dedupe.Count
	for rows.Next() {
		c := dedupe.Count{Exact: true}
		if err := rows.Scan(&c.Scope, (*statusColumn)(&c.Status), &c.N); err != nil {
			return nil, explain("counting", err)
		}
		counts = append(counts, c)
	}
	if err := rows.Err(); err != nil {
		return nil, explain("counting", err)
	}
	slices.SortFunc(counts, func(a, b dedupe.Count) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), cmp.Compare(a.Status, b.Status))
	})
	return counts, nil
}

// Now is the host's clock, by which the store judges leases.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if s.w.IsClosed() {
		return time.Time{}, errClosed
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("sqlitestore: Now: %w", err)
	}
	return time.Now(), nil
}
