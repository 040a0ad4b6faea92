package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

// listPage is how many rows List reads at a time. List keeps no read transaction open between
// pages, because SQLite could not empty the write-ahead log meanwhile.
const listPage = 200

// Get reads records, on a connection of the pool.
func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if s.w.isClosed() {
		return nil, errClosed
	}
	if len(ks) > maxBatch {
		return nil, fmt.Errorf("%w: a batch of %d keys, the limit is %d", dedupe.ErrBadRequest, len(ks), maxBatch)
	}
	rs := make([]*dedupe.Record, len(ks))
	for i, k := range ks {
		r := new(dedupe.Record)
		err := s.db.QueryRowContext(ctx, s.sql.read, k.Scope, k.Key).Scan(columnTargets(r)...)
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
	return records.Pages(listPage, q.Limit, func(last dedupe.Key, n int) ([]*dedupe.Record, error) {
		return s.page(ctx, &q, last, n)
	})
}

// page reads the n records after the key last.
func (s *Store) page(ctx context.Context, q *dedupe.Query, last dedupe.Key, n int) ([]*dedupe.Record, error) {
	if s.w.isClosed() {
		return nil, errClosed
	}
	var b strings.Builder
	b.WriteString(s.sql.list)
	b.WriteString("(scope, key) > (?, ?) AND (expires IS NULL OR expires > ?)")
	args := []any{last.Scope, last.Key, timeText(time.Now())}
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
	if q.Status != 0 {
		add("status = ?", q.Status.String())
	}
	if !q.Before.IsZero() {
		add("updated < ?", timeText(q.Before))
	}
	b.WriteString(" ORDER BY scope, key LIMIT ?")
	rows, err := s.db.QueryContext(ctx, b.String(), append(args, n)...)
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
