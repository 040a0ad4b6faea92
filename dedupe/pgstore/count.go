package pgstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/pgkit"
)

// This file owns what people ask about the whole table, and the server's clock. Tools call it, from
// any goroutine. Nothing is locked.

var (
	_ dedupe.Counter = (*Store)(nil)
	_ dedupe.Clock   = (*Store)(nil)
)

// sampleBlocks is how many blocks of 8 KB Count reads of a table that is larger than twice that. A
// sample of that size is right to a few percent for what is frequent.
const (
	sampleBlocks = 4000
	blockSize    = 8 << 10
)

// noticed are the statuses of the attention index: those that people look for. Each is counted by a
// statement of its own, because a plan for all three that was made while the table was empty may
// read the whole table, until the next ANALYZE, however it grows.
var noticed = []dedupe.Status{dedupe.Failed, dedupe.Parked, dedupe.Released}

// Count counts records by scope and status. Failed, parked and released ones are counted one by
// one, by their index. Claimed and done ones of a table above 64 MB are estimated from about 32 MB
// of it, taken at random, so a scope that has few of them may be missing.
func (s *Store) Count(ctx context.Context, q dedupe.Query) (counts []dedupe.Count, err error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	if !possible(q.Scope) {
		return nil, nil
	}
	p := newPipeline()
	for _, st := range noticed {
		if q.Status == st || q.Status == 0 && q.LeaseBefore.IsZero() {
			one := q
			one.Status = st
			s.count(p, &one, 1, &counts)
		}
	}
	if !slices.Contains(noticed, q.Status) {
		share, err := s.share(ctx)
		if err != nil {
			return nil, s.explain(ctx, "Count", err)
		}
		s.count(p, &q, share, &counts)
	}
	if err := p.Run(ctx, s.db); err != nil {
		return nil, s.explain(ctx, "Count", err)
	}
	slices.SortFunc(counts, func(a, b dedupe.Count) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), cmp.Compare(a.Status, b.Status))
	})
	return counts, nil
}

// share is how much of the table is to be read: 1 = all of it.
func (s *Store) share(ctx context.Context) (share float64, err error) {
	var blocks int64
	p := newPipeline()
	const size = `SELECT pg_catalog.pg_relation_size($1::pg_catalog.text::pg_catalog.regclass)`
	p.Query(size, []any{s.sql().table}, func(rows pgx.Rows) error { return rows.Scan(&blocks) })
	if err := p.Run(ctx, s.db); err != nil {
		return 0, err
	}
	if blocks /= blockSize; blocks <= 2*sampleBlocks {
		return 1, nil
	}
	return sampleBlocks / float64(blocks), nil
}

// count adds the counting of what q selects, in a share of the table.
func (s *Store) count(p *pgkit.Pipeline, q *dedupe.Query, share float64, to *[]dedupe.Count) {
	sql, args := s.countQuery(q, share)
	p.Query(sql, args, func(rows pgx.Rows) error {
		var c dedupe.Count
		var status string
		if err := rows.Scan(&c.Scope, &status, &c.N); err != nil {
			return err
		}
		var err error
		c.Status, err = dedupe.ParseStatus(status)
		c.N, c.Exact = int64(math.Round(float64(c.N)/share)), share == 1
		*to = append(*to, c)
		return err
	})
}

// countQuery counts, of a status or, where q has none, all that is not noticed.
func (s *Store) countQuery(q *dedupe.Query, share float64) (sql string, args []any) {
	w := where(q)
	if q.Status == 0 {
		for _, st := range noticed {
			w.add("t.status {<>} '" + st.String() + "'")
		}
	}
	from := "{table} t"
	if share < 1 {
		w.args = append(w.args, 100*share)
		from = "{table} t TABLESAMPLE pg_catalog.system($" + strconv.Itoa(len(w.args)) + "::real)"
	}
	return s.sql().fill("SELECT t.scope, t.status, pg_catalog.count(*) FROM " + from + " WHERE " + w.text.String() + " GROUP BY t.scope, t.status"), w.args
}

// Now is the server's clock_timestamp(), by which leases are judged.
func (s *Store) Now(ctx context.Context) (t time.Time, err error) {
	if err := s.ready(ctx, 0); err != nil {
		return time.Time{}, err
	}
	p := newPipeline()
	p.Query(`SELECT pg_catalog.clock_timestamp()`, nil, func(rows pgx.Rows) error { return rows.Scan(&t) })
	if err := p.Run(ctx, s.db); err != nil {
		return time.Time{}, s.explain(ctx, "Now", err)
	}
	return t.UTC(), nil
}
